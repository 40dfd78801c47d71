"""Complete bodies are parsed and rendered in one step, with the result of the stream codecs.

The reference is the stream codec: a body as the frames of its stream, and frames joined to a body.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import Event, Failure
from gateway.core.formats import Format
from gateway.core.reply import Reply, ReplyFailed, collect_reply, reply_events
from gateway.wire.json.fields import Payload
from gateway.wire.registry import CODECS
from tests.support.hypothesis_profiles import examples
from tests.wire.event_strategy import event_streams, invalid_usages, usages
from tests.wire.golden_files import METADATA, answer, client, with_usage
from tests.wire.stream_cases import WITH_BODY, damaged_json, frames_of

law = examples(3)

_LENGTHENED = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
_STATUSES = {"incomplete": "incomplete", "failed": "failed", "cancelled": "failed"}


@given(event_streams(usages() | invalid_usages, fails=False))
@law
def test_rendered_bodies_parse_like_rendered_streams(events: list[Event]) -> None:
    for format in Format:
        body, _ = answer(collect_reply(with_usage(events)), format)
        _assert_equal_readings(format, orjson.loads(orjson.dumps(body)))


@given(st.data())
@examples(15)
def test_upstream_bodies_parse_like_upstream_streams(data: st.DataObject) -> None:
    """Valid and damaged bodies."""
    format, path = data.draw(st.sampled_from(WITH_BODY))
    body = orjson.loads(path.with_suffix(".json").read_bytes())
    for _ in range(data.draw(st.integers(0, 2))):
        body = data.draw(damaged_json(body))
        if not isinstance(body, dict):
            return
    _assert_equal_readings(format, body)


def test_an_output_item_whose_type_is_not_a_string() -> None:
    body = {"id": "r", "model": "m", "status": "completed", "output": [{"type": []}]}
    _assert_equal_readings(Format.RESPONSES, body)


@given(event_streams(usages() | invalid_usages, fails=False), st.booleans())
@law
def test_rendered_bodies_equal_accumulated_streams(events: list[Event], counts: bool) -> None:
    reply = collect_reply(with_usage(events) if counts else events)
    for format, added_up in ((Format.MESSAGES, _message), (Format.RESPONSES, _response)):
        request = client(format)
        body, lost = answer(reply, format)
        encoder = CODECS[format].encoder(request, METADATA)
        raw = b"".join(map(encoder.encode, reply_events(reply)))
        frames = [orjson.loads(frame.data or b"") for frame in frames_of([raw])]
        assert orjson.dumps(body) == orjson.dumps(added_up(frames))
        assert lost == encoder.dropped


def _assert_equal_readings(format: Format, body: Payload) -> None:
    codec = CODECS[format]
    try:
        reply: Reply | Failure = collect_reply(_decoded_events(format, body))
    except ReplyFailed as failed:
        reply = failed.failure
    except ValueError:
        return  # no body of the format at all
    assert _outcome(codec.parse_reply, body) == reply
    measured = (reply.stop, reply.usage) if isinstance(reply, Reply) else reply
    assert _outcome(codec.read_usage, body) == measured


def _outcome(read: Any, body: Payload) -> Any:
    try:
        return read(body)
    except ReplyFailed as failed:
        return failed.failure


def _decoded_events(format: Format, body: Payload) -> list[Event]:
    decoder = CODECS[format].decoder()
    events: list[Event] = []
    for frame in _FRAMES[format](body):
        events += decoder.decode(b"", frame)
    return [*events, *decoder.done(), *decoder.close()]


def _chat_frames(body: Payload) -> Iterable[Payload]:
    choices = body.get("choices")
    if isinstance(choices, list):
        body = body | {"choices": [_as_delta(choice) for choice in choices]}
    yield body


def _as_delta(choice: Any) -> Any:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return choice
    if isinstance(calls := message.get("tool_calls"), list):
        numbered = [
            call | {"index": number} if isinstance(call, dict) else call
            for number, call in enumerate(calls)
        ]
        message = message | {"tool_calls": numbered}
    return choice | {"delta": message}


def _messages_frames(body: Payload) -> Iterable[Payload]:
    if not isinstance(body.get("content"), list):
        raise ValueError
    yield {"type": "message_start", "message": body}
    for index, block in enumerate(body["content"]):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": body}
    yield {"type": "message_stop"}


def _responses_frames(body: Payload) -> Iterable[Payload]:
    if body.get("error") or not isinstance(body.get("output"), list):
        raise ValueError
    status = _STATUSES.get(str(body.get("status")), "completed")
    yield {"type": f"response.{status}", "response": body}


_FRAMES: dict[Format, Any] = {
    Format.CHAT: _chat_frames,
    Format.MESSAGES: _messages_frames,
    Format.RESPONSES: _responses_frames,
}


def _response(frames: Iterable[Payload]) -> Payload:
    *_, last = frames
    response: Payload = last["response"]
    return response


def _message(frames: Iterable[Payload]) -> Payload:
    """The input of a call can only be read once it is complete."""
    body: Payload = {}
    inputs: dict[int, str] = {}
    for data in frames:
        match data["type"]:
            case "message_start":
                body |= data["message"]
            case "content_block_start":
                body["content"].append(data["content_block"])
            case "content_block_delta":
                _grow(body["content"][data["index"]], inputs, data["index"], data["delta"])
            case "message_delta":
                body |= data["delta"]
                body["usage"] = data["usage"]
            case _:
                pass
    for index, text in inputs.items():
        body["content"][index]["input"] = orjson.loads(text)
    return body


def _grow(block: Payload, inputs: dict[int, str], index: int, delta: Payload) -> None:
    kind = delta["type"]
    if kind == "input_json_delta":
        inputs[index] = inputs.get(index, "") + delta["partial_json"]
    elif kind == "citations_delta":
        block.setdefault("citations", []).append(delta["citation"])
    else:
        block[_LENGTHENED[kind]] += delta[_LENGTHENED[kind]]
