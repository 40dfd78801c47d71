"""Replies of models that search, and answers of a search endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gateway.core.events import StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import Part, Text, ToolCall
from gateway.core.reply import Reply
from gateway.wire.codec import ReplyMetadata
from gateway.wire.registry import CODECS
from gateway.wire.stream.event_builder import encode_reply
from tests.support.gateway import RunningGateway, channel, request_body, run_gateway
from tests.support.shared_gateway import as_new
from tests.support.upstream import (
    Response,
    ScriptedUpstream,
    event_stream,
    json_response,
    scripted_upstream,
)

USAGE = Usage(input_tokens=100, output_tokens=10)
PAGES = [
    {"url": "https://example.org/oslo", "title": "Oslo", "content": "Oslo has 717,710 people."},
    {
        "url": "https://docs.example.net/norway",
        "title": "Norway",
        "content": "A country.",
        "publishedDate": "2026-01-02",
    },
]
TOOLS: dict[Format, dict[str, Any]] = {
    Format.MESSAGES: {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    Format.RESPONSES: {"tools": [{"type": "web_search"}]},
    Format.CHAT: {"web_search_options": {}},
}


def search_tool(client_format: Format, **options: Any) -> dict[str, Any]:
    """The field of a request with a web search."""
    if client_format is Format.CHAT:
        return {"web_search_options": options}
    return {"tools": [TOOLS[client_format]["tools"][0] | options]}


def search(query: str | None = "population of Oslo", id: str = "call_1") -> ToolCall:
    arguments = {} if query is None else {"query": query}
    return ToolCall(id, "web_search", orjson.dumps(arguments).decode())


def model_reply(
    format: Format,
    *parts: Part | str,
    stop: StopReason | None = None,
    usage: Usage | None = USAGE,
    stream: bool = True,
    id: str = "up",
) -> Response:
    """A reply of an upstream of the format; agents take replies with the same `id` for one."""
    parsed = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    called = any(isinstance(part, ToolCall) for part in parsed)
    reply = Reply(
        id="reply",
        model="m",
        parts=parsed,
        stop=stop or (StopReason.TOOL_CALL if called else StopReason.END_TURN),
        usage=usage,
    )
    prompt = CODECS[format].parse_prompt(
        request_body(format)
        | ({"stream_options": {"include_usage": True}} if format is Format.CHAT else {})
    )
    metadata = ReplyMetadata(reply_id=id, created=1)
    if not stream:
        return json_response(CODECS[format].render_reply(reply, prompt, metadata)[0])
    return event_stream(encode_reply(reply, CODECS[format].encoder(prompt, metadata)))


def found(pages: Sequence[dict[str, Any]] = PAGES) -> Response:
    return json_response({"query": "q", "results": list(pages)})


@dataclass(frozen=True, slots=True)
class Searching:
    """`upstream` is the models', `endpoint` that of the search."""

    gateway: RunningGateway
    upstream: ScriptedUpstream
    endpoint: ScriptedUpstream

    @property
    def bodies(self) -> list[Any]:
        """What the upstream received."""
        return [request.json for request in self.upstream.requests]


@asynccontextmanager
async def searching_gateway(
    place: Path | RunningGateway, format: Format, *, accounts: int = 1, **config: Any
) -> AsyncIterator[Searching]:
    """A gateway whose only channel has the format, and no web search of its own: a new one with
    this state, or that of the module."""
    search = config.pop("search", {})
    line = {"traits": {"web_search": False}} | config.pop("line", {})
    async with scripted_upstream() as upstream, scripted_upstream() as endpoint:
        endpoint.respond_with(found())
        line |= {
            "accounts": [{"name": f"a{n}", "key": f"upstream-secret-{n}"} for n in range(accounts)]
        }
        settings = {"url": f"{endpoint.address}/search"} | search
        lines = [channel(format, upstream.address) | line]
        run = as_new if isinstance(place, RunningGateway) else run_gateway
        async with run(place, lines, search=settings, **config) as gateway:
            yield Searching(gateway, upstream, endpoint)
