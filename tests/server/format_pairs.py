"""Shared by the tests of translated replies: pairs of formats, requests, expected replies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson

from gateway.core.events import StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import Text, ToolCall
from gateway.core.reply import Reply, collect_reply
from gateway.wire.registry import CODECS
from tests.support.formats.readers import check
from tests.support.gateway import RunningGateway
from tests.wire.stream_cases import decode

OpenGateway = Callable[..., AbstractAsyncContextManager[RunningGateway]]
"""Opens a gateway whose only channel has the given format, always on the translated lane;
`line` changes the channel, other names the configuration."""

PAIRS = [(client_format, upstream_format) for client_format in Format for upstream_format in Format]
TRANSLATED_PAIRS = [
    (client_format, upstream_format)
    for client_format, upstream_format in PAIRS
    if client_format is not upstream_format
]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: dict[Format, Any] = {
    Format.CHAT: [
        {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}},
    ],
    Format.MESSAGES: [{"name": "get_weather", "input_schema": SCHEMA}],
    Format.RESPONSES: [{"type": "function", "name": "get_weather", "parameters": SCHEMA}],
}
TERMINAL = {
    Format.CHAT: b"[DONE]",
    Format.MESSAGES: b"message_stop",
    Format.RESPONSES: b"response.completed",
}
EXPECTED: dict[str, tuple[object, StopReason, Usage]] = {
    "text": ("Hello, world!", StopReason.END_TURN, Usage(input_tokens=12, output_tokens=4)),
    "one_tool": (
        ("call_1", "get_weather", {"city": "Oslo"}),
        StopReason.TOOL_CALL,
        Usage(input_tokens=58, output_tokens=17),
    ),
}


def meaning(reply: Reply) -> tuple[object, StopReason, Usage | None]:
    """The one part, the stop reason and the usage of a reply, as in `MEANT`."""
    (part,) = reply.parts
    match part:
        case Text(text):
            return text, reply.stop, reply.usage
        case ToolCall(id=id, name=name, arguments=arguments):
            return (id, name, orjson.loads(arguments)), reply.stop, reply.usage
    raise AssertionError(part)


def parse_stream(client_format: Format, raw: bytes) -> Reply:
    """The reply that a client reads; its stream is held to the format's strict grammar."""
    check(client_format, raw, include_usage=True)
    return collect_reply(decode(CODECS[client_format].decoder(), raw))


def usage_option(client_format: Format) -> dict[str, Any]:
    """The fields by which a client requests usage in a stream."""
    return {"stream_options": {"include_usage": True}} if client_format is Format.CHAT else {}
