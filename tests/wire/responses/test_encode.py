"""Streams for a responses client: the exact frames, and how they end."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
    Open,
    Ping,
    Signature,
    StopReason,
    Usage,
)
from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Refusal, Text, Thinking, ToolCall
from gateway.errors import InternalError, TooManyRequests
from gateway.wire.codec import ReplyMetadata
from gateway.wire.prompt.signatures import wrap
from gateway.wire.responses import CODEC
from gateway.wire.responses.decode import ResponsesDecoder
from gateway.wire.responses.encode import ResponsesEncoder
from tests.support.fixture_json import to_json
from tests.support.formats import responses as strict
from tests.wire.responses.encoding import (
    USAGE,
    encode_events,
    event_data,
    message,
    new_encoder,
    parts_of,
    text_part,
)
from tests.wire.stream_cases import decode, frames_of

RESPONSE = {
    "id": "resp_a1",
    "object": "response",
    "created_at": 1_700_000_000,
    "status": "in_progress",
    "model": "shown",
    "output": [],
    "error": None,
    "incomplete_details": None,
    "background": False,
    "completed_at": None,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "usage": None,
}


def test_complete_stream() -> None:
    """Reasoning, text and two calls of another format, one without arguments."""
    signature = ProviderData(Format.MESSAGES, "c2ln")
    encrypted = wrap(signature, "here")
    raw, _ = encode_events(
        parts_of(
            (Thinking(), "h", "m", Signature(signature)),
            (Text(), "Hi"),
            (ToolCall("toolu_1", "f"), '{"a":', "1}"),
            (ToolCall("toolu_2", "g"),),
        ),
        StopReason.TOOL_CALL,
    )
    summary = {"type": "summary_text", "text": "hm"}
    thinking = {
        "id": "rs_gw_a1_0",
        "type": "reasoning",
        "status": "in_progress",
        "summary": [],
    }
    message_item = message(id="msg_gw_a1_1")
    first = {
        "id": "fc_gw_a1_2",
        "type": "function_call",
        "status": "in_progress",
        "call_id": "toolu_1",
        "name": "f",
        "arguments": "",
    }
    second = first | {"id": "fc_gw_a1_4", "call_id": "toolu_2", "name": "g"}
    done = [
        thinking | {"status": "completed", "summary": [summary], "encrypted_content": encrypted},
        message_item | {"content": [text_part("Hi")]},
        first | {"status": "completed", "arguments": '{"a":1}'},
        second | {"status": "completed", "arguments": "{}"},
    ]
    of = [{"item_id": item["id"], "output_index": index} for index, item in enumerate(done)]
    in_summary, in_content = of[0] | {"summary_index": 0}, of[1] | {"content_index": 0}
    empty = {"type": "summary_text", "text": ""}

    def added(index: int, item: Any) -> dict[str, Any]:
        return {"type": "output_item.added", "output_index": index, "item": item}

    def finished(index: int) -> dict[str, Any]:
        return {"type": "output_item.done", "output_index": index, "item": done[index]}

    assert event_data(raw) == [
        {"type": "created", "response": RESPONSE},
        {"type": "in_progress", "response": RESPONSE},
        added(0, thinking),
        in_summary | {"type": "reasoning_summary_part.added", "part": empty},
        in_summary | {"type": "reasoning_summary_text.delta", "delta": "h"},
        in_summary | {"type": "reasoning_summary_text.delta", "delta": "m"},
        in_summary | {"type": "reasoning_summary_text.done", "text": "hm"},
        in_summary | {"type": "reasoning_summary_part.done", "part": summary},
        finished(0),
        added(1, message_item | {"status": "in_progress"}),
        in_content | {"type": "content_part.added", "part": text_part("")},
        in_content | {"type": "output_text.delta", "delta": "Hi", "logprobs": []},
        in_content | {"type": "output_text.done", "text": "Hi", "logprobs": []},
        in_content | {"type": "content_part.done", "part": text_part("Hi")},
        finished(1),
        added(2, first),
        of[2] | {"type": "function_call_arguments.delta", "delta": '{"a":'},
        of[2] | {"type": "function_call_arguments.delta", "delta": "1}"},
        of[2] | {"type": "function_call_arguments.done", "arguments": '{"a":1}', "name": "f"},
        finished(2),
        added(3, second),
        of[3] | {"type": "function_call_arguments.delta", "delta": "{}"},
        of[3] | {"type": "function_call_arguments.done", "arguments": "{}", "name": "g"},
        finished(3),
        {
            "type": "completed",
            "response": RESPONSE
            | {
                "status": "completed",
                "completed_at": 1_700_000_000,
                "output": done,
                "usage": {
                    "input_tokens": 25,
                    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                    "output_tokens": 40,
                    "output_tokens_details": {"reasoning_tokens": 7},
                    "total_tokens": 65,
                },
            },
        },
    ]


def test_sequence_numbers_have_no_gaps() -> None:
    raw, _ = encode_events(parts_of((Text(), *"abc"), (Refusal(), "d")))
    numbers = [orjson.loads(frame.data or b"")["sequence_number"] for frame in frames_of([raw])]
    assert numbers == list(range(len(numbers)))


def test_bytes_of_a_delta() -> None:
    encoder = new_encoder()
    for event in parts_of((Text(),))[:2]:
        encoder.encode(event)
    assert encoder.encode(Delta(0, 'é"')) == (
        b"event: response.output_text.delta\n"
        b'data: {"type":"response.output_text.delta","sequence_number":4,'
        b'"item_id":"msg_gw_a1_0","output_index":0,"content_index":0,'
        b'"delta":"\xc3\xa9\\"","logprobs":[]}\n\n'
    )


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        (StopReason.END_TURN, None),
        (StopReason.STOP_SEQUENCE, None),
        (StopReason.TOOL_CALL, None),
        (StopReason.PAUSE, "max_output_tokens"),
        (StopReason.COMPACTION, None),
        (StopReason.INTERRUPTED, "max_output_tokens"),
        (StopReason.MAX_TOKENS, "max_output_tokens"),
        (StopReason.CONTEXT_WINDOW, "max_output_tokens"),
        (StopReason.REFUSAL, "content_filter"),
    ],
)
def test_stop_reasons(stop: StopReason, reason: str | None) -> None:
    raw, encoder = encode_events(parts_of((Text(), "A")), stop)
    status = "incomplete" if reason else "completed"
    assert event_data(raw)[-1]["type"] == status
    assert encoder.response["status"] == status
    assert encoder.response["incomplete_details"] == (reason and {"reason": reason})
    assert encoder.response["output"][0]["status"] == status


def test_refusal_is_completed() -> None:
    _, encoder = encode_events(parts_of((Refusal(), "No.")), StopReason.REFUSAL)
    assert encoder.response["status"] == "completed"


def test_truncated_reply_is_incomplete() -> None:
    calls: list[Event] = [
        Begin("", ""),
        *(Open(index, ToolCall(f"c{index}", "f")) for index in range(3)),
        Delta(0, "{}"),
        Delta(1, '{"a'),
        Delta(2, "{}"),
        *(Close(index) for index in range(3)),
    ]
    _, encoder = encode_events(calls, StopReason.MAX_TOKENS)
    statuses = [item["status"] for item in encoder.response["output"]]
    assert statuses == ["completed", "incomplete", "incomplete"]


def test_empty_reply() -> None:
    raw, encoder = encode_events([Begin("", "")])
    assert [event["type"] for event in event_data(raw)] == ["created", "in_progress", "completed"]
    assert encoder.response["output"] == []


def test_usage() -> None:
    encoder = new_encoder()
    encoder.encode(Begin("", ""))
    full = Usage(
        input_tokens=9,
        cache_read_tokens=5,
        cache_write_tokens=3,
        output_tokens=4,
        reasoning_tokens=1,
        web_searches=2,
    )
    raw = encoder.encode(End(StopReason.END_TURN, full))
    response = event_data(raw)[0]["response"]
    assert response["usage"]["input_tokens_details"] == {
        "cached_tokens": 5,
        "cache_write_tokens": 3,
    }
    assert response["tool_usage"]["web_search"] == {"num_requests": 2}
    encoder = new_encoder()
    encoder.encode(Begin("", ""))
    raw = encoder.encode(End(StopReason.END_TURN, None))
    assert event_data(raw)[0]["response"]["usage"] is None


def test_native_service_tier() -> None:
    encoder = new_encoder()
    encoder.encode(Begin("", ""))
    encoder.encode(End(StopReason.END_TURN, USAGE, service_tier="priority"))
    assert encoder.response["service_tier"] == "priority"


def test_error_closes_open_items() -> None:
    encoder = new_encoder()
    events = parts_of((Text(), "A"), (ToolCall("c1", "f"), '{"a'))[:-1]
    raw = b"".join([*map(encoder.encode, events), encoder.encode_error(TooManyRequests())])
    strict.check(raw, errored=True)
    failed = event_data(raw)[-1]
    assert failed["type"] == "failed"
    response = failed["response"]
    assert response["error"] == {"code": "rate_limit_exceeded", "message": "Too Many Requests"}
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    assert response["output"][1]["arguments"] == '{"a'
    assert encoder.encode_error(TooManyRequests()) == b""


def test_error_before_any_event() -> None:
    raw = new_encoder().encode_error(InternalError())
    strict.check(raw, errored=True)
    assert event_data(raw) == [
        {
            "type": "error",
            "code": "server_error",
            "message": "Internal server error",
            "param": None,
        }
    ]


def test_pings() -> None:
    encoder = new_encoder()
    assert encoder.ping() == b": keepalive\n\n"
    events = parts_of((Text(), "A"))
    raw = b"".join(map(encoder.encode, events[:3]))
    raw += encoder.ping() + encoder.encode(Ping())
    raw += encoder.encode(Close(0)) + encoder.encode(End(StopReason.END_TURN, USAGE))
    strict.check(raw)
    again = decode(ResponsesDecoder(), raw)
    assert [event for event in again if isinstance(event, Ping)] == [Ping(), Ping()]
    assert to_json([event for event in again[1:] if not isinstance(event, Ping)]) == to_json(
        [*events[1:], End(StopReason.END_TURN, USAGE, service_tier="default")]
    )


def test_large_settings_are_not_repeated() -> None:
    """Each is in three events of a stream."""
    tool = {"type": "function", "name": "f", "description": "d" * 2**20, "strict": True}
    tool["parameters"] = {}
    body = {
        "model": "m",
        "input": "x",
        "instructions": "i",
        "tools": [tool],
        "metadata": {"a": "b"},
    }
    prompt = CODEC.parse_prompt(body)
    for size, tools in ((2**20, [tool]), (2**20 + 1, [])):
        metadata = ReplyMetadata(reply_id="r", created=1, request_size=size)
        response = ResponsesEncoder(prompt, metadata).response
        assert (response["tools"], response["metadata"]) == (tools, {"a": "b"})
