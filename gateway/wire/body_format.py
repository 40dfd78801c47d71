"""Tells of which format a body is that the endpoint of another one has refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.core.formats import Format
from gateway.wire.json.fields import Payload

_CHAT_FIELDS: Final = frozenset(
    {
        *("max_completion_tokens", "response_format", "reasoning_effort", "stream_options", "n"),
        *("frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "seed", "stop"),
        *("functions", "function_call", "parallel_tool_calls"),
    }
)
_MESSAGES_FIELDS: Final = frozenset({"system", "stop_sequences", "output_config"})
_CHAT_ROLES: Final = ("tool", "developer", "function")
_MESSAGES_BLOCKS: Final = ("tool_use", "tool_result", "image", "document", "thinking")
"""Types of blocks that only messages has."""
_MAX_SEARCHED: Final = 100
"""Items of a list, as nothing else bounds the time."""


def likely_format(body: Payload, refused_by: Format, *, has_version: bool) -> Format | None:
    """The format of a body by its fields; None where it is that of the endpoint, or may be that of
    several. `has_version`: the request has the version header of messages."""
    if "messages" not in body:
        is_responses = "input" in body and refused_by is not Format.RESPONSES
        return Format.RESPONSES if is_responses else None
    if "input" in body:
        return None
    found = set(_signs(body))
    if len(found) == 1:
        likely = found.pop()
    elif found or refused_by is not Format.RESPONSES:
        return None
    else:
        likely = Format.MESSAGES if has_version and "max_tokens" in body else Format.CHAT
    return None if likely is refused_by else likely


def _signs(body: Payload) -> Iterator[Format]:
    """The formats, of chat and messages, of which something in the body is."""
    if not _CHAT_FIELDS.isdisjoint(body):
        yield Format.CHAT
    if not _MESSAGES_FIELDS.isdisjoint(body):
        yield Format.MESSAGES
    for tool in _objects(body.get("tools")):
        if "function" in tool or "input_schema" in tool:
            yield Format.CHAT if "function" in tool else Format.MESSAGES
    for message in _objects(body.get("messages")):
        if "tool_calls" in message or message.get("role") in _CHAT_ROLES:
            yield Format.CHAT
        for block in _objects(message.get("content")):
            if (kind := block.get("type")) == "image_url" or kind in _MESSAGES_BLOCKS:
                yield Format.CHAT if kind == "image_url" else Format.MESSAGES


def _objects(value: object) -> Iterator[Payload]:
    if isinstance(value, list):
        yield from (each for each in value[:_MAX_SEARCHED] if isinstance(each, dict))
