"""Whole chat replies. It must not know how an answer was asked for.

A whole body means what one big chunk means, so the stream's decoder reads it too: that is what
makes parsed and folded replies equal.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.events import StopReason
from gateway.core.reply import Reply, fold
from gateway.core.usage import Usage
from gateway.wire.chat.stream import ChatDecoder, plain_stop
from gateway.wire.chat.usage import parse_usage
from gateway.wire.fields import Payload

_BEYOND_TEXT: Final = ("tool_calls", "function_call", "refusal")


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is an error or has no choice in it."""
    choices = body.get("choices")
    chunk = body
    if isinstance(choices, list):
        chunk = body | {"choices": [_as_delta(choice) for choice in choices]}
    decoder = ChatDecoder()
    return fold([*decoder.decode(b"", chunk), *decoder.done()])


def measure_reply(body: Payload) -> tuple[StopReason, Usage | None]:
    """A plain text answer, which most are, is measured without building its parts."""
    choices = body.get("choices")
    if type(choices) is list and len(choices) == 1 and not body.get("error"):
        message = choices[0].get("message")
        if type(message) is dict and _is_plain(message):
            usage = body.get("usage")
            stop = plain_stop(choices[0].get("finish_reason"))
            return stop, parse_usage(usage, None) if usage else None
    reply = parse_reply(body)
    return reply.stop, reply.usage


def _is_plain(message: Payload) -> bool:
    return bool(message.get("content")) and not any(map(message.get, _BEYOND_TEXT))


def _as_delta(choice: Any) -> Any:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return choice
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message = message | {
            "tool_calls": [
                call | {"index": index} if isinstance(call, dict) else call
                for index, call in enumerate(calls)
            ]
        }
    return choice | {"delta": message}
