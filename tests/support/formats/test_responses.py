"""The checker of responses replies: what it lets pass, and one broken stream for every rule."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import orjson
import pytest

from tests.support.formats.readers import check, check_body
from tests.support.formats.responses import reply_of
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

F = "responses"
USAGE = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
    "output_tokens": 40,
    "output_tokens_details": {"reasoning_tokens": 7},
    "total_tokens": 70,
}
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1700000000,
    "status": "in_progress",
    "model": "beta-1",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "previous_response_id": None,
    "reasoning": None,
    "store": False,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "top_p": None,
    "truncation": "disabled",
    "usage": None,
    "user": None,
}
CITED = {
    "type": "url_citation",
    "start_index": 0,
    "end_index": 2,
    "title": "T",
    "url": "https://x.example",
}
EMPTY_TEXT = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
HI_TEXT = EMPTY_TEXT | {"text": "Hi", "annotations": [CITED]}
SUMMARY = {"type": "summary_text", "text": "hm"}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "status": "completed",
    "summary": [SUMMARY],
    "encrypted_content": "gw1.x",
}
MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [HI_TEXT],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "status": "completed",
    "call_id": "call_a",
    "name": "f",
    "arguments": '{"a":1}',
}
CUSTOM = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "status": "completed",
    "call_id": "call_b",
    "name": "g",
    "input": "free",
}
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}


def head(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": RESPONSE | more}


def added(index: int, item: dict[str, Any], **empty: Any) -> dict[str, Any]:
    item = item | {"status": "in_progress"} | empty
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def of(index: int, item: dict[str, Any], kind: str, **more: Any) -> dict[str, Any]:
    return {
        "type": f"response.{kind}",
        "output_index": index,
        "item_id": item["id"],
        **more,
    }


AT: dict[str, Any] = {"content_index": 0}
STREAM: Events = [
    head("created"),
    head("in_progress"),
    added(0, {key: REASONING[key] for key in ("type", "id")}, summary=[]),
    of(0, REASONING, "reasoning_summary_part.added", summary_index=0, part=SUMMARY | {"text": ""}),
    of(0, REASONING, "reasoning_summary_text.delta", summary_index=0, delta="hm"),
    of(0, REASONING, "reasoning_summary_text.done", summary_index=0, text="hm"),
    of(0, REASONING, "reasoning_summary_part.done", summary_index=0, part=SUMMARY),
    done(0, REASONING),
    added(1, MESSAGE, content=[]),
    of(1, MESSAGE, "content_part.added", **AT, part=EMPTY_TEXT),
    of(1, MESSAGE, "output_text.delta", **AT, delta="Hi", logprobs=[]),
    of(1, MESSAGE, "output_text.annotation.added", **AT, annotation_index=0, annotation=CITED),
    of(1, MESSAGE, "output_text.done", **AT, text="Hi", logprobs=[]),
    of(1, MESSAGE, "content_part.done", **AT, part=HI_TEXT),
    done(1, MESSAGE),
    added(2, CALL, arguments=""),
    of(2, CALL, "function_call_arguments.delta", delta='{"a":1}'),
    of(2, CALL, "function_call_arguments.done", arguments='{"a":1}', name="f"),
    done(2, CALL),
    added(3, CUSTOM, input=""),
    of(3, CUSTOM, "custom_tool_call_input.delta", delta="free"),
    of(3, CUSTOM, "custom_tool_call_input.done", input="free"),
    done(3, CUSTOM),
    added(4, {key: SEARCH[key] for key in ("type", "id", "action")}),
    of(4, SEARCH, "web_search_call.in_progress"),
    of(4, SEARCH, "web_search_call.searching"),
    of(4, SEARCH, "web_search_call.completed"),
    done(4, SEARCH),
    head(
        "completed",
        status="completed",
        output=[REASONING, MESSAGE, CALL, CUSTOM, SEARCH],
        usage=USAGE,
    ),
]
CREATED, PROGRESS, THINK, SUMMARIZE, THOUGHT, THOUGHT_DONE, SUMMARIZED, UNTHINK = range(8)
SPEAK, PART, HI, CITE, HI_DONE, PART_DONE, UNSPEAK = range(8, 15)
CALLED, ARGUMENTS, ARGUMENTS_DONE, UNCALLED = range(15, 19)
CUSTOM_CALLED, INPUT, INPUT_DONE, CUSTOM_DONE = range(19, 23)
SEARCHED, SEARCHING = 23, 25
END = len(STREAM) - 1
FAILED = head("failed", status="failed", error={"code": "server_error", "message": "no"})
ERROR = {"type": "error", "code": "server_error", "message": "no", "param": None}


def write(events: Events) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n"
        % (event["type"].encode(), orjson.dumps(event | {"sequence_number": number}))
        for number, event in enumerate(events)
    )


def test_valid_streams_have_no_violations() -> None:
    check(F, write(STREAM))
    check(F, b": alive\n\n" + write(STREAM))
    check(F, write([*STREAM[:HI], STREAM[PROGRESS], *STREAM[HI:]]))


def test_the_whole_reply_of_a_stream_is_read() -> None:
    body = check(F, write(STREAM))
    assert body == STREAM[END]["response"]
    reply = reply_of(body)
    assert (reply.text, reply.thinking, reply.stop, reply.model) == (
        "Hi",
        "hm",
        "completed",
        RESPONSE["model"],
    )
    assert reply.calls == (("call_a", "f", {"a": 1}),)
    assert reply.sources == ((CITED["url"], CITED["title"]),)
    assert reply.usage is not None and reply.usage.input == USAGE["input_tokens"]


def test_items_may_interleave() -> None:
    check(F, write(moved(CALLED, SPEAK)(_renumbered())))


def _renumbered() -> Events:
    """The call is the second item, so it may begin before the message does."""
    events = fresh(STREAM)
    for event in events:
        if event.get("output_index") in (1, 2):
            event["output_index"] = 3 - event["output_index"]
    output = events[END]["response"]["output"]
    output[1], output[2] = output[2], output[1]
    return events


def test_streams_may_end_with_an_expected_error() -> None:
    for stop in (SPEAK, CALLED):
        output = STREAM[END]["response"]["output"][: 1 + (stop == CALLED)]
        failed = {**FAILED, "response": FAILED["response"] | {"output": output}}
        check(F, write([*STREAM[:stop], failed]), errored=True)
        with pytest.raises(AssertionError, match="an error"):
            check(F, write([*STREAM[:stop], failed]))
    check(F, write([ERROR]), errored=True)
    check(F, write([*STREAM[:2], FAILED]), errored=True)
    with pytest.raises(AssertionError, match="a proper end"):
        check(F, write(STREAM), errored=True)


def test_limits_may_end_replies() -> None:
    partial = CALL | {"arguments": '{"a', "status": "incomplete"}
    head_of = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [partial],
        "usage": USAGE,
    }
    events = [
        *STREAM[:2],
        added(0, CALL, arguments=""),
        of(0, CALL, "function_call_arguments.delta", delta='{"a'),
        of(0, CALL, "function_call_arguments.done", arguments='{"a', name="f"),
        done(0, partial),
        head("incomplete", **head_of),
    ]
    check(F, write(events))
    check_body(F, RESPONSE | head_of)


BROKEN: list[tuple[str, Violation, str]] = [
    ("nothing at all", cut_off(0), "no end"),
    ("no end", cut_off(END), "no end"),
    ("no created", without(CREATED), "out of place"),
    ("two created", inserted(PROGRESS, STREAM[CREATED]), "out of place"),
    ("no in_progress", without(PROGRESS), "before response.in_progress"),
    ("after the end", inserted(END + 1, STREAM[PROGRESS]), "after the end"),
    ("an unknown event", inserted(2, {"type": "keepalive"}), "keepalive|union_tag"),
    ("another response", changed(PROGRESS, "response.id", "resp_2"), "another response"),
    ("another response at the end", changed(END, "response.id", "resp_2"), "another response"),
    ("another model at the end", changed(END, "response.model", "beta-2"), "another response"),
    ("another kind of id", changed(CREATED, "response.id", "chatcmpl-1"), "the id is"),
    ("half a response", deleted(END, "response.tools"), "tools"),
    ("an unknown field", changed(END, "response.more", 1), "unknown"),
    ("usage at the start", changed(CREATED, "response.usage", USAGE), "at the start"),
    ("output at the start", changed(CREATED, "response.output", [MESSAGE]), "at the start"),
    ("another status", changed(CREATED, "response.status", "completed"), "status"),
    ("another status at the end", changed(END, "response.status", "in_progress"), "status"),
    ("no usage at the end", changed(END, "response.usage", None), "usage"),
    ("usage that does not add up", changed(END, "response.usage.total_tokens", 1), "the total"),
    (
        "usage without details",
        deleted(END, "response.usage.input_tokens_details.cache_write_tokens"),
        "cache_write_tokens",
    ),
    (
        "more reasoning than output",
        changed(END, "response.usage.output_tokens_details.reasoning_tokens", 41),
        "reasoning",
    ),
    ("no output at the end", changed(END, "response.output", []), "another output"),
    ("half the output at the end", deleted(END, "response.output.1"), "another output"),
    ("an item never done", without(UNCALLED), "before its items"),
    ("an item done twice", inserted(UNTHINK, STREAM[UNTHINK]), "done twice"),
    ("an item never added", without(CALLED), "item|function_call"),
    ("an output index skipped", changed(SPEAK, "output_index", 2), "item 2"),
    ("an output index repeated", changed(SPEAK, "output_index", 0), "item 0"),
    ("an id repeated", changed(CUSTOM_CALLED, "item.id", "fc_1"), "fc_1"),
    ("an id that changes", changed(UNSPEAK, "item.id", "msg_2"), "another item"),
    ("an item_id that changes", changed(HI, "item_id", "msg_2"), "not msg_1"),
    ("another kind of item id", changed(SPEAK, "item.id", "rs_9"), "message rs_9"),
    ("an item done as in progress", changed(UNSPEAK, "item.status", "in_progress"), "status"),
    ("an item added as done", changed(SPEAK, "item.status", "completed"), "status"),
    ("an item added with content", changed(SPEAK, "item.content", [HI_TEXT]), "at the start"),
    ("an item added with arguments", changed(CALLED, "item.arguments", "{}"), "at the start"),
    ("a delta before its item", moved(THOUGHT, THINK), "was not added"),
    ("a delta after its item", moved(HI, UNSPEAK + 1), "after the item|without a part|after"),
    ("a delta of another item", changed(HI, "output_index", 0), "after the item"),
    ("a delta without its part", without(PART), "without a part"),
    ("a summary without its part", without(SUMMARIZE), "without a part"),
    ("a delta of another part", changed(HI, "content_index", 1), "another part"),
    ("a part out of order", changed(PART, "content_index", 1), "part 1"),
    ("a part of reasoning in a message", changed(PART, "part", SUMMARY), "summary_text"),
    ("a part that starts with text", changed(PART, "part.text", "H"), "at the start"),
    ("a part never done", without(PART_DONE), "a part open"),
    ("a text never done", without(HI_DONE), "before its text"),
    ("a text done twice", inserted(HI_DONE, STREAM[HI_DONE]), "ends twice"),
    ("another text when done", changed(HI_DONE, "text", "Ho"), "after"),
    ("another part when done", changed(PART_DONE, "part.text", "Ho"), "after"),
    ("another item when done", changed(UNSPEAK, "item.content.0.text", "Ho"), "content:"),
    ("another summary when done", changed(UNTHINK, "item.summary", []), "summary"),
    ("an annotation never added", without(CITE), "after"),
    ("an annotation out of order", changed(CITE, "annotation_index", 1), "out of order"),
    ("an empty delta", changed(HI, "delta", ""), "empty"),
    ("an empty delta of a call", changed(ARGUMENTS, "delta", ""), "empty"),
    ("a delta without logprobs", deleted(HI, "logprobs"), "logprobs"),
    ("arguments never done", without(ARGUMENTS_DONE), "before its arguments"),
    ("arguments done twice", inserted(UNCALLED, STREAM[ARGUMENTS_DONE]), "ends twice"),
    ("other arguments when done", changed(ARGUMENTS_DONE, "arguments", "{}"), "deltas say"),
    ("other arguments in the item", changed(UNCALLED, "item.arguments", "{}"), "deltas say"),
    ("another name when done", changed(UNCALLED, "item.name", "g"), "another name"),
    ("another call_id when done", changed(UNCALLED, "item.call_id", "call_z"), "call_id"),
    ("a piece after the arguments", moved(ARGUMENTS, ARGUMENTS_DONE), "deltas say|after the end"),
    ("a call that says nothing", without(ARGUMENTS), "deltas say"),
    ("free text as arguments", changed(INPUT, "type", STREAM[ARGUMENTS]["type"]), "in an item of"),
    ("an illegal id of a call", changed(CALLED, "item.call_id", "call a"), "illegal"),
    ("a search out of order", without(SEARCHING), "of search"),
    ("a search without its end", without(SEARCHING, SEARCHING + 1), "without its end"),
    ("more after an error", inserted(END, FAILED), "output|before"),
    ("an error event where the response should fail", cut_off(SPEAK, ERROR), "should fail"),
    ("an error without words", cut_off(0, ERROR | {"message": ""}), "empty"),
    (
        "a completed response that is incomplete",
        both(
            changed(UNCALLED, "item.status", "incomplete"),
            changed(END, "response.output.2.status", "incomplete"),
        ),
        "incomplete item",
    ),
    (
        "two calls of one id",
        both(
            changed(CUSTOM_CALLED, "item.call_id", "call_a"),
            changed(CUSTOM_DONE, "item.call_id", "call_a"),
            changed(END, "response.output.3.call_id", "call_a"),
        ),
        "two calls",
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
    ("old", "new", "says"),
    [
        (b'"sequence_number":3}', b'"sequence_number":4}', "sequence_number|: 4"),
        (b'"sequence_number":0}', b'"sequence_number":1}', ": 1"),
        (b',"sequence_number":3}', b"}", "sequence_number"),
        (b"event: response.in_progress\n", b"", "no event line"),
        (b"event: response.in_progress\n", b": alive\n\nevent: response.in_progress\n", "comment"),
        (b"event: response.in_progress\n", b"event: response.queued\n", "over"),
    ],
)
def test_invalid_frames_have_violations(old: bytes, new: bytes, says: str) -> None:
    raw = write(STREAM)
    assert old in raw
    with pytest.raises(AssertionError, match=says):
        check(F, raw.replace(old, new, 1))
    with pytest.raises(AssertionError, match="a mark"):
        check(F, raw + b"data: [DONE]\n\n")


def test_valid_bodies_have_no_violations() -> None:
    check_body(F, STREAM[END]["response"])


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("id", "msg_1", "the id is"),
        ("status", "in_progress", "status"),
        ("usage", None, "usage"),
        ("usage.total_tokens", 1, "the total"),
        ("output.0.id", "msg_1", "reasoning msg_1"),
        ("output.1.content.0.annotations.0.end_index", 3, "offsets"),
        ("output.2.status", "incomplete", "incomplete item"),
        ("output.2.call_id", "call_b", "two calls"),
        ("output.1.content.0.more", 1, "unknown"),
    ],
)
def test_invalid_bodies_have_violations(path: str, value: Any, says: str) -> None:
    (broken,) = changed(0, path, value)([deepcopy(STREAM[END]["response"])])
    with pytest.raises(AssertionError, match=says):
        check_body(F, broken)
