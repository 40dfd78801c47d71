"""Streams for a messages client: the exact frames in the order of the grammar."""

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
from gateway.core.parts import (
    Audio,
    CallKind,
    Citation,
    Image,
    ProviderData,
    Refusal,
    ReplyField,
    ServerToolCall,
    ServerToolResult,
    Source,
    Text,
    Thinking,
    ToolCall,
    UnknownPart,
)
from gateway.errors import ServiceUnavailable
from gateway.wire.codec import ReplyMetadata
from gateway.wire.messages.encode import MessagesEncoder
from gateway.wire.prompt.signatures import unwrap
from tests.wire.stream_cases import frames_of, prompt

METADATA = ReplyMetadata(reply_id="0123", created=1, origin="here", input_tokens=24)
BEGIN = Begin("up_1", "upstream-model")
DONE = End(StopReason.END_TURN, Usage(input_tokens=25, output_tokens=3))


def encoder() -> MessagesEncoder:
    return MessagesEncoder(prompt(Format.MESSAGES, "shown"), METADATA)


def events_of(raw: bytes) -> list[Any]:
    events = []
    for frame in frames_of([raw]):
        data = orjson.loads(frame.data or b"")
        assert data["type"] == frame.name.decode()
        events.append(data)
    return events


def encoded(*events: Event) -> list[Any]:
    """The events of a whole message but for its first and its last two."""
    messages_encoder = encoder()
    frames = events_of(b"".join(map(messages_encoder.encode, (BEGIN, *events, DONE))))
    assert [frames[0]["type"], frames[-1]["type"]] == ["message_start", "message_stop"]
    return frames[1:-2]


def ending(*events: Event) -> Any:
    messages_encoder = encoder()
    return events_of(b"".join(map(messages_encoder.encode, (BEGIN, *events))))[-2]


def start(index: int, block: Any) -> Any:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, field: str, piece: Any) -> Any:
    return {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": kind, field: piece},
    }


def stop(index: int) -> Any:
    return {"type": "content_block_stop", "index": index}


def text(index: int, *pieces: str) -> list[Any]:
    deltas = [delta(index, "text_delta", "text", piece) for piece in pieces]
    return [start(index, {"type": "text", "text": ""}), *deltas, stop(index)]


def call(index: int, id: str, name: str, *pieces: str) -> list[Any]:
    deltas = [delta(index, "input_json_delta", "partial_json", piece) for piece in pieces]
    block = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return [start(index, block), *deltas, stop(index)]


def test_exact_bytes_of_a_text_reply() -> None:
    messages_encoder = encoder()
    assert messages_encoder.encode(BEGIN) == (
        b"event: message_start\n"
        b'data: {"type":"message_start","message":{"id":"msg_0123","type":"message",'
        b'"role":"assistant","model":"shown","content":[],"stop_reason":null,"stop_sequence":null,'
        b'"usage":{"input_tokens":24,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,'
        b'"output_tokens":0,"service_tier":"standard"}}}\n\n'
    )
    assert messages_encoder.encode(Open(0, Text())) == b""
    assert messages_encoder.encode(Delta(0, 'H"i')) == (
        b"event: content_block_start\n"
        b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'
        b"\n\n"
        b"event: content_block_delta\n"
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
        b'"text":"H\\"i"}}\n\n'
    )
    assert (
        messages_encoder.encode(Ping())
        == messages_encoder.ping()
        == b'event: ping\ndata: {"type":"ping"}\n\n'
    )
    assert messages_encoder.encode(Close(0)) == (
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    )
    usage = Usage(input_tokens=25, cache_read_tokens=5, output_tokens=40, reasoning_tokens=7)
    assert messages_encoder.encode(End(StopReason.END_TURN, usage)) == (
        b"event: message_delta\n"
        b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
        b'"usage":{"input_tokens":20,"cache_creation_input_tokens":0,"cache_read_input_tokens":5,'
        b'"output_tokens":40,"output_tokens_details":{"thinking_tokens":7},'
        b'"service_tier":"standard"}}\n\n'
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )
    assert messages_encoder.dropped == set()


def test_upstream_input_tokens_replace_the_estimate() -> None:
    first = Begin("up", "m", usage=Usage(input_tokens=90, cache_write_tokens=60))
    (event,) = events_of(encoder().encode(first))
    assert event["message"]["usage"] == {
        "input_tokens": 30,
        "cache_creation_input_tokens": 60,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 0},
        "service_tier": "standard",
    }


def test_empty_parts_have_no_block() -> None:
    assert encoded(
        *(Open(0, Text()), Close(0), Open(1, Thinking()), Close(1)),
        *(Open(2, Text()), Delta(2, "Hi"), Close(2), Open(3, Thinking(redacted=True)), Close(3)),
    ) == text(0, "Hi")


def test_empty_message_gets_one_empty_text() -> None:
    assert encoded() == text(0)
    assert encoded(Open(0, Text()), Close(0)) == text(0)


@pytest.mark.parametrize("reason", [StopReason.MAX_TOKENS, StopReason.REFUSAL, StopReason.PAUSE])
def test_other_stop_reasons_need_no_content(reason: StopReason) -> None:
    messages_encoder = encoder()
    frames = events_of(messages_encoder.encode(BEGIN) + messages_encoder.encode(End(reason, None)))
    assert [event["type"] for event in frames] == ["message_start", "message_delta", "message_stop"]


def test_initial_content_of_a_part_comes_first() -> None:
    assert encoded(
        *(Open(0, Thinking("Hm", ProviderData(Format.MESSAGES, "sig"))), Close(0)),
        *(Open(1, Text("Hello")), Delta(1, " you"), Close(1)),
        *(Open(2, ToolCall("c1", "f", '{"a":')), Delta(2, "[]}"), Close(2)),
    ) == [
        start(0, {"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, "thinking_delta", "thinking", "Hm"),
        delta(0, "signature_delta", "signature", "sig"),
        stop(0),
        *text(1, "Hello", " you"),
        *call(2, "c1", "f", '{"a":', "[]}"),
    ]


def test_thinking_after_text_and_one_signature() -> None:
    native = [Signature(ProviderData(Format.MESSAGES, value)) for value in ("one", "two")]
    assert encoded(
        *(Open(0, Text()), Delta(0, "Hi"), Close(0)),
        *(Open(1, Thinking()), Delta(1, native[0]), Delta(1, "Hm"), Delta(1, native[1]), Close(1)),
    )[3:] == [
        start(1, {"type": "thinking", "thinking": "", "signature": ""}),
        delta(1, "thinking_delta", "thinking", "Hm"),
        delta(1, "signature_delta", "signature", "two"),
        stop(1),
    ]


@pytest.mark.parametrize(
    "signature",
    [None, ProviderData(Format.RESPONSES, {"id": "rs_1", "encrypted_content": "E"})],
)
def test_foreign_reasoning_gets_a_wrapped_signature(
    signature: ProviderData | None,
) -> None:
    pieces = [] if signature is None else [Delta(0, Signature(signature))]
    frames = encoded(Open(0, Thinking()), Delta(0, "Hm"), *pieces, Close(0))
    assert [event["type"] for event in frames[:2]] == ["content_block_start", "content_block_delta"]
    packed = frames[2]["delta"]["signature"]
    assert unwrap(packed, "Hm") == Thinking("Hm", signature, origin="here")


def test_thinking_without_text_has_its_signature() -> None:
    signed = Delta(0, Signature(ProviderData(Format.MESSAGES, "sig")))
    assert encoded(Open(0, Thinking()), signed, Close(0)) == [
        start(0, {"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, "signature_delta", "signature", "sig"),
        stop(0),
    ]


def test_redacted_thinking() -> None:
    native = Thinking(signature=ProviderData(Format.MESSAGES, "data"), redacted=True)
    assert encoded(Open(0, native), Close(0)) == [
        start(0, {"type": "redacted_thinking", "data": "data"}),
        stop(0),
    ]
    proof = ProviderData(Format.RESPONSES, {"id": "rs_1", "encrypted_content": "E"})
    opened, _ = encoded(Open(0, Thinking(signature=proof, redacted=True)), Close(0))
    data = opened["content_block"]["data"]
    assert unwrap(data, "") == Thinking("", proof, redacted=True, origin="here")


def test_parallel_calls_are_sent_one_after_another() -> None:
    assert encoded(
        *(Open(0, Text()), Delta(0, "Hi"), Close(0)),
        *(Open(1, ToolCall("call_a", "f")), Open(2, ToolCall("call_b", "g"))),
        *(Delta(1, '{"a":'), Delta(2, "{"), Delta(2, "}"), Delta(1, "[]}"), Close(1), Close(2)),
    ) == [
        *text(0, "Hi"),
        *call(1, "call_a", "f", '{"a":', "[]}"),
        *call(2, "call_b", "g", "{}"),
    ]


def test_complete_call_is_closed_when_another_waits() -> None:
    messages_encoder = encoder()
    messages_encoder.encode(BEGIN)
    messages_encoder.encode(Open(0, ToolCall("c1", "f")))
    messages_encoder.encode(Delta(0, "{}"))
    assert events_of(messages_encoder.encode(Open(1, ToolCall("c2", "g")))) == [
        stop(0),
        start(1, {"type": "tool_use", "id": "c2", "name": "g", "input": {}}),
    ]
    assert messages_encoder.encode(Delta(0, " ")) == b""
    assert events_of(messages_encoder.encode(Delta(1, '{"b"'))) == [
        delta(1, "input_json_delta", "partial_json", '{"b"')
    ]
    assert messages_encoder.encode(Close(0)) == b""
    assert events_of(messages_encoder.encode(Delta(1, ":[]}"))) != []
    assert events_of(messages_encoder.encode(Close(1))) == [stop(1)]


def test_calls_closed_out_of_order() -> None:
    frames = encoded(
        *(Open(0, ToolCall("a", "f")), Open(1, ToolCall("b", "g")), Open(2, ToolCall("c", "h"))),
        *(Delta(2, '{"z":[]}'), Close(2), Delta(0, '{"x":'), Close(1), Delta(0, "[]}"), Close(0)),
    )
    assert frames == [
        *call(0, "a", "f", '{"x":', "[]}"),
        *call(1, "b", "g", "{}"),
        *call(2, "c", "h", '{"z":[]}'),
    ]


def test_call_without_arguments_has_empty_input() -> None:
    assert encoded(Open(0, ToolCall("c", "f")), Close(0)) == call(0, "c", "f", "{}")


def test_truncated_call_is_valid_json() -> None:
    assert encoded(Open(0, ToolCall("c", "f")), Delta(0, '{"path":"/tm'), Close(0)) == call(
        0, "c", "f", '{"path":"/tm', '"}'
    )


def test_custom_tool_input_is_wrapped_in_pieces() -> None:
    custom = ToolCall("c", "apply_patch", kind=CallKind.CUSTOM)
    assert encoded(Open(0, custom), Delta(0, 'a "b"'), Delta(0, "\n"), Close(0)) == call(
        0, "c", "apply_patch", '{"input":"', 'a \\"b\\"', "\\n", '"}'
    )


def test_ids_and_names() -> None:
    opened = [
        Open(0, ToolCall("call|1.a", "f")),
        Open(1, ToolCall("", "f")),
        Open(2, ToolCall("x", "f", namespace="shell")),
        Open(3, ToolCall("x", "a name of the client's own")),
    ]
    frames = encoded(*opened, *map(Close, range(4)))
    blocks = [event["content_block"] for event in frames if event["type"] == "content_block_start"]
    assert [(block["id"], block["name"]) for block in blocks] == [
        ("call_1_a_a527e2b1", "f"),
        ("toolu_0123_1", "f"),
        ("x", "shell__f"),
        ("toolu_0123_3", "a name of the client's own"),
    ]


def test_extra_call_fields() -> None:
    caller = ProviderData(Format.MESSAGES, {"caller": {"type": "direct"}})
    opened = encoded(Open(0, ToolCall("c", "f", extra=caller)), Close(0))[0]
    assert opened["content_block"] == {
        "type": "tool_use",
        "id": "c",
        "name": "f",
        "input": {},
        "caller": {"type": "direct"},
    }


def test_native_blocks() -> None:
    result = {"type": "web_fetch_tool_result", "tool_use_id": "srv_1", "content": {}}
    kind = ProviderData(Format.MESSAGES, {"type": "mcp_tool_use", "server_name": "files"})
    native = {"type": "container_upload", "file_id": "file_1"}
    assert encoded(
        *(Open(0, ServerToolCall("srv_1", "web_fetch", extra=kind)), Delta(0, '{"url":"u"}')),
        *(Close(0), Open(1, ServerToolResult("srv_1", "web_fetch", opaque(result))), Close(1)),
        *(Open(2, UnknownPart("container_upload", opaque(native))), Close(2)),
    ) == [
        start(
            0,
            {
                "type": "mcp_tool_use",
                "id": "srv_1",
                "name": "web_fetch",
                "input": {},
                "server_name": "files",
            },
        ),
        delta(0, "input_json_delta", "partial_json", '{"url":"u"}'),
        stop(0),
        *(start(1, result), stop(1)),
        *(start(2, native), stop(2)),
    ]


def opaque(data: Any) -> ProviderData:
    return ProviderData(Format.MESSAGES, data)


def test_foreign_web_search() -> None:
    item = ProviderData(Format.RESPONSES, {"type": "web_search_call"})
    action = '{"type":"search","query":"Oslo","sources":[{"type":"url","url":"https://a.example"}]}'
    cited = Citation(url="https://a.example", title="A", start=0, end=5)
    assert encoded(
        *(Open(0, ServerToolCall("ws-1", "web_search", extra=item)), Delta(0, action), Close(0)),
        *(Open(1, ServerToolResult("ws-1", "web_search", item)), Close(1)),
        *(Open(2, Text()), Delta(2, "About"), Delta(2, " it."), Delta(2, cited), Close(2)),
    ) == [
        start(
            0,
            {
                "type": "server_tool_use",
                "id": "srvtoolu_gw1_ws_1",
                "name": "web_search",
                "input": {},
            },
        ),
        delta(0, "input_json_delta", "partial_json", '{"query":"Oslo"}'),
        stop(0),
        start(
            1,
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_gw1_ws_1",
                "content": [
                    {
                        "type": "web_search_result",
                        "url": "https://a.example",
                        "title": "https://a.example",
                        "encrypted_content": "",
                        "page_age": None,
                    }
                ],
            },
        ),
        stop(1),
        *text(2, "About", " it.")[:-1],
        delta(
            2,
            "citations_delta",
            "citation",
            {
                "type": "web_search_result_location",
                "url": "https://a.example",
                "title": "A",
                "cited_text": "About",
                "encrypted_index": "",
            },
        ),
        stop(2),
    ]


def test_native_citations_are_unchanged() -> None:
    page = {"type": "page_location", "cited_text": "x", "document_index": 0}
    frames = encoded(Open(0, Text()), Delta(0, Citation(extra=opaque(page))), Close(0))
    assert frames[1] == delta(0, "citations_delta", "citation", page)


def test_unsupported_parts_are_reported() -> None:
    foreign = ProviderData(Format.RESPONSES, {"type": "x"})
    opened = '{"type":"open_page","url":"https://a.example"}'
    messages_encoder = encoder()
    frames = b"".join(
        map(
            messages_encoder.encode,
            [
                BEGIN,
                *(Open(0, UnknownPart("image_generation_call", foreign)), Close(0)),
                *(Open(1, ServerToolCall("i", "code_interpreter", extra=foreign)), Delta(1, "{}")),
                *(Close(1), Open(2, ServerToolResult("i", "code_interpreter", foreign)), Close(2)),
                *(Open(3, ServerToolCall("w", "web_search", extra=foreign)), Delta(3, opened)),
                *(Close(3), Open(4, ServerToolResult("w", "web_search", foreign)), Close(4)),
                *(Open(5, Image(Source(url="u"))), Close(5), Open(6, Audio(Source())), Close(6)),
                *(Open(7, Text()), Delta(7, "Hi"), Delta(7, Citation(title="a file")), Close(7)),
                DONE,
            ],
        )
    )
    assert events_of(frames)[1:-2] == text(0, "Hi")
    assert messages_encoder.dropped == {
        "image_generation_call",
        "code_interpreter",
        "web_search",
        "image",
        "audio",
        "citations",
    }


CALL = (Open(0, ToolCall("c", "f")), Close(0))


@pytest.mark.parametrize(
    ("events", "end", "reason", "sequence"),
    [
        ((), End(StopReason.END_TURN, None), "end_turn", None),
        ((), End(StopReason.MAX_TOKENS, None), "max_tokens", None),
        ((), End(StopReason.STOP_SEQUENCE, None, "END"), "stop_sequence", "END"),
        ((), End(StopReason.STOP_SEQUENCE, None), "end_turn", None),
        ((), End(StopReason.TOOL_CALL, None), "end_turn", None),
        ((), End(StopReason.CONTEXT_WINDOW, None), "model_context_window_exceeded", None),
        ((), End(StopReason.PAUSE, None), "pause_turn", None),
        ((), End(StopReason.COMPACTION, None), "compaction", None),
        (CALL, End(StopReason.TOOL_CALL, None), "tool_use", None),
        (CALL, End(StopReason.END_TURN, None), "tool_use", None),
        (CALL, End(StopReason.STOP_SEQUENCE, None, "END"), "tool_use", None),
        (CALL, End(StopReason.MAX_TOKENS, None), "max_tokens", None),
    ],
)
def test_stop_reasons(
    events: tuple[Event, ...], end: End, reason: str, sequence: str | None
) -> None:
    assert ending(*events, end)["delta"] == {"stop_reason": reason, "stop_sequence": sequence}


def test_refusal_is_text_and_stop_reason() -> None:
    events = (Open(0, Refusal()), Delta(0, "I can"), Delta(0, "not."), Close(0))
    assert encoded(*events) == text(0, "I can", "not.")
    for stop in (StopReason.REFUSAL, StopReason.END_TURN):
        assert ending(*events, End(stop, None))["delta"] == {
            "stop_reason": "refusal",
            "stop_sequence": None,
            "stop_details": {"type": "refusal", "category": None, "explanation": "I cannot."},
        }


def test_native_end_fields_are_kept() -> None:
    fields = {"stop_details": {"type": "refusal", "category": "bio"}, "container": {"id": "c"}}
    parts = [ReplyField(name, opaque(value)) for name, value in fields.items()]
    events = [event for at, part in enumerate(parts) for event in (Open(at, part), Close(at))]
    assert ending(*events, End(StopReason.REFUSAL, None))["delta"] == {
        "stop_reason": "refusal",
        "stop_sequence": None,
        **fields,
    }


def test_usage_is_always_present() -> None:
    assert ending(End(StopReason.END_TURN, None))["usage"] == {
        "input_tokens": 24,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
        "service_tier": "standard",
    }


ERROR = {
    "type": "error",
    "error": {"type": "overloaded_error", "message": "Service unavailable"},
}


def test_error_closes_the_open_block() -> None:
    messages_encoder = encoder()
    assert events_of(messages_encoder.encode_error(ServiceUnavailable())) == [ERROR]
    for event in (BEGIN, Open(0, Text())):
        messages_encoder.encode(event)
    assert events_of(messages_encoder.encode_error(ServiceUnavailable())) == [ERROR]
    messages_encoder.encode(Delta(0, "Hi"))
    assert events_of(messages_encoder.encode_error(ServiceUnavailable())) == [stop(0), ERROR]


def test_interrupted_call_is_not_completed() -> None:
    messages_encoder = encoder()
    frames = [
        BEGIN,
        *(Open(0, ToolCall("a", "f")), Delta(0, '{"rm":"-r')),
        *(Open(1, ToolCall("b", "g")), Delta(1, "{}")),
    ]
    raw = b"".join(map(messages_encoder.encode, frames)) + messages_encoder.encode_error(
        ServiceUnavailable()
    )
    assert events_of(raw)[1:] == [*call(0, "a", "f", '{"rm":"-r'), ERROR]
