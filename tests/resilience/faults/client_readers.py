"""What clients of each format hear: the text of a reply, or an error in the form of the format.

Independent of why they hear it.
"""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import ClientResponse

from gateway.core.events import Begin, Delta, End, Event
from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.wire.registry import CODECS
from tests.resilience.faults.outcomes import ClientError
from tests.support.formats.endings import error_at_end
from tests.support.grammar import assert_grammar
from tests.wire.stream_cases import decode

_ERROR_HEADERS = ("retry-after", "x-should-retry", "www-authenticate", "allow")


async def text_of(answer: ClientResponse, format: Format, *, streamed: bool) -> str:
    """The text of one whole and sound reply."""
    body = await answer.read()
    assert answer.status == 200, body
    if not streamed:
        assert answer.content_type == "application/json"
        parts = CODECS[format].parse_reply(orjson.loads(body)).parts
        return "".join(part.text for part in parts if isinstance(part, Text))
    assert answer.content_type == "text/event-stream"
    events = _events(format, body)
    assert_grammar(events)
    assert [type(event) for event in events if isinstance(event, Begin | End)] == [Begin, End]
    return _text(events)


async def assert_error(
    answer: ClientResponse, format: Format, expected: ClientError, *, vague: float = 0
) -> None:
    """The answer is this error, and nothing else; `vague`: give or take so many seconds."""
    body = await answer.json()
    assert (answer.status, answer.content_type) == (expected.status, "application/json"), body
    fields = {name: answer.headers[name] for name in _ERROR_HEADERS if name in answer.headers}
    if vague:
        delay, sent_delay = float(expected.headers["retry-after"]), float(fields["retry-after"])
        assert abs(delay - sent_delay) <= vague
    else:
        assert fields == expected.headers, body
    request_id = answer.headers["request-id"]
    assert answer.headers["x-request-id"] == request_id
    message = expected.message + expected.wait
    if format is Format.MESSAGES:
        if expected.code == "content_policy_violation":
            message = f"{expected.code}: {message}"
        error: dict[str, Any] = {"type": expected.native, "message": message}
        assert body == {"type": "error", "error": error, "request_id": request_id}
    else:
        assert body["error"].pop("param", None) in (None, "messages", "input", "model")
        assert body == {"error": {"message": message, "type": expected.type, "code": expected.code}}


async def assert_error_in_stream(
    answer: ClientResponse, format: Format, expected: ClientError, passed_on: str = ""
) -> str:
    """A stream that breaks off with this error, or with the upstream's message; its text."""
    body = await answer.read()
    assert (answer.status, answer.content_type) == (200, "text/event-stream"), body
    for mark in (b"[DONE]", b"message_stop", b"response.completed", b'"finish_reason":"stop"'):
        assert mark not in body, "it is made to look complete"
    error = error_at_end(format, body)
    assert error is not None
    assert error["message"] == (passed_on or expected.message + expected.wait)
    if not passed_on:
        named = error["type"] if format is Format.MESSAGES else error["code"]
        assert named == (expected.native if format is Format.MESSAGES else expected.code)
    return _text(_events(format, body[:-2].rpartition(b"\n\n")[0] + b"\n\n"))


def _events(format: Format, body: bytes) -> list[Event]:
    return decode(CODECS[format].decoder(), body)


def _text(events: list[Event]) -> str:
    chunks = (event.piece for event in events if isinstance(event, Delta))
    return "".join(piece for piece in chunks if isinstance(piece, str))
