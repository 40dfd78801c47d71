"""Native streams: which bytes are sent when, and the state at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import orjson
import pytest

from gateway.core.events import Event, Failure, FailureKind, StopReason, Usage
from gateway.core.formats import Format
from gateway.errors import ServiceUnavailable
from gateway.wire.chat.decode import ChatDecoder
from gateway.wire.codec import Decoder
from gateway.wire.registry import CODECS
from gateway.wire.stream.native_translator import NativeTranslator
from gateway.wire.stream.sse import MAX_FRAME, read_frame, write_frame
from gateway.wire.stream.translator import MAX_HELD
from tests.wire.stream_cases import UPSTREAM_MODEL, prompt


def without_key(text: str) -> str:
    return text.replace("sk-1", "***")


def translator(
    decoder: Decoder | None = None,
    may_forward: Callable[[Failure], bool] = lambda _: True,
    *,
    include_usage: bool = True,
) -> NativeTranslator:
    codec = CODECS[Format.CHAT]
    rewriter = codec.rewriter(prompt(Format.CHAT, UPSTREAM_MODEL, include_usage=include_usage))
    return NativeTranslator(decoder or codec.decoder(), rewriter, without_key, may_forward)


def chunk(delta: dict[str, object], finish: str | None = None, **fields: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "r", "model": UPSTREAM_MODEL, "choices": [choice]} | fields
    return write_frame(b"", orjson.dumps(body))


ROLE = chunk({"role": "assistant", "content": ""})
HELLO = chunk({"content": "Hello"})
STOP = chunk({}, "stop")
USAGE = write_frame(b"", b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}')
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"bad sk-1","code":"rate_limit_exceeded"}}\n\n'


def test_nothing_is_sent_before_the_first_real_event() -> None:
    stream = translator()
    assert stream.receive(ROLE) == b""
    assert not stream.started
    assert stream.receive(HELLO) == ROLE + HELLO
    assert stream.started
    assert stream.receive(STOP) == STOP


def test_complete_reply() -> None:
    stream = translator()
    relayed = stream.receive(ROLE + HELLO + STOP + USAGE + DONE) + stream.close()
    assert relayed == ROLE + HELLO + STOP + USAGE + DONE
    assert stream.end is not None
    assert stream.end.stop is StopReason.END_TURN
    assert stream.usage == Usage(input_tokens=3, output_tokens=2)
    assert (stream.failure, stream.decode_error) == (None, None)


def test_only_complete_frames_are_sent() -> None:
    stream = translator()
    assert stream.receive(ROLE + HELLO + STOP[:20]) == ROLE + HELLO
    assert stream.receive(STOP[20:-1]) == b""
    assert stream.receive(STOP[-1:] + USAGE[:5]) == STOP


def test_tool_calls_start_the_reply() -> None:
    stream = translator()
    call = chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]})
    assert stream.receive(call) == call


def test_empty_replies_are_sent_at_their_end() -> None:
    stream = translator()
    assert stream.receive(ROLE + STOP + USAGE) == b""
    assert stream.receive(DONE) == ROLE + STOP + USAGE + DONE


def test_empty_replies_without_terminator_are_sent_at_the_end() -> None:
    stream = translator()
    assert stream.receive(ROLE + STOP + USAGE) == b""
    assert stream.close() == ROLE + STOP + USAGE
    assert stream.end is not None


@pytest.mark.parametrize("reason", [b'"stop"', b'"a_new_reason"'])
def test_empty_replies_without_usage_fail(reason: bytes) -> None:
    stream = translator()
    assert stream.receive(ROLE + STOP.replace(b'"stop"', reason) + DONE) == b""
    assert (stream.started, stream.end) == (False, None)
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.EMPTY


def test_errors_before_the_first_event_are_not_sent() -> None:
    stream = translator()
    assert stream.receive(ROLE + ERROR + HELLO) == b""
    assert stream.receive(HELLO) == b""
    assert stream.close() == b""
    assert not stream.started
    assert stream.failure is not None
    assert (stream.failure.kind, stream.failure.status) == (FailureKind.RESPONSE, 429)


def test_abort_sends_an_error_that_was_held() -> None:
    stream = translator()
    stream.receive(ROLE + ERROR)
    frames = stream.abort(ServiceUnavailable())
    assert orjson.loads(frames.removeprefix(b"data: "))["error"]["code"] == "server_is_overloaded"


@pytest.mark.parametrize("cut", [True, False])
def test_errors_are_redacted_and_final(cut: bool) -> None:
    stream = translator()
    pieces = [ROLE, HELLO, ERROR, HELLO, DONE]
    relayed = b"".join(map(stream.receive, pieces if cut else [b"".join(pieces)]))
    assert relayed + stream.close() == ROLE + HELLO + ERROR.replace(b"sk-1", b"***")
    assert stream.abort(ServiceUnavailable()) == b""


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"error":{"message":"a \\"sk-1\\" here"}}', b'{"error":{"message":"a \\"***\\" here"}}'),
        (b'{"error":{"message":"s\\u006b-1"}}', b'{"error":{"message":"***"}}'),
        (b'{"error":{"x":[{"sk-1":"y"}]}, "n":1}', b'{"error":{"x":[{"***":"y"}]},"n":1}'),
        (
            b'{ "error" : {"message":"\\u0061 \\/ 1.0"} }',
            b'{ "error" : {"message":"\\u0061 \\/ 1.0"} }',
        ),
    ],
)
def test_only_texts_of_errors_are_redacted(data: bytes, expected: bytes) -> None:
    stream = translator()
    stream.receive(ROLE + HELLO)
    frame = b"id: 7\ndata: %b\r\n\r\n"
    assert stream.receive(frame % data + b": \n\n") == frame % expected


def test_errors_of_several_lines_are_redacted() -> None:
    stream = translator()
    stream.receive(ROLE + HELLO)
    relayed = stream.receive(b'data: {"error":\ndata: {"message":"bad sk-1"}}\n\n')
    assert orjson.loads(read_frame(relayed).data or b"") == {"error": {"message": "bad ***"}}


@pytest.mark.parametrize("format", Format)
def test_errors_that_may_not_be_forwarded_are_replaced(format: Format) -> None:
    codec = CODECS[format]
    begun = {
        Format.CHAT: HELLO,
        Format.MESSAGES: write_frame(
            b"content_block_start",
            b'{"type":"content_block_start","index":0,'
            b'"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}',
        ),
        Format.RESPONSES: write_frame(
            b"response.output_text.delta", b'{"type":"response.output_text.delta","delta":"Hello"}'
        ),
    }[format]
    fields = {
        Format.CHAT: b'{"error":{"message":"bad key","code":"invalid_api_key"}}',
        Format.MESSAGES: b'{"type":"error","error":{"type":"authentication_error",'
        b'"message":"bad key"}}',
        Format.RESPONSES: b'{"type":"response.failed","response":{"id":"r",'
        b'"note":"bad key","error":{"code":"invalid_api_key","message":"bad key"}}}',
    }[format]
    results: list[Failure] = []
    rewriter = codec.rewriter(prompt(format, UPSTREAM_MODEL))
    stream = NativeTranslator(
        codec.decoder(), rewriter, without_key, lambda failure: results.append(failure) or False
    )
    assert stream.receive(begun + write_frame(b"error", fields) + begun) == begun
    assert stream.failure is not None
    assert results == [stream.failure]
    assert stream.failure.status == 401
    frames = stream.abort(ServiceUnavailable())
    assert b"Service unavailable" in frames
    assert b"bad key" not in frames


def test_errors_without_a_sent_frame_are_written() -> None:
    """The rewriter takes it for the usage that the client did not ask for."""
    stream = translator(include_usage=False)
    stream.receive(ROLE + HELLO)
    assert stream.receive(write_frame(b"error", b'{"message":"no","usage":{"n":1}}')) == b""
    assert b"Service unavailable" in stream.abort(ServiceUnavailable())


def test_an_end_without_a_reply_is_not_sent() -> None:
    """The openings were too many to hold, so the stream runs; `[DONE]` would make it complete."""
    stream = translator()
    comment = b": " + b"x" * MAX_HELD + b"\n\n"
    assert stream.receive(comment + DONE) == comment
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.EMPTY
    assert b"Service unavailable" in stream.abort(ServiceUnavailable())


class Stumbling(ChatDecoder):
    """A decoder with a fault of its own at the end of the bytes."""

    def close(self) -> Sequence[Event]:
        raise KeyError("index")


@pytest.mark.parametrize("decoder", [ChatDecoder, Stumbling])
def test_failed_decoders_may_miss_the_end(decoder: type[ChatDecoder]) -> None:
    stream = translator(decoder())
    relayed = ROLE + chunk({"content": "Hello"}, usage={"prompt_tokens": 3}) + b"data: {oops\n\n"
    assert stream.receive(relayed) + stream.close() == relayed
    assert stream.decode_error is not None
    assert (stream.end, stream.failure) == (None, None)


def test_decoder_errors_at_the_end_are_recorded() -> None:
    stream = translator(Stumbling())
    assert stream.receive(ROLE + HELLO) + stream.close() == ROLE + HELLO
    assert stream.decode_error == "KeyError: 'index'"
    assert (stream.end, stream.failure) == (None, None)


@pytest.mark.parametrize(
    ("received", "kind"),
    [
        (b"data: {oops\n\n", FailureKind.EMPTY),
        (ROLE + b"data: {oops\n\n", FailureKind.TRUNCATED),
        (ROLE + HELLO + b"data: {oops\n\n" + STOP[:20], FailureKind.TRUNCATED),
    ],
)
def test_certain_failures_are_reported_after_a_decoder_error(
    received: bytes, kind: FailureKind
) -> None:
    """Nothing had begun, or half a frame was lost."""
    stream = translator()
    stream.receive(received)
    stream.close()
    assert stream.failure is not None
    assert stream.failure.kind is kind


def test_end_of_bytes_does_not_complete_a_reply() -> None:
    stream = translator()
    stream.receive(ROLE + HELLO)
    assert stream.close() == b""
    assert stream.end is None
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.TRUNCATED
    assert b'"error"' in stream.abort(ServiceUnavailable())


def test_no_bytes_are_an_empty_reply() -> None:
    stream = translator()
    assert stream.close() == b""
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.EMPTY


def test_last_frame_without_blank_line() -> None:
    stream = translator()
    stream.receive(ROLE + HELLO + STOP + USAGE)
    assert stream.receive(DONE.rstrip()) == b""
    assert stream.close() == DONE
    assert stream.usage == Usage(input_tokens=3, output_tokens=2)


def test_incomplete_frames_are_discarded() -> None:
    stream = translator()
    stream.receive(ROLE + HELLO + STOP[:-9])
    assert stream.close() == b""
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.TRUNCATED


@pytest.mark.parametrize("garbage", [b"data: {oops\n\n", b"data: [1]\n\n", b"data: 5\n\n"])
def test_unreadable_frames_are_recorded_and_forwarded(garbage: bytes) -> None:
    stream = translator()
    assert stream.receive(ROLE + HELLO + garbage + STOP + DONE) == (
        ROLE + HELLO + garbage + STOP + DONE
    )
    assert stream.decode_error is not None
    assert stream.end is not None
    assert stream.failure is None


def test_comments_are_forwarded_and_start_nothing() -> None:
    stream = translator()
    assert stream.receive(b": hm\n\n" + ROLE) == b""
    assert stream.receive(HELLO + b": hm\n\n") == b": hm\n\n" + ROLE + HELLO + b": hm\n\n"


@pytest.mark.large
def test_endless_frames_fail() -> None:
    stream = translator()
    stream.receive(ROLE + HELLO)
    assert stream.receive(b"data: " + b"x" * MAX_FRAME) == b""
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.EVENT_TOO_LARGE
    assert stream.receive(STOP) == b""
    assert b'"error"' in stream.abort(ServiceUnavailable())


def test_endless_openings_are_sent_eventually() -> None:
    stream = translator()
    comment = b": " + b"x" * (MAX_HELD // 2) + b"\n\n"
    assert stream.receive(comment) == b""
    assert stream.receive(comment) == comment * 2
    assert stream.started


def test_usage_of_truncated_replies_is_kept() -> None:
    stream = translator()
    stream.receive(ROLE + chunk({"content": "x"}, usage={"prompt_tokens": 3}) + ERROR)
    assert stream.usage == Usage(input_tokens=3)
    assert not stream.usage_is_final


def test_grown_usage_of_failed_replies_is_final() -> None:
    stream = translator()
    counts = {"prompt_tokens": 3, "completion_tokens": 2}
    stream.receive(ROLE + chunk({"content": "x"}, usage=counts) + ERROR)
    assert (stream.usage, stream.usage_is_final) == (Usage(input_tokens=3, output_tokens=2), True)


def test_initial_usage_is_not_final() -> None:
    """Not even where it says that there is some output, as messages do."""
    codec = CODECS[Format.MESSAGES]
    rewriter = codec.rewriter(prompt(Format.MESSAGES, UPSTREAM_MODEL))
    stream = NativeTranslator(codec.decoder(), rewriter, without_key)
    usage = {"input_tokens": 3, "output_tokens": 1}
    start = {"type": "message_start", "message": {"id": "r", "usage": usage}}
    stream.receive(write_frame(b"message_start", orjson.dumps(start)))
    stream.close()
    assert (stream.usage, stream.usage_is_final) == (Usage(input_tokens=3, output_tokens=1), False)


@pytest.mark.parametrize(("words", "counted"), [("Hi!", True), ("many words " * 9, False)])
def test_repeated_initial_usage_is_final_where_plausible(words: str, counted: bool) -> None:
    """Some upstreams never tell more than `message_start`."""
    codec = CODECS[Format.MESSAGES]
    rewriter = codec.rewriter(prompt(Format.MESSAGES, UPSTREAM_MODEL))
    stream = NativeTranslator(codec.decoder(), rewriter, without_key)
    usage = {"input_tokens": 3, "output_tokens": 1}
    for event in (
        {"type": "message_start", "message": {"id": "r", "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": words},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ):
        stream.receive(write_frame(str(event["type"]).encode(), orjson.dumps(event)))
    assert stream.end is not None
    assert (stream.usage, stream.usage_is_final) == (
        Usage(input_tokens=3, output_tokens=1),
        counted,
    )


@pytest.mark.parametrize("text", ["plain", 'a "quote"', "ö", "漢字", "\n", "👋", "\\"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_characters_are_counted_in_any_notation(text: str, ascii_only: bool) -> None:
    """Also in runs, which are not decoded."""
    stream = translator()
    stream.receive(ROLE + HELLO + HELLO)
    chunks = [HELLO.replace(b'"Hello"', json.dumps(text, ensure_ascii=ascii_only).encode())] * 3
    stream.receive(b"".join(chunks))
    assert stream.chars == 2 * len("Hello") + 3 * len(text)
