"""The native lane as a whole: what leaves when, and what is known at the end."""

from __future__ import annotations

import orjson
import pytest

from gateway.core.events import StopReason
from gateway.core.failure import FailureKind
from gateway.core.formats import Format
from gateway.core.usage import Usage
from gateway.errors import ServiceUnavailable
from gateway.wire.codecs import CODECS
from gateway.wire.sse import MAX_FRAME, write_frame
from gateway.wire.translator import MAX_HELD, NativeTranslator
from tests.wire.streams import UPSTREAM_MODEL, prompt


def translator() -> NativeTranslator:
    codec = CODECS[Format.CHAT]
    rewriter = codec.rewriter(prompt(Format.CHAT, UPSTREAM_MODEL))
    return NativeTranslator(codec.decoder(), rewriter, lambda text: text.replace("sk-1", "***"))


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


def test_nothing_leaves_before_the_first_real_event() -> None:
    stream = translator()
    assert stream.receive(ROLE) == b""
    assert not stream.begun
    assert stream.receive(HELLO) == ROLE + HELLO
    assert stream.begun
    assert stream.receive(STOP) == STOP


def test_a_complete_reply_is_known_at_the_end() -> None:
    stream = translator()
    relayed = stream.receive(ROLE + HELLO + STOP + USAGE + DONE) + stream.close()
    assert relayed == ROLE + HELLO + STOP + USAGE + DONE
    assert stream.end is not None
    assert stream.end.stop is StopReason.END_TURN
    assert stream.usage == Usage(input_tokens=3, output_tokens=2)
    assert (stream.failure, stream.fault) == (None, None)


def test_only_whole_frames_leave() -> None:
    stream = translator()
    assert stream.receive(ROLE + HELLO + STOP[:20]) == ROLE + HELLO
    assert stream.receive(STOP[20:-1]) == b""
    assert stream.receive(STOP[-1:] + USAGE[:5]) == STOP


def test_a_tool_call_is_a_real_event() -> None:
    stream = translator()
    call = chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]})
    assert stream.receive(call) == call


def test_an_empty_reply_leaves_at_its_end() -> None:
    stream = translator()
    assert stream.receive(ROLE + STOP) == b""
    assert stream.receive(DONE) == ROLE + STOP + DONE


def test_an_empty_reply_without_terminator_leaves_at_the_end_of_the_bytes() -> None:
    stream = translator()
    assert stream.receive(ROLE + STOP) == b""
    assert stream.close() == ROLE + STOP
    assert stream.end is not None


def test_an_error_before_the_first_real_event_stays_inside() -> None:
    stream = translator()
    assert stream.receive(ROLE + ERROR + HELLO) == b""
    assert stream.receive(HELLO) == b""
    assert stream.close() == b""
    assert not stream.begun
    assert stream.failure is not None
    assert (stream.failure.kind, stream.failure.status) == (FailureKind.SAID, 429)


def test_an_error_that_never_left_is_spoken_when_it_must_be() -> None:
    stream = translator()
    stream.receive(ROLE + ERROR)
    spoken = stream.abort(ServiceUnavailable())
    assert orjson.loads(spoken.removeprefix(b"data: "))["error"]["code"] == "server_is_overloaded"


@pytest.mark.parametrize("cut", [True, False])
def test_nothing_follows_an_error_and_it_leaves_clean(cut: bool) -> None:
    stream = translator()
    pieces = [ROLE, HELLO, ERROR, HELLO, DONE]
    relayed = b"".join(map(stream.receive, pieces if cut else [b"".join(pieces)]))
    assert relayed + stream.close() == ROLE + HELLO + ERROR.replace(b"sk-1", b"***")
    assert stream.abort(ServiceUnavailable()) == b""


def test_a_clean_end_of_the_bytes_proves_nothing() -> None:
    stream = translator()
    stream.receive(ROLE + HELLO)
    assert stream.close() == b""
    assert stream.end is None
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.CUT
    assert b'"error"' in stream.abort(ServiceUnavailable())


def test_no_bytes_at_all_are_an_empty_reply() -> None:
    stream = translator()
    assert stream.close() == b""
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.EMPTY


def test_a_last_frame_without_its_blank_line_counts() -> None:
    stream = translator()
    stream.receive(ROLE + HELLO + STOP + USAGE)
    assert stream.receive(DONE.rstrip()) == b""
    assert stream.close() == DONE
    assert stream.usage == Usage(input_tokens=3, output_tokens=2)


def test_half_a_frame_is_thrown_away() -> None:
    stream = translator()
    stream.receive(ROLE + HELLO + STOP[:-9])
    assert stream.close() == b""
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.CUT


@pytest.mark.parametrize("garbage", [b"data: {oops\n\n", b"data: [1]\n\n", b"data: 5\n\n"])
def test_what_cannot_be_read_is_noted_and_relayed(garbage: bytes) -> None:
    stream = translator()
    assert stream.receive(ROLE + HELLO + garbage + STOP + DONE) == (
        ROLE + HELLO + garbage + STOP + DONE
    )
    assert stream.fault is not None
    assert stream.end is not None
    assert stream.failure is None


def test_comments_are_relayed_and_begin_nothing() -> None:
    stream = translator()
    assert stream.receive(b": hm\n\n" + ROLE) == b""
    assert stream.receive(HELLO + b": hm\n\n") == b": hm\n\n" + ROLE + HELLO + b": hm\n\n"


def test_an_endless_frame_breaks_the_stream_off() -> None:
    stream = translator()
    stream.receive(ROLE + HELLO)
    assert stream.receive(b"data: " + b"x" * MAX_FRAME) == b""
    assert stream.failure is not None
    assert stream.failure.kind is FailureKind.EVENT_TOO_LARGE
    assert stream.receive(STOP) == b""
    assert b'"error"' in stream.abort(ServiceUnavailable())


def test_endless_openings_leave_in_the_end() -> None:
    stream = translator()
    comment = b": " + b"x" * (MAX_HELD // 2) + b"\n\n"
    assert stream.receive(comment) == b""
    assert stream.receive(comment) == comment * 2
    assert stream.begun


def test_usage_is_kept_when_the_reply_breaks_off() -> None:
    stream = translator()
    stream.receive(ROLE + chunk({"content": "x"}, usage={"prompt_tokens": 3}) + ERROR)
    assert stream.usage == Usage(input_tokens=3)
