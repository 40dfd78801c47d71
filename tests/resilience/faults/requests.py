"""How the tests of this folder ask an upstream. Independent of what it answers."""

from __future__ import annotations

from typing import Any

from gateway.core.formats import Format
from tests.resilience.faults.upstream import FaultUpstream
from tests.support.raw_client import RawClient, Received, raw_client, request

PATHS = {
    Format.CHAT: "/chat/completions",
    Format.MESSAGES: "/v1/messages",
    Format.RESPONSES: "/responses",
}


def encode_request(
    upstream: FaultUpstream,
    plan: str = "ok",
    format: Format = Format.MESSAGES,
    *,
    stream: bool = True,
    key: str = "key-a",
    **fields: Any,
) -> bytes:
    """A request for a reply."""
    credential = {"authorization": f"Bearer {key}"}
    if format is Format.MESSAGES:
        credential = {"x-api-key": key}
    body = {"model": "upstream-model", "stream": stream} | fields
    return request(upstream.base_url(format, plan), PATHS[format], body, credential)


async def ask(
    upstream: FaultUpstream, plan: str = "ok", format: Format = Format.MESSAGES, **options: Any
) -> Received:
    """The answer, on a connection of its own."""
    async with raw_client(upstream.address) as client:
        return await ask_on(client, upstream, plan, format, **options)


async def ask_on(
    client: RawClient,
    upstream: FaultUpstream,
    plan: str = "ok",
    format: Format = Format.MESSAGES,
    **options: Any,
) -> Received:
    await client.send(encode_request(upstream, plan, format, **options))
    return await client.answer()
