"""Models that know what they are sent and nothing else: their replies repeat the facts of the
request, so that a test sees what is left of a conversation after a compaction."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from gateway.core.formats import Format
from tests.support.gateway import RunningGateway, channel, run_gateway
from tests.support.searches import model_reply
from tests.support.upstream import ReceivedRequest, Response, ScriptedUpstream, scripted_upstream

SUMMARY_REQUEST: Final = b"too long to go on with"
SUMMARY: Final = "[Summary of the conversation so far]"
_FACT: Final = re.compile(rb"fact-\w+")


def facts(body: bytes) -> list[str]:
    """The facts that a text has, each once."""
    return sorted({fact.decode() for fact in _FACT.findall(body)})


def is_summary_request(request: ReceivedRequest) -> bool:
    return SUMMARY_REQUEST in request.body


async def tell_facts(request: ReceivedRequest) -> Response:
    """Writes a summary if that is asked for, else a reply; both with all facts."""
    kind = "SUMMARY" if is_summary_request(request) else "REPLY"
    text = " ".join([f"{kind}:", *facts(request.body)])
    return model_reply(request.format, text, stream=request.streamed)


@asynccontextmanager
async def compacting_gateway(
    state_dir: Path, *formats: Format, **config: Any
) -> AsyncIterator[tuple[RunningGateway, ScriptedUpstream]]:
    """A gateway with a channel of each format, whose upstreams compact nothing themselves."""
    line = {"traits": {"compaction": False}} | config.pop("line", {})
    async with scripted_upstream() as upstream:
        upstream.respond_with(tell_facts)
        lines = [channel(format, upstream.address) | line for format in formats]
        async with run_gateway(state_dir, lines, **config) as gateway:
            yield gateway, upstream
