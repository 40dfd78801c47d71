"""Chat streams beyond the fixtures: what the decoder does after the end, and what it keeps."""

from __future__ import annotations

from gateway.core.events import Begin, End, Fail, StopReason
from gateway.core.formats import Format
from gateway.core.parts import Opaque
from gateway.core.usage import Usage
from gateway.wire.chat.stream import ChatDecoder

HELLO = {"id": "r", "model": "m", "created": 5, "choices": [{"delta": {"content": "Hello"}}]}


def test_the_opening_keeps_what_is_the_formats_own() -> None:
    begin = ChatDecoder().decode(b"", HELLO)[0]
    assert begin == Begin(
        "r", "m", extra=Opaque(Format.CHAT, {"id": "r", "model": "m", "created": 5})
    )


def test_nothing_comes_after_the_end() -> None:
    decoder = ChatDecoder()
    decoder.decode(b"", HELLO)
    assert isinstance(decoder.done()[-1], End)
    assert not decoder.done()
    assert not decoder.decode(b"", HELLO)
    assert not decoder.decode(b"", {"error": "late"})
    assert not decoder.close()


def test_a_failure_knows_the_usage_so_far() -> None:
    decoder = ChatDecoder()
    decoder.decode(b"", HELLO | {"usage": {"prompt_tokens": 3}})
    (fail,) = decoder.decode(b"", {"error": "no"})
    assert isinstance(fail, Fail)
    assert fail.usage == Usage(input_tokens=3)
    assert not decoder.close()


def test_usage_alone_is_no_reply() -> None:
    decoder = ChatDecoder()
    assert not decoder.decode(b"", {"choices": [], "usage": {"prompt_tokens": 3}})
    (fail,) = decoder.done()
    assert isinstance(fail, Fail)
    assert fail.usage == Usage(input_tokens=3)


def test_length_is_length_even_within_a_call() -> None:
    decoder = ChatDecoder()
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a'}}
    decoder.decode(b"", {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "length"}]})
    assert decoder.close()[-1] == End(StopReason.MAX_TOKENS, None)
