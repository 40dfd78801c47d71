"""Translated streams: which bytes are sent when, and the state at the end."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import Delta, End, Event, Fail, FailureKind, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import CallKind, Text, Thinking, ToolCall
from gateway.core.prompt import Prompt, Tool, ToolKind
from gateway.core.reply import Reply, collect_reply
from gateway.core.value import replace
from gateway.errors import ServiceUnavailable
from gateway.wire.codec import Encoder, Rendering, ReplyMetadata
from gateway.wire.registry import CODECS
from gateway.wire.stream.emulation import event_transformer
from gateway.wire.stream.event_builder import encode_reply, with_estimated_usage
from gateway.wire.stream.sse import MAX_FRAME, MAX_LINES, write_frame
from gateway.wire.stream.translator import CrossFormatTranslator
from tests.support.cases import in_one_test
from tests.wire.stream_cases import STREAMS, decode, decode_frames, frames_of, param_id

STAMP = ReplyMetadata(reply_id="01", created=1, origin="here", input_tokens=7)
CLIENTS = pytest.mark.parametrize("to", list(Format), ids=param_id)


def prompt(format: Format, *tools: Tool) -> Prompt:
    return Prompt(
        format=format, model="shown", turns=(), stream=True, include_usage=True, tools=tools
    )


def encoder(to: Format, *tools: Tool) -> Encoder:
    return CODECS[to].encoder(prompt(to, *tools), STAMP)


def translator(
    to: Format = Format.MESSAGES, *tools: Tool, source: Format = Format.CHAT, **emulated: Any
) -> CrossFormatTranslator:
    return CrossFormatTranslator(
        CODECS[source].decoder(),
        encoder(to, *tools),
        event_transformer(prompt(to, *tools), Rendering(body={}, **emulated)),
        input_tokens=STAMP.input_tokens,
    )


def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return write_frame(b"", orjson.dumps({"id": "r", "model": "up", "choices": [choice]}))


def text_chunk(text: str) -> bytes:
    return chunk({"content": text})


ROLE = chunk({"role": "assistant", "content": ""})
STOP = chunk({}, "stop")
USAGE = write_frame(b"", b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}')
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"too much","code":"rate_limit_exceeded"}}\n\n'


def names(raw: bytes) -> list[str]:
    """The events of a messages stream."""
    return [frame.name.decode() for frame in frames_of([raw])]


def final(raw: bytes, to: Format = Format.MESSAGES) -> Reply:
    return collect_reply(decode(CODECS[to].decoder(), raw))


def test_replies_are_sent_as_they_arrive() -> None:
    stream = translator()
    assert stream.receive(ROLE) == b""
    assert not stream.started
    opening = stream.receive(text_chunk("Hi"))
    assert names(opening) == ["message_start", "content_block_start", "content_block_delta"]
    assert stream.started
    assert (
        names(stream.receive(text_chunk(" you") + text_chunk("!"))) == ["content_block_delta"] * 2
    )
    assert stream.receive(STOP + USAGE) == b""
    assert names(stream.receive(DONE)) == ["content_block_stop", "message_delta", "message_stop"]
    assert stream.end is not None
    assert stream.end.stop is StopReason.END_TURN
    assert stream.usage == Usage(input_tokens=3, output_tokens=2)
    assert (stream.failure, stream.decode_error, stream.dropped) == (None, None, frozenset())
    assert stream.receive(text_chunk("more")) == stream.close() == b""
    assert stream.abort(ServiceUnavailable()) == b""


def test_only_complete_frames_are_translated() -> None:
    stream = translator()
    whole = ROLE + text_chunk("Hi") + text_chunk(" you")
    assert names(stream.receive(whole[:-9])) == [
        "message_start",
        "content_block_start",
        "content_block_delta",
    ]
    assert stream.receive(whole[-9:-1]) == b""
    assert names(stream.receive(whole[-1:])) == ["content_block_delta"]


def test_tool_calls_and_thinking_text_start_the_reply() -> None:
    call = chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]})
    assert names(translator().receive(call)) == ["message_start", "content_block_start"]
    thinking = chunk({"reasoning_content": "hm"})
    assert names(translator().receive(thinking))[-1] == "content_block_delta"
    signed = b'{"type":"content_block_start","content_block":{"type":"thinking","thinking":""}}'
    stream = translator(Format.MESSAGES, source=Format.MESSAGES)
    assert stream.receive(write_frame(b"content_block_start", signed)) == b""
    assert not stream.started


@CLIENTS
def test_empty_replies_are_sent_at_their_end(to: Format) -> None:
    stream = translator(to)
    assert stream.receive(ROLE + STOP) == b""
    raw = stream.receive(USAGE + DONE)
    assert final(raw, to).stop is StopReason.END_TURN
    assert final(raw, to).usage == stream.usage == Usage(input_tokens=3, output_tokens=2)


@CLIENTS
def test_missing_terminator_after_the_stop_reason(to: Format) -> None:
    stream = translator(to)
    raw = stream.receive(text_chunk("Hi") + STOP + USAGE)
    raw += stream.close()
    assert stream.end is not None
    assert final(raw, to).parts[0] == Text("Hi") or to is Format.RESPONSES
    assert stream.failure is None


def test_what_cannot_be_written_is_not_unreadable() -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    echoing = replace(prompt(Format.RESPONSES), metadata=deep)
    stream = CrossFormatTranslator(
        CODECS[Format.CHAT].decoder(), CODECS[Format.RESPONSES].encoder(echoing, STAMP)
    )
    assert stream.receive(text_chunk("Hello")) == b""
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.UNWRITABLE
    assert stream.decode_error is None


def test_last_frame_without_blank_line() -> None:
    stream = translator()
    raw = stream.receive(text_chunk("Hi") + STOP.rstrip(b"\n")) + stream.close()
    assert final(raw).stop is StopReason.END_TURN


@CLIENTS
@pytest.mark.parametrize("whole", [True, False])
def test_truncated_streams_fail(to: Format, whole: bool) -> None:
    stream = translator(to)
    raw = stream.receive(ROLE + text_chunk("Hi") + text_chunk(" you")[: None if whole else -9])
    assert stream.close() == b""
    assert stream.failure is not None
    assert (stream.failure.kind, stream.end) == (FailureKind.TRUNCATED, None)
    raw += stream.abort(ServiceUnavailable())
    events = decode(CODECS[to].decoder(), raw)
    assert isinstance(events[-1], Fail)
    assert stream.receive(text_chunk("more")) == b""


def test_no_frames_are_an_empty_reply() -> None:
    stream = translator()
    assert stream.receive(b": hello\n\n") + stream.close() == b""
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.EMPTY


def test_errors_before_the_first_event_are_not_sent() -> None:
    stream = translator()
    assert stream.receive(ROLE + ERROR + text_chunk("Hi")) == b""
    assert stream.receive(text_chunk("Hi")) == stream.close() == b""
    assert not stream.started
    assert stream.failure is not None
    assert (stream.failure.kind, stream.failure.status) == (FailureKind.RESPONSE, 429)


def test_abort_sends_held_frames_first() -> None:
    stream = translator()
    stream.receive(ROLE + ERROR)
    assert names(stream.abort(ServiceUnavailable())) == ["message_start", "error"]
    assert names(translator().abort(ServiceUnavailable())) == ["error"]


@CLIENTS
@pytest.mark.parametrize("cut", [True, False])
def test_errors_close_open_parts(to: Format, cut: bool) -> None:
    stream = translator(to)
    chunks = [ROLE, text_chunk("Hi"), ERROR, text_chunk("more"), DONE]
    raw = b"".join(map(stream.receive, chunks if cut else [b"".join(chunks)]))
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.RESPONSE
    assert not isinstance(decode(CODECS[to].decoder(), raw)[-1], End)
    raw += stream.abort(ServiceUnavailable())
    events = decode(CODECS[to].decoder(), raw)
    assert [type(event) for event in events].count(Fail) == 1
    assert b"more" not in raw


@pytest.mark.parametrize(
    "garbage", [b"data: {nonsense}\n\n", b'data: "\xff"\n\n', b"data: ping\n\n"]
)
def test_unreadable_frames_end_the_reply(garbage: bytes) -> None:
    stream = translator()
    assert names(stream.receive(ROLE + text_chunk("Hi") + garbage + text_chunk("more")))[-1] == (
        "content_block_delta"
    )
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.MALFORMED
    assert stream.decode_error is not None
    assert stream.end is None
    assert stream.close() == b""
    assert names(stream.abort(ServiceUnavailable())) == ["content_block_stop", "error"]


@pytest.mark.parametrize("nothing", [b"[1]", b"7", b"null", b'"ping"'])
def test_json_without_an_object_is_ignored(nothing: bytes) -> None:
    stream = translator()
    frames = (
        ROLE
        + text_chunk("Hi")
        + b"data: %b\n\n" % nothing
        + text_chunk("more")
        + STOP
        + USAGE
        + DONE
    )
    assert names(stream.receive(frames))[-1] == "message_stop"
    assert (stream.failure, stream.decode_error) == (None, None)


def test_too_large_frames_end_the_reply() -> None:
    stream = translator()
    stream.receive(text_chunk("Hi"))
    assert stream.receive(b"data: " + b"x" * MAX_FRAME) == b""
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.EVENT_TOO_LARGE


def test_frames_of_too_many_lines_end_the_reply() -> None:
    for end in (b"\n", b"\r", b"\r\n"):
        stream = translator()
        assert stream.receive(text_chunk("x"))
        lines = b"data: {}" + end
        assert stream.receive(lines * (MAX_LINES + 2) + end + b"data: {}\n\n") == b""
        assert stream.failure is not None
        assert stream.failure.kind is FailureKind.EVENT_TOO_LARGE
        assert "lines" in stream.failure.message
        unfinished = translator()
        unfinished.receive(lines * (MAX_LINES + 2))
        unfinished.close()
        assert unfinished.failure is not None
        assert unfinished.failure.kind is FailureKind.EVENT_TOO_LARGE


@CLIENTS
@pytest.mark.parametrize("piece", ["[],", "1,", "word ", "é\\n"])
def test_long_deltas_are_translated_in_pieces(to: Format, piece: str) -> None:
    text = '{"a":["' * (piece == "word ") + piece * 40_000
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": text}}
    raw = chunk({"tool_calls": [call]}) + chunk({"tool_calls": [more]})
    raw += text_chunk("after") + chunk({}, "tool_calls") + b"data: [DONE]\n\n"
    stream, pieces = translator(to), []
    pieces.append(stream.receive(raw))
    assert stream.has_more
    assert stream.end is None
    while stream.has_more:
        pieces.append(stream.receive(b""))
    assert stream.end is not None
    assert len(pieces) > len(text) // (32 * 1024)
    at_once = translator(to)
    assert at_once.receive(raw) + at_once.close() == b"".join(pieces)
    assert at_once.end == stream.end
    assert at_once.chars == stream.chars


def test_many_frames_are_translated_in_turns() -> None:
    stream = translator()
    frames = b": x\n\n" * 2500
    stream.receive(text_chunk("a"))
    turns = 1
    stream.receive(frames + text_chunk("b") + chunk({}, "stop") + b"data: [DONE]\n\n")
    while stream.has_more:
        stream.receive(b"")
        turns += 1
    assert turns == 3
    assert stream.end is not None


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_blank_lines_are_one_frame(end: bytes) -> None:
    stream = translator()
    stream.receive(end * 100_000 + end + text_chunk("a").replace(b"\n", end) + b"\n")
    assert stream.started
    assert stream.frames == 2


def test_comments_byte_order_marks_and_line_ends() -> None:
    plain = ROLE + text_chunk("Hi") + text_chunk(" you") + STOP + USAGE + DONE
    expected = translator().receive(plain)
    for raw in (
        b"\xef\xbb\xbf" + plain,
        plain.replace(b"\n", b"\r\n"),
        plain.replace(b"\n", b"\r"),
        plain.replace(b"data: ", b": alive\nid: 1\nretry: 5\ndata:"),
        plain.replace(b"\n\n", b"\n\n: alive\n\n\n"),
        plain.replace(b'"choices"', b'\ndata: "choices"'),
    ):
        stream = translator()
        assert stream.receive(raw) + stream.close() == expected
        single = translator()
        bytewise = [single.receive(raw[at : at + 1]) for at in range(len(raw))]
        assert b"".join(bytewise) + single.close() == expected


@pytest.mark.parametrize(("text", "tokens"), [("Hi", 1), ("x" * 43, 10)])
def test_missing_usage_is_estimated_for_the_client_only(text: str, tokens: int) -> None:
    stream = translator()
    raw = stream.receive(ROLE + text_chunk(text) + STOP + DONE)
    assert final(raw).usage == Usage(input_tokens=7, output_tokens=tokens)
    assert stream.usage is None
    assert stream.end is not None
    assert stream.end.usage is None


def test_pings_have_the_format_of_the_client() -> None:
    assert translator(Format.MESSAGES).ping() == encoder(Format.MESSAGES).ping()
    assert translator(Format.CHAT).ping() == encoder(Format.CHAT).ping()


def test_unsupported_parts_are_reported() -> None:
    stream = translator(Format.CHAT, source=Format.MESSAGES)
    block = {"type": "code_execution_tool_result", "tool_use_id": "s", "content": []}
    data = orjson.dumps({"type": "content_block_start", "index": 0, "content_block": block})
    stream.receive(write_frame(b"content_block_start", data))
    assert stream.dropped


PATCH = Tool(kind=ToolKind.CUSTOM, name="patch")
CALL = chunk(
    {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "patch"}}]}
)


def arguments(text: str) -> bytes:
    return chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})


def test_emulation_is_reversed() -> None:
    stream = translator(Format.RESPONSES, PATCH)
    raw = b"".join(
        map(stream.receive, [CALL, arguments('{"inp'), arguments('ut":"a'), arguments('b\\n"}')])
    )
    raw += stream.receive(chunk({}, "tool_calls") + USAGE + DONE)
    call = final(raw, Format.RESPONSES).parts[0]
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments, call.kind) == ("patch", "ab\n", CallKind.CUSTOM)


def test_stop_sequences_end_the_reply_early() -> None:
    stream = translator(stop=("END",))
    raw = stream.receive(ROLE + text_chunk("one E"))
    assert not stream.end
    raw += stream.receive(text_chunk("ND two") + text_chunk("three"))
    assert stream.end is not None
    assert (stream.end.stop, stream.end.stop_sequence) == (StopReason.STOP_SEQUENCE, "END")
    assert stream.receive(text_chunk("four") + STOP + USAGE + DONE) == stream.close() == b""
    assert stream.failure is None
    reply = final(raw)
    assert (reply.parts, reply.stop_sequence) == ((Text("one "),), "END")
    assert reply.usage == Usage(input_tokens=7, output_tokens=1)


def test_nothing_is_sent_while_all_text_is_held() -> None:
    stream = translator(fenced=True)
    for held in (ROLE + text_chunk("```"), text_chunk("json\n"), text_chunk("{}\n```")):
        assert stream.receive(held) == b""
    assert not stream.started
    assert "content_block_delta" in names(stream.receive(b"data: [DONE]\n\n"))


def slowly(source: Format, to: Format, chunks: Iterable[bytes]) -> bytes:
    """What leaves where every frame is decoded and every event encoded, one by one."""
    encodes = encoder(to)
    events = decode_frames(CODECS[source].decoder(), frames_of(chunks))
    encoded = []
    for event in events:
        if isinstance(event, Fail):
            break
        encoded.append(encodes.encode(_counted(event)))
    return b"".join(encoded)


def _counted(event: Event) -> Event:
    return event


@CLIENTS
@in_one_test(("format", "path"), STREAMS, ids=param_id)
def test_runs_are_encoded_like_single_events(format: Format, path: Path, to: Format) -> None:
    raw = path.read_bytes()
    plain = partial(CrossFormatTranslator, CODECS[format].decoder(), encoder(to))
    stream = plain()
    whole = stream.receive(raw) + stream.close()
    if stream.end is not None and stream.end.usage is not None:
        assert whole == slowly(format, to, [raw])
    for size in (7, 301):
        again = CrossFormatTranslator(CODECS[format].decoder(), encoder(to))
        chunks = [again.receive(raw[at : at + size]) for at in range(0, len(raw), size)]
        assert b"".join(chunks) + again.close() == whole


TEXTS = st.lists(
    st.text('ab \\"\n\x00\x7fé😀', max_size=6)
    | st.sampled_from(["word", " two", "up", "assistant"]),
    max_size=12,
)
EVERY = st.sampled_from(list(Format))


def notation(text: str, ascii: bool) -> bytes:
    if not ascii:
        return orjson.dumps(text)
    units = text.encode("utf-16-be")
    return b'"%b"' % b"".join(
        b"\\u%02x%02x" % pair for pair in zip(units[::2], units[1::2], strict=True)
    )


@given(TEXTS, EVERY, st.booleans(), st.booleans(), st.integers(0, 3), st.data())
def test_matching_frames_are_encoded_like_decoded_ones(
    texts: list[str], to: Format, ascii: bool, padded: bool, kinds: int, data: st.DataObject
) -> None:
    """Runs of texts, thoughts and interleaved arguments."""
    deltas = [
        b'{"content":%b}',
        b'{"reasoning_content":%b}',
        b'{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":%b}}]}',
        b'{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":%b}}]}',
    ]
    frames = [
        b'data: {"choices":[{"delta":%b}]%b}\n\n'
        % (
            deltas[data.draw(st.integers(0, kinds))] % notation(text, ascii),
            b',"obfuscation":"%b"' % (b"x" * number) if padded else b"",
        )
        for number, text in enumerate(texts)
    ]
    raw = b"".join([*frames, STOP, USAGE, DONE])
    stream = CrossFormatTranslator(CODECS[Format.CHAT].decoder(), encoder(to))
    at = data.draw(st.integers(0, len(raw)))
    expected = slowly(Format.CHAT, to, [raw])
    assert stream.receive(raw[:at]) + stream.receive(raw[at:]) == expected
    one_by_one = CrossFormatTranslator(CODECS[Format.CHAT].decoder(), encoder(to))
    alone = [*frames, STOP, USAGE, DONE]
    assert b"".join(map(one_by_one.receive, alone)) == expected
    assert (one_by_one.chars, one_by_one.end) == (stream.chars, stream.end)


@pytest.mark.parametrize("text", [b"\xff", b"a\x01", b"\\x", b"\\ud80"])
def test_matching_frames_must_be_json(text: bytes) -> None:
    stream = translator()
    like = text_chunk("Hi").replace(b"Hi", text)
    assert names(stream.receive(text_chunk("Hi") + text_chunk("Ho") + like + text_chunk("more")))[
        -2:
    ] == [
        "content_block_delta",
        "content_block_delta",
    ]
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.MALFORMED


def test_halves_of_emoji_do_not_end_a_stream() -> None:
    stream = translator()
    out = stream.receive(text_chunk("Hi") + text_chunk("Hi").replace(b"Hi", b"\\ud83d"))
    assert "\ufffd".encode() in out
    assert stream.failure is None


def test_deltas_of_parallel_calls_are_separate() -> None:
    def piece(index: int, text: str) -> bytes:
        call = {"index": index, "function": {"arguments": text}}
        return chunk({"tool_calls": [call]})

    def start(index: int) -> bytes:
        call = {"index": index, "id": f"c{index}", "function": {"name": "f", "arguments": ""}}
        return chunk({"tool_calls": [call]})

    stream = translator(Format.CHAT)
    chunks = [
        piece(0, "12"),
        piece(1, '"'),
        piece(0, "34"),
        piece(1, "x"),
        piece(1, '"'),
        piece(0, "5"),
    ]
    raw = stream.receive(b"".join([start(0), start(1), *chunks, STOP, USAGE, DONE]))
    assert [
        part.arguments for part in final(raw, Format.CHAT).parts if isinstance(part, ToolCall)
    ] == [
        "12345",
        '"x"',
    ]


LONG = Reply(
    id="r",
    model="up",
    parts=(
        Thinking("hm " * 3000),
        Text("é😀" * 4000),
        ToolCall("c", "f", orjson.dumps({"a": "x" * 5000}).decode()),
    ),
    stop=StopReason.TOOL_CALL,
    usage=Usage(input_tokens=5, output_tokens=9),
)


@CLIENTS
def test_complete_replies_are_split_into_deltas(to: Format) -> None:
    raw = encode_reply(LONG, encoder(to))
    events = decode(CODECS[to].decoder(), raw)
    chunks = [event.piece for event in events if isinstance(event, Delta)]
    assert max(len(piece) for piece in chunks if isinstance(piece, str)) <= 3000
    reply = collect_reply(events)
    assert (reply.stop, reply.usage) == (LONG.stop, LONG.usage)
    assert [getattr(part, "text", "") for part in reply.parts][:2] == ["hm " * 3000, "é😀" * 4000]
    assert isinstance(reply.parts[2], ToolCall)
    assert reply.parts[2].arguments == '{"a":"' + "x" * 5000 + '"}'


def test_missing_usage_of_complete_replies_is_estimated() -> None:
    reply = Reply(id="r", model="up", parts=(Text("x" * 40),), stop=StopReason.END_TURN, usage=None)
    raw = encode_reply(with_estimated_usage(reply, 11), encoder(Format.MESSAGES))
    assert final(raw).usage == Usage(input_tokens=11, output_tokens=10)
