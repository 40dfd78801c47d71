"""The checker of chat replies: what it lets pass, and one broken stream for every rule."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import orjson
import pytest

from tests.support.formats.chat import reply_of
from tests.support.formats.readers import check, check_body
from tests.support.formats.reply import UsageCounts
from tests.support.formats.violations import (
    Events,
    Violation,
    both,
    changed,
    cut_off,
    deleted,
    fresh,
    inserted,
    moved,
    without,
)

F = "chat"
USAGE = {
    "prompt_tokens": 25,
    "completion_tokens": 40,
    "total_tokens": 65,
    "prompt_tokens_details": {"cached_tokens": 5, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 7, "audio_tokens": 0},
}
CITED = {
    "type": "url_citation",
    "url_citation": {"start_index": 0, "end_index": 2, "title": "T", "url": "https://x.example"},
}


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "beta-1",
        "choices": [] if delta is None else [choice],
    } | more


def call(index: int, **parts: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **parts}]}


STREAM: Events = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "hm"}),
    chunk({"content": "Hi"}),
    chunk(call(0, id="call_a", type="function", function={"name": "f", "arguments": ""})),
    chunk(call(0, function={"arguments": '{"a":1}'})),
    chunk(call(1, id="call_b", type="custom", custom={"name": "g", "input": ""})),
    chunk(call(1, custom={"input": "free"})),
    chunk(
        {
            "annotations": [{"index": 0, **CITED}],
            "reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "gw1.x"}],
        }
    ),
    chunk({}, "tool_calls"),
    chunk(None, usage=USAGE),
]
ROLE, THOUGHT, HI, FIRST, ARGUMENTS, SECOND, INPUT, LISTS, FINISH, COUNTED = range(10)
DELTA = "choices.0.delta"
ENTRY = f"{DELTA}.tool_calls.0"
ERROR = {"error": {"message": "no", "type": "server_error", "param": None, "code": None}}
MESSAGE: dict[str, Any] = {
    "role": "assistant",
    "content": "Hi",
    "refusal": None,
    "annotations": [CITED],
    "tool_calls": [
        {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ],
}
BODY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "beta-1",
    "choices": [
        {"index": 0, "message": MESSAGE, "logprobs": None, "finish_reason": "tool_calls"},
    ],
    "usage": USAGE,
}


def write(events: Events, *, done: bool = True) -> bytes:
    frames = b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events)
    return frames + b"data: [DONE]\n\n" * done


def test_valid_streams_have_no_violations() -> None:
    check(F, write(STREAM), include_usage=True)
    check(F, write(STREAM[:COUNTED]), include_usage=False)
    check(F, b": alive\n\n" + write(STREAM))
    check(F, write([event | {"usage": event.get("usage")} for event in STREAM]))


def test_the_whole_reply_of_a_stream_is_read() -> None:
    body = check(F, write(STREAM))
    calls = body["choices"][0]["message"]["tool_calls"]
    assert calls.pop() == {
        "id": "call_b",
        "type": "custom",
        "custom": {"name": "g", "input": "free"},
    }
    check_body(F, body)
    reply = reply_of(body)
    assert (reply.text, reply.thinking, reply.stop, reply.model) == (
        "Hi",
        "hm",
        "tool_calls",
        "beta-1",
    )
    assert reply.calls == (("call_a", "f", {"a": 1}),)
    assert reply.sources == (("https://x.example", "T"),)
    assert reply.usage == UsageCounts(input=25, cached=5, kept=0, output=40, thinking=7)


def test_streams_may_end_with_an_expected_error() -> None:
    for stop in (0, THOUGHT, ARGUMENTS, FINISH):
        raw = write([*STREAM[:stop], ERROR], done=False)
        check(F, raw, errored=True)
        with pytest.raises(AssertionError, match="an error"):
            check(F, raw)
    with pytest.raises(AssertionError, match="a proper end"):
        check(F, write(STREAM), errored=True)


@pytest.mark.parametrize("requested", [True, False])
def test_usage_is_required_only_where_requested(requested: bool) -> None:
    with pytest.raises(AssertionError, match="usage missing, or not asked for"):
        check(F, write(STREAM if not requested else STREAM[:COUNTED]), include_usage=requested)
    with pytest.raises(AssertionError, match="usage not asked for"):
        check(F, write([STREAM[0] | {"usage": None}, *STREAM[1:]]), include_usage=False)


BROKEN: list[tuple[str, Violation, str]] = [
    ("nothing at all", cut_off(0), "without a finish"),
    ("no role", without(ROLE), "the first delta"),
    ("a role without content", deleted(ROLE, f"{DELTA}.content"), "content"),
    ("another role", changed(ROLE, f"{DELTA}.role", "user"), "the first delta"),
    ("two roles", changed(HI, f"{DELTA}.role", "assistant"), "unknown"),
    ("choices missing", deleted(COUNTED, "choices"), "choices"),
    ("choices null", changed(COUNTED, "choices", None), "choices"),
    ("another choice", changed(HI, "choices.0.index", 1), "choice 1"),
    ("no delta", deleted(HI, DELTA), "delta"),
    ("a null in a delta", changed(HI, f"{DELTA}.content", None), "no text"),
    ("an empty text", changed(HI, f"{DELTA}.content", ""), "empty"),
    ("an unknown delta", changed(HI, f"{DELTA}.more", 1), "unknown"),
    ("an unknown field", changed(HI, "more", 1), "unknown"),
    ("an id that changes", changed(HI, "id", "chatcmpl-2"), "another head"),
    ("a model that changes", changed(HI, "model", "beta-2"), "another head"),
    ("a time that changes", changed(HI, "created", 1), "another head"),
    ("another kind of id", changed(ROLE, "id", "msg_1"), "the id is"),
    ("calls from one", changed(FIRST, f"{ENTRY}.index", 1), "out of order"),
    ("a gap in the calls", changed(SECOND, f"{ENTRY}.index", 2), "out of order"),
    ("a call without an index", deleted(ARGUMENTS, f"{ENTRY}.index"), "index"),
    ("a call without an id", deleted(FIRST, f"{ENTRY}.id"), "id"),
    ("a call without a type", deleted(FIRST, f"{ENTRY}.type"), "type"),
    ("a call without arguments", deleted(FIRST, f"{ENTRY}.function.arguments"), "arguments"),
    ("arguments at the start", changed(FIRST, f"{ENTRY}.function.arguments", "{"), "on the start"),
    ("an id repeated", changed(ARGUMENTS, f"{ENTRY}.id", "call_a"), "unknown"),
    ("a name repeated", changed(ARGUMENTS, f"{ENTRY}.function.name", "f"), "unknown"),
    ("a type repeated", changed(ARGUMENTS, f"{ENTRY}.type", "function"), "unknown"),
    ("an empty piece of arguments", changed(ARGUMENTS, f"{ENTRY}.function.arguments", ""), "empty"),
    ("a call that says nothing", without(ARGUMENTS), "without arguments"),
    ("an illegal id", changed(FIRST, f"{ENTRY}.id", "call a"), "illegal"),
    ("a long id", changed(FIRST, f"{ENTRY}.id", "c" * 65), "illegal"),
    ("two calls of one id", changed(SECOND, f"{ENTRY}.id", "call_a"), "two calls"),
    ("no calls in a list", changed(FIRST, DELTA, {"tool_calls": []}), "without an entry"),
    ("a list in two deltas", inserted(LISTS, STREAM[LISTS]), "in two deltas"),
    ("an unnumbered detail", deleted(LISTS, f"{DELTA}.reasoning_details.0.index"), "details"),
    (
        "a citation of more than the text",
        changed(LISTS, f"{DELTA}.annotations.0.url_citation.end_index", 3),
        "offsets",
    ),
    ("no finish", without(FINISH), "before the finish"),
    ("two finishes", inserted(FINISH, STREAM[FINISH]), "after the finish"),
    ("a finish on a delta", changed(FINISH, f"{DELTA}.content", "!"), "a finish on a delta"),
    ("a finish on the first chunk", changed(ROLE, "choices.0.finish_reason", "stop"), "first"),
    ("an unknown finish", changed(FINISH, "choices.0.finish_reason", "end"), "literal_error"),
    ("a call that only stops", changed(FINISH, "choices.0.finish_reason", "stop"), "although"),
    (
        "a call that never was",
        without(FIRST, ARGUMENTS, SECOND, INPUT),
        "although no tool",
    ),
    ("a delta after the finish", moved(THOUGHT, FINISH), "after the finish"),
    ("usage before the finish", moved(COUNTED, FINISH), "before the finish"),
    ("usage twice", inserted(COUNTED, STREAM[COUNTED]), "usage twice"),
    ("usage beside a choice", changed(FINISH, "usage", USAGE), "beside a choice"),
    ("usage that does not add up", changed(COUNTED, "usage.total_tokens", 64), "the total"),
    (
        "more cached than asked",
        changed(COUNTED, "usage.prompt_tokens_details.cached_tokens", 26),
        "cached",
    ),
    (
        "more reasoning than output",
        changed(COUNTED, "usage.completion_tokens_details.reasoning_tokens", 41),
        "reasoning",
    ),
    ("usage without details", deleted(COUNTED, "usage.prompt_tokens_details"), "details"),
    ("[DONE] after an error", cut_off(HI, ERROR), "after an error"),
    ("an error after the finish", inserted(COUNTED, ERROR), "after the finish"),
    ("more after an error", inserted(HI, ERROR), "after an error"),
    ("an error of another form", cut_off(HI, {"error": "no"}), "no object"),
    (
        "a choice that is no first",
        both(without(ROLE, THOUGHT), changed(0, DELTA, {"content": ""})),
        "role",
    ),
]


@pytest.mark.parametrize(
    ("breach", "says"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_invalid_streams_have_violations(breach: Violation, says: str) -> None:
    raw = write(breach(fresh(STREAM)))
    with pytest.raises(AssertionError, match=says):
        check(F, raw)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (write(STREAM, done=False), "no end"),
        (write(STREAM) + b"data: [DONE]\n\n", "twice"),
        (write(STREAM) + write(STREAM[:1], done=False), r"after \[DONE\]"),
        (b"event: ping\ndata: {}\n\n" + write(STREAM), "an event line"),
        (b"event: ping\n\n" + write(STREAM), "not one line"),
        (b"data: \n\n" + write(STREAM), "JSON"),
        (b"data: {}\ndata: {}\n\n" + write(STREAM), "not one line"),
        (b"data: [1]\n\n" + write(STREAM), "not an object"),
        (write(STREAM)[:-1], "within"),
    ],
)
def test_invalid_frames_have_violations(raw: bytes, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check(F, raw)


def test_valid_bodies_have_no_violations() -> None:
    check_body(F, BODY)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("id", "resp_1", "the id is"),
        ("usage.total_tokens", 1, "the total"),
        ("choices.0.finish_reason", "stop", "although a tool"),
        ("choices.0.message.tool_calls", [], "an empty list"),
        ("choices.0.message.tool_calls.0.id", "call a", "illegal"),
        ("choices.0.message.tool_calls.0.function.arguments", "", "empty"),
        ("choices.0.message.more", 1, "unknown"),
        ("choices.0.message.annotations.0.url_citation.end_index", 3, "offsets"),
        (
            "choices.0.message",
            {"role": "assistant", "content": None, "refusal": None},
            "not even text",
        ),
    ],
)
def test_invalid_bodies_have_violations(path: str, value: Any, says: str) -> None:
    (broken,) = changed(0, path, value)([deepcopy(BODY)])
    with pytest.raises(AssertionError, match=says):
        check_body(F, broken)
