"""Chat streams for clients: every frame spelled out, and what stock clients make of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Failure,
    FailureKind,
    Open,
    Ping,
    Signature,
    StopReason,
    Usage,
)
from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
    Citation,
    Image,
    Part,
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
from gateway.core.prompt import Prompt, Tool, ToolKind
from gateway.core.reply import Reply, collect_reply, reply_events
from gateway.errors import ServiceUnavailable
from gateway.wire.chat.codec import CODEC
from gateway.wire.codec import Encoder, ReplyMetadata
from gateway.wire.prompt.signatures import wrap
from tests.support.cases import in_one_test
from tests.support.fixture_json import from_json
from tests.support.paths import FIXTURES
from tests.wire.stream_cases import decode, frames_of, stream_files

METADATA = ReplyMetadata(reply_id="01", created=5, origin="here", input_tokens=9)
SIGNED = ProviderData(Format.MESSAGES, "c2ln")
BEGIN = Begin("r", "upstream")
END = End(StopReason.END_TURN, Usage(input_tokens=3, output_tokens=2))
ROLE = {"role": "assistant", "content": ""}


def request(*, include_usage: bool = False, tools: tuple[Tool, ...] = ()) -> Prompt:
    return Prompt(
        format=Format.CHAT, model="beta", turns=(), include_usage=include_usage, tools=tools
    )


def encoder(**options: Any) -> Encoder:
    return CODEC.encoder(request(**options), METADATA)


def encoded(*events: Event, **options: Any) -> bytes:
    chat_encoder = encoder(**options)
    return b"".join(chat_encoder.encode(event) for event in events)


def chunks(raw: bytes) -> list[dict[str, Any]]:
    frames = [frame for frame in frames_of([raw]) if frame.data]
    assert frames[-1].data == b"[DONE]"
    return [orjson.loads(frame.data or b"") for frame in frames[:-1]]


def deltas(*events: Event, stop: StopReason = StopReason.END_TURN, **options: Any) -> list[Any]:
    """The deltas of a stream, and its finish reason."""
    received = chunks(encoded(BEGIN, *events, End(stop, None), **options))
    choices = [chunk["choices"][0] for chunk in received]
    assert choices[0]["delta"] == ROLE
    assert choices[-1]["delta"] == {}
    return [*(choice["delta"] for choice in choices[1:-1]), choices[-1]["finish_reason"]]


def part(index: int, opened: Part, *pieces: str | Signature | Citation) -> Iterator[Event]:
    yield Open(index, opened)
    yield from (Delta(index, piece) for piece in pieces)
    yield Close(index)


def test_exact_bytes_of_a_text_reply() -> None:
    head = b'data: {"id":"chatcmpl-01","object":"chat.completion.chunk","created":5,"model":"beta",'
    chunk = head + b'"choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]%b}\n\n'
    events = [BEGIN, *part(0, Text(), "Hel", '"lo"'), END]
    assert encoded(*events) == b"".join(
        [
            chunk % (b'{"role":"assistant","content":""}', b"null", b""),
            chunk % (b'{"content":"Hel"}', b"null", b""),
            chunk % (b'{"content":"\\"lo\\""}', b"null", b""),
            chunk % (b"{}", b'"stop"', b""),
            b"data: [DONE]\n\n",
        ]
    )
    counts = (
        b'{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":'
        b'{"cached_tokens":0,"cache_write_tokens":0,"audio_tokens":0},"completion_tokens_details":'
        b'{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,'
        b'"rejected_prediction_tokens":0}}'
    )
    assert encoded(*events, include_usage=True) == b"".join(
        [
            chunk % (b'{"role":"assistant","content":""}', b"null", b',"usage":null'),
            chunk % (b'{"content":"Hel"}', b"null", b',"usage":null'),
            chunk % (b'{"content":"\\"lo\\""}', b"null", b',"usage":null'),
            chunk % (b"{}", b'"stop"', b',"usage":null'),
            head + b'"choices":[],"usage":' + counts + b"}\n\n",
            b"data: [DONE]\n\n",
        ]
    )


def test_missing_usage_is_the_prompt_estimate() -> None:
    received = chunks(encoded(BEGIN, End(StopReason.END_TURN, None), include_usage=True))
    assert received[-1]["usage"]["prompt_tokens"] == received[-1]["usage"]["total_tokens"] == 9


def test_thinking_text_and_two_calls() -> None:
    received = deltas(
        *part(0, Thinking(), "hm", Signature(SIGNED)),
        *part(1, Text(), "Hi"),
        *part(2, ToolCall("toolu_1", "f"), '{"a":', "1}"),
        *part(3, ToolCall("toolu_2", "g")),
        stop=StopReason.TOOL_CALL,
    )

    def start(index: int, id: str, name: str) -> dict[str, Any]:
        function = {"name": name, "arguments": ""}
        return {
            "tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]
        }

    def piece(index: int, text: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}

    detail = {"type": "reasoning.text", "index": 0, "signature": wrap(SIGNED, "here")}
    assert received == [
        {"reasoning_content": "hm"},
        {"content": "Hi"},
        start(0, "toolu_1", "f"),
        piece(0, '{"a":'),
        piece(0, "1}"),
        start(1, "toolu_2", "g"),
        piece(1, "{}"),
        {"reasoning_details": [detail]},
        "tool_calls",
    ]


def test_parallel_calls() -> None:
    received = deltas(
        Open(0, ToolCall("a", "f")),
        Open(1, ToolCall("b", "g")),
        Delta(0, "1"),
        Delta(1, "2"),
        Delta(0, "3"),
        Close(1),
        Close(0),
    )
    pieces = [
        (call["index"], call["function"]["arguments"])
        for delta in received[:-1]
        for call in delta["tool_calls"]
    ]
    assert pieces == [(0, ""), (1, ""), (0, "1"), (1, "2"), (0, "3")]
    assert received[-1] == "tool_calls"


def test_custom_call() -> None:
    call = ToolCall("c", "patch", kind=CallKind.CUSTOM)
    assert deltas(*part(0, call, "*** ", "End")) == [
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "c",
                    "type": "custom",
                    "custom": {"name": "patch", "input": ""},
                }
            ]
        },
        {"tool_calls": [{"index": 0, "custom": {"input": "*** "}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "End"}}]},
        "tool_calls",
    ]
    assert len(deltas(*part(0, call))) == 2


def test_legacy_functions_client_gets_one_function_call() -> None:
    definition = ProviderData(Format.CHAT, {"name": "f"})
    tools = (Tool(kind=ToolKind.FUNCTION, name="f", definition=definition),)
    chat_encoder = encoder(tools=tools)
    events = [
        BEGIN,
        *part(0, ToolCall("a", "f"), "{", "}"),
        *part(1, ToolCall("b", "f"), "{}"),
        End(StopReason.TOOL_CALL, None),
    ]
    received = chunks(b"".join(chat_encoder.encode(event) for event in events))
    assert [chunk["choices"][0]["delta"] for chunk in received[1:-1]] == [
        {"function_call": {"name": "f", "arguments": ""}},
        {"function_call": {"arguments": "{"}},
        {"function_call": {"arguments": "}"}},
    ]
    assert received[-1]["choices"][0]["finish_reason"] == "function_call"
    assert chat_encoder.dropped == {"tool_calls"}


@pytest.mark.parametrize(
    ("ids", "given"),
    [
        (["call_1", "call_1"], ["call_1", "call_01_1"]),
        (["", ""], ["call_01_0", "call_01_1"]),
        (["a.b"], ["a_b_2e7336dc"]),
    ],
)
def test_ids_are_legal_and_unique(ids: list[str], given: list[str]) -> None:
    received = deltas(*(e for i, id in enumerate(ids) for e in part(i, ToolCall(id, "f"), "{}")))
    starts = [call for delta in received[:-1] for call in delta["tool_calls"] if "id" in call]
    assert [call["id"] for call in starts] == given


def test_reasoning_parts_are_separated_and_each_is_signed() -> None:
    received = deltas(
        *part(0, Thinking(), "One.", Signature(SIGNED)),
        *part(1, Thinking(), Signature(SIGNED)),
        *part(2, Thinking(signature=SIGNED, redacted=True)),
        *part(3, Text(), "So."),
        *part(4, Thinking(), "Two", ".", Signature(SIGNED)),
    )
    texts = [delta["reasoning_content"] for delta in received[:-1] if "reasoning_content" in delta]
    assert texts == ["One.", "\n\n", "Two", "."]
    packed, redacted = wrap(SIGNED, "here"), wrap(SIGNED, "here", redacted=True)
    assert received[-2]["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "One.", "signature": packed},
        {"type": "reasoning.encrypted", "index": 1, "data": packed},
        {"type": "reasoning.encrypted", "index": 2, "data": redacted},
        {"type": "reasoning.text", "index": 3, "text": "Two.", "signature": packed},
    ]


def test_citation_offsets_span_the_whole_content() -> None:
    chat_encoder = encoder()
    citation = Citation(url="https://a", title="A", start=1, end=3)
    events = [
        BEGIN,
        *part(0, Text(), "One. ", citation),
        *part(1, Text(), "Two.", Citation(url="https://b"), Citation(title="page 5")),
        *part(2, Text(citations=(Citation(url="https://c", start=9, end=99),)), "xyz"),
        END,
    ]
    received = chunks(b"".join(chat_encoder.encode(event) for event in events))

    def annotation(index: int, start: int, end: int, title: str, url: str) -> dict[str, Any]:
        cited = {"start_index": start, "end_index": end, "title": title, "url": url}
        return {"type": "url_citation", "url_citation": cited, "index": index}

    assert received[-2]["choices"][0]["delta"] == {
        "annotations": [
            annotation(0, 1, 3, "A", "https://a"),
            annotation(1, 5, 9, "", "https://b"),
            annotation(2, 12, 12, "", "https://c"),
        ]
    }
    assert chat_encoder.dropped == {"citations"}


def test_unsupported_parts_are_reported() -> None:
    chat_encoder = encoder()
    parts: list[Part] = [
        ServerToolCall("s", "web_search"),
        ServerToolResult("s", "web_search", ProviderData(Format.MESSAGES, {})),
        UnknownPart("container_upload", ProviderData(Format.MESSAGES, {})),
        Image(Source(url="https://a")),
    ]
    events: list[Event] = [BEGIN]
    for index, part_ in enumerate(parts):
        pieces = ('{"query":"x"}',) if isinstance(part_, ServerToolCall) else ()
        events += part(index, part_, *pieces)
    received = chunks(b"".join(chat_encoder.encode(event) for event in [*events, END]))
    assert [chunk["choices"][0]["delta"] for chunk in received] == [ROLE, {}]
    assert chat_encoder.dropped == {"web_search", "container_upload", "image"}


@pytest.mark.parametrize(
    ("opened", "stop", "finish"),
    [
        (Text("x"), StopReason.END_TURN, "stop"),
        (Text("x"), StopReason.STOP_SEQUENCE, "stop"),
        (Text("x"), StopReason.TOOL_CALL, "stop"),
        (Text("x"), StopReason.PAUSE, "length"),
        (Text("x"), StopReason.COMPACTION, "length"),
        (Text("x"), StopReason.INTERRUPTED, "length"),
        (Text("x"), StopReason.MAX_TOKENS, "length"),
        (Text("x"), StopReason.CONTEXT_WINDOW, "length"),
        (Text("x"), StopReason.REFUSAL, "content_filter"),
        (Refusal("x"), StopReason.REFUSAL, "stop"),
        (Refusal(), StopReason.REFUSAL, "content_filter"),
        (Refusal("x"), StopReason.MAX_TOKENS, "length"),
        (ToolCall("c", "f", "{}"), StopReason.END_TURN, "tool_calls"),
        (ToolCall("c", "f", "{}"), StopReason.TOOL_CALL, "tool_calls"),
        (ToolCall("c", "f", "{"), StopReason.MAX_TOKENS, "length"),
        (ToolCall("c", "f", "{}"), StopReason.INTERRUPTED, "length"),
        (ToolCall("c", "f", "{}"), StopReason.REFUSAL, "content_filter"),
    ],
)
def test_finish_reasons_streamed_and_whole(opened: Part, stop: StopReason, finish: str) -> None:
    assert deltas(*part(0, opened), stop=stop)[-1] == finish
    reply = Reply(id="r", model="m", parts=(opened,), stop=stop, usage=None)
    body, _ = CODEC.render_reply(reply, request(), METADATA)
    assert body["choices"][0]["finish_reason"] == finish


def test_refusal() -> None:
    assert deltas(*part(0, Refusal(), "I ", "won't"), stop=StopReason.REFUSAL) == [
        {"refusal": "I "},
        {"refusal": "won't"},
        "stop",
    ]


def test_pings_are_chunks_without_content() -> None:
    chat_encoder = encoder()
    assert chat_encoder.ping() == chat_encoder.encode(Ping())
    assert b'"delta":{},"logprobs":null,"finish_reason":null}]' in chat_encoder.ping()


def test_error_ends_the_stream_without_done() -> None:
    received = (
        b'data: {"error":{"message":"no","type":"server_error","param":null,'
        b'"code":"server_is_overloaded"}}\n\n'
    )
    assert encoder().encode_error(ServiceUnavailable("no")) == received
    chat_encoder = encoder()
    failure = Fail(Failure(kind=FailureKind.TRUNCATED, message="cut"))
    for event in (BEGIN, Open(0, ToolCall("c", "f")), failure):
        out = chat_encoder.encode(event)
    assert out == b""
    assert chat_encoder.encode_error(ServiceUnavailable("no")) == received


def hinges() -> list[Path]:
    return sorted((FIXTURES / "streams").glob("*/events.json"))


@in_one_test("path", hinges(), ids=lambda path: path.parent.name)
def test_client_libraries_accumulate_the_complete_reply(path: Path) -> None:
    events = from_json(orjson.loads(path.read_bytes()))
    custom = any(isinstance(e, Open) and getattr(e.part, "kind", "") == "custom" for e in events)
    if isinstance(events[-1], Fail) or custom:
        return  # the helper knows no custom calls at all
    prompt = request(include_usage=True)
    body, _ = CODEC.render_reply(collect_reply(events), prompt, METADATA)
    raw = encoded(*events, include_usage=True)
    state = ChatCompletionStreamState()
    for chunk in chunks(raw):
        list(state.handle_chunk(ChatCompletionChunk.model_validate(chunk)))
    added = state.current_completion_snapshot.model_dump(exclude_none=True)
    (choice,) = added["choices"]
    (complete,) = orjson.loads(orjson.dumps(body))["choices"]
    message, expected = choice["message"], complete["message"]
    assert choice["finish_reason"] == complete["finish_reason"]
    assert added["usage"] == body["usage"]
    assert (added["id"], added["model"], added["created"]) == ("chatcmpl-01", "beta", 5)
    assert (message.get("content") or None) == (expected["content"] or None)
    assert message.get("refusal") == expected["refusal"]
    assert message.get("reasoning_content") == expected.get("reasoning_content")
    assert message.get("reasoning_details") == expected.get("reasoning_details")
    assert [
        {name: value for name, value in annotation.items() if name != "index"}
        for annotation in message.get("annotations") or []
    ] == expected["annotations"]
    assert [
        (call["id"], call["type"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or []
    ] == [
        (call["id"], call["type"], call["function"]["name"], call["function"]["arguments"])
        for call in expected.get("tool_calls") or []
    ]


def without_names(reply: Reply) -> tuple[Any, ...]:
    return reply.parts, reply.stop, reply.usage


@in_one_test("path", stream_files(Format.CHAT), ids=lambda path: path.parent.name)
def test_chat_reply_round_trip(path: Path) -> None:
    """Through the hub and back nothing is lost of what the format says itself."""
    events = decode(CODEC.decoder(), path.read_bytes())
    if isinstance(events[-1], Fail):
        return
    again = decode(CODEC.decoder(), encoded(*events, include_usage=True))
    before, after = collect_reply(events), collect_reply(again)
    assert comparable_parts(before) == comparable_parts(after)
    assert (before.stop, before.usage or Usage(input_tokens=9)) == (after.stop, after.usage)


def comparable_parts(reply: Reply) -> list[Any]:
    """What the parts say: thoughts as one text, calls without ids, which may be new."""
    thoughts = [part_.text.strip() for part_ in reply.parts if isinstance(part_, Thinking)]
    return [
        *filter(None, thoughts),
        *(
            (part_.name, part_.kind, part_.arguments or ("" if part_.kind == "custom" else "{}"))
            if isinstance(part_, ToolCall)
            else part_
            for part_ in reply.parts
            if not isinstance(part_, Thinking | ReplyField)
        ),
    ]


def test_streamed_and_complete_replies_match() -> None:
    reply = Reply(
        id="r",
        model="m",
        parts=(
            Thinking("hm"),
            Text("Hi", citations=(Citation(url="https://a", title="A", start=0, end=2),)),
            Refusal("no"),
            ToolCall(
                "c", "f", '{"a":1}', extra=ProviderData(Format.CHAT, {"extra_vendor": {"x": 1}})
            ),
            ToolCall("d", "g", "text", CallKind.CUSTOM),
        ),
        stop=StopReason.TOOL_CALL,
        usage=Usage(input_tokens=3, output_tokens=2),
    )
    body, dropped = CODEC.render_reply(reply, request(), METADATA)
    assert dropped == set()
    complete = CODEC.parse_reply(orjson.loads(orjson.dumps(body)))
    assert without_names(complete) == without_names(reply)
    streamed = collect_reply(
        decode(CODEC.decoder(), encoded(*reply_events(reply), include_usage=True))
    )
    (text,) = [part_ for part_ in streamed.parts if isinstance(part_, Text)]
    assert text == Text("Hi")  # annotations come last, when the text is long closed
    (late,) = [part_ for part_ in streamed.parts if isinstance(part_, UnknownPart)]
    assert late.kind == "annotations"
    assert [part_ for part_ in streamed.parts if part_ not in (text, late)] == [
        part_ for part_ in reply.parts if not isinstance(part_, Text)
    ]
