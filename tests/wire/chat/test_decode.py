"""Chat streams beyond the fixtures: what the decoder does after the end, and what it keeps."""

from __future__ import annotations

from typing import Any

from gateway.core.events import Begin, End, Fail, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import (
    Citation,
    Part,
    ProviderData,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    UnknownPart,
)
from gateway.core.reply import collect_reply
from gateway.wire.chat.decode import ChatDecoder
from tests.support.grammar import assert_grammar

HELLO = {"id": "r", "model": "m", "created": 5, "choices": [{"delta": {"content": "Hello"}}]}


def test_begin_keeps_native_fields() -> None:
    begin = ChatDecoder().decode(b"", HELLO)[0]
    assert begin == Begin(
        "r", "m", extra=ProviderData(Format.CHAT, {"id": "r", "model": "m", "created": 5})
    )


def test_nothing_follows_the_end() -> None:
    decoder = ChatDecoder()
    decoder.decode(b"", HELLO)
    assert isinstance(decoder.done()[-1], End)
    assert not decoder.done()
    assert not decoder.decode(b"", HELLO)
    assert not decoder.decode(b"", {"error": "late"})
    assert not decoder.close()


def test_failure_includes_usage_so_far() -> None:
    decoder = ChatDecoder()
    decoder.decode(b"", HELLO | {"usage": {"prompt_tokens": 3}})
    (fail,) = decoder.decode(b"", {"error": "no"})
    assert isinstance(fail, Fail)
    assert fail.usage == Usage(input_tokens=3)
    assert not decoder.close()


def test_usage_alone_is_not_a_reply() -> None:
    decoder = ChatDecoder()
    assert not decoder.decode(b"", {"choices": [], "usage": {"prompt_tokens": 3}})
    (fail,) = decoder.done()
    assert isinstance(fail, Fail)
    assert fail.usage == Usage(input_tokens=3)


def test_length_stop_inside_a_call() -> None:
    decoder = ChatDecoder()
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a'}}
    decoder.decode(b"", {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "length"}]})
    assert decoder.close()[-1] == End(StopReason.MAX_TOKENS, None)


DETAIL = {"type": "reasoning.text", "index": 0}
CALL = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}


def parts(*deltas: dict[str, Any]) -> tuple[Part, ...]:
    decoder = ChatDecoder()
    events = [
        event
        for delta in deltas
        for event in decoder.decode(b"", {"choices": [{"index": 0, "delta": delta}]})
    ]
    events += decoder.done()
    assert_grammar(events)
    return collect_reply(events).parts


def proof(*entries: dict[str, Any]) -> ProviderData:
    return ProviderData(Format.CHAT, list(entries))


def test_details_sign_the_open_reasoning() -> None:
    assert parts(
        {"reasoning": "Two ", "reasoning_details": [DETAIL | {"text": "Two "}]},
        {"reasoning": "and two", "reasoning_details": [DETAIL | {"text": "and two"}]},
        {"reasoning_details": [DETAIL | {"signature": "s"}]},
        {"content": "4"},
    ) == (
        Thinking("Two and two", proof(DETAIL | {"text": "Two and two", "signature": "s"})),
        Text("4"),
    )


def test_details_without_signature_are_ignored() -> None:
    delta = {"reasoning_content": "hm", "reasoning_details": [DETAIL | {"text": "hm"}]}
    assert parts(delta, {"content": "4"}) == (Thinking("hm"), Text("4"))


def test_details_before_and_after_a_call() -> None:
    early, late = DETAIL | {"data": "a"}, DETAIL | {"data": "b"}
    assert parts(
        {"reasoning_details": [early], "tool_calls": [CALL]},
        {"reasoning_details": [late]},
        {"tool_calls": [{"index": 0, "function": {"arguments": " "}}]},
    ) == (
        Thinking(signature=proof(early), redacted=True),
        ToolCall("c", "f", "{} "),
        Thinking(signature=proof(late), redacted=True),
    )


def test_reasoning_in_content_list() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    assert parts(
        {"content": [thought]},
        {"content": [thought, {"type": "text", "text": "Hi"}, "odd"]},
    ) == (Thinking("hmhm"), Text("Hi"))


def test_extra_call_fields() -> None:
    extra = {"extra_content": {"vendor": {"thought_signature": "s"}}}
    carried, call = parts({"tool_calls": [CALL | extra]})
    entry = {"type": "extra_content", "data": extra["extra_content"]}
    assert carried == Thinking(signature=ProviderData(Format.CHAT, [entry]), redacted=True)
    assert call == ToolCall("c", "f", "{}", extra=ProviderData(Format.CHAT, extra))


def test_annotations_and_refusal_in_one_delta() -> None:
    annotation = {"type": "url_citation", "url_citation": {"url": "https://a"}}
    assert parts({"content": "Hi", "refusal": "no", "annotations": [annotation]}) == (
        Text("Hi", citations=(Citation(url="https://a"),)),
        Refusal("no"),
    )


def test_annotations_of_a_text_that_is_closed_have_a_name() -> None:
    """They can no longer be told of it."""
    note = {"type": "url_citation", "url_citation": {"url": "https://a.test"}}
    chunks: list[Any] = [
        {"content": "Hello"},
        {"tool_calls": [CALL | {"function": {"name": "f", "arguments": "{"}}]},
        {"annotations": [note]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]},
    ]
    decoder = ChatDecoder()
    events = [
        event for delta in chunks for event in decoder.decode(b"", {"choices": [{"delta": delta}]})
    ]
    parts = collect_reply([*events, *decoder.done()]).parts
    data = ProviderData(Format.CHAT, [note])
    assert parts[:1] == (Text("Hello"),)
    assert parts[1:] == (ToolCall("c", "f", "{}"), UnknownPart("annotations", data))
