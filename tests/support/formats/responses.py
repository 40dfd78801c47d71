"""The strict grammar of responses replies, as streams and whole. Independent of the gateway.

Public format: Responses, "Streaming events". Narrower than that: indexes and sequence numbers
without gaps, ids that never change, every item added and done, and the same output at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import orjson
from openai.types.responses import Response, ResponseStreamEvent

from tests.support.formats.frames import (
    Object,
    by_type,
    has_fields,
    is_count,
    is_text,
    named_events,
)
from tests.support.formats.items import Item, check_item
from tests.support.formats.reply import Reply, UsageCounts

_EVENTS: Final = by_type(ResponseStreamEvent)
_ALWAYS: Final = {
    "id",
    "object",
    "created_at",
    "status",
    "model",
    "output",
    "parallel_tool_calls",
    "tool_choice",
    "tools",
    "error",
    "incomplete_details",
    "instructions",
    "max_output_tokens",
    "metadata",
    "previous_response_id",
    "reasoning",
    "store",
    "temperature",
    "text",
    "top_p",
    "truncation",
    "usage",
    "user",
}
_SOMETIMES: Final = {
    "background",
    "completed_at",
    "frequency_penalty",
    "max_tool_calls",
    "moderation",
    "presence_penalty",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "tool_usage",
    "top_logprobs",
}
_READ: Final = ("message", "reasoning", "function_call")
_REASONS: Final = {"max_output_tokens", "content_filter", "max_messages", "steered"}


def check(raw: bytes, *, errored: bool = False) -> Object:
    """The whole reply, or what came of it."""
    return check_events(named_events(raw), errored=errored)


def check_events(events: Iterable[Object | None], *, errored: bool = False) -> Object:
    """The whole reply of a stream's events, of which a library gives no comments."""
    stream = _Stream()
    for event in events:
        if event is None:
            stream.comment()
        else:
            stream.take(event)
    stream.close(errored=errored)
    return stream.response


def check_body(body: Object) -> None:
    Response.model_validate(body)
    _check_response(body)
    assert body["status"] in ("completed", "incomplete"), f"status {body['status']}"
    _check_terminal(body)
    for item in body["output"]:
        check_item(item, whole=True)
    ids = [item["id"] for item in body["output"]]
    assert len(ids) == len(set(ids)), f"two items of one id: {ids}"
    _check_call_ids(body["output"])


def reply_of(body: Object) -> Reply:
    items = {kind: [item for item in body["output"] if item["type"] == kind] for kind in _READ}
    parts = [part for item in items["message"] for part in item["content"]]
    texts = [part for part in parts if part["type"] == "output_text"]
    refusals = [part["refusal"] for part in parts if part["type"] == "refusal"]
    details = body.get("incomplete_details")
    return Reply(
        text="".join(part["text"] for part in texts),
        stop=details["reason"] if details else body["status"],
        model=body["model"],
        thinking="".join(part["text"] for item in items["reasoning"] for part in item["summary"]),
        refusal="".join(refusals) or None,
        calls=tuple(
            (call["call_id"], call["name"], orjson.loads(call["arguments"]))
            for call in items["function_call"]
        ),
        sources=tuple(
            (annotation["url"], annotation["title"])
            for part in texts
            for annotation in part["annotations"]
        ),
        usage=_counts(body["usage"]) if body.get("usage") else None,
        body=body,
    )


def _counts(usage: Object) -> UsageCounts:
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    return UsageCounts(
        input=usage["input_tokens"],
        cached=usage["input_tokens_details"]["cached_tokens"],
        kept=usage["input_tokens_details"]["cache_write_tokens"],
        output=usage["output_tokens"],
        thinking=usage["output_tokens_details"]["reasoning_tokens"],
    )


class _Stream:
    def __init__(self) -> None:
        self._sequence = 0
        self._head: tuple[object, ...] | None = None
        self._started = False
        self._ended: str | None = None
        self._items: list[Item] = []
        self.response: Object = {}
        """As the last event has it."""

    def comment(self) -> None:
        assert self._head is None, "a comment: agents take only an event for a sign of life"

    def take(self, event: Object) -> None:
        kind = event["type"]
        assert self._ended is None, f"{kind} after the end"
        assert event["sequence_number"] == self._sequence, f"{kind}: {event['sequence_number']}"
        self._sequence += 1
        assert kind in _EVENTS, f"an event of an unknown type: {kind}"
        _EVENTS[kind].model_validate(_with_known_code(event))
        if kind == "error":
            assert self._head is None, "an error event where the response should fail"
            has_fields(event, {"type", "sequence_number", "code", "message", "param"})
            is_text(event["message"], "message")
            self._ended = kind
            return
        assert (self._head is not None) == (kind != "response.created"), f"{kind} out of place"
        if kind.removeprefix("response.") in Item.KINDS:
            self._item(event).take(event)
        else:
            handle = self._HANDLERS.get(kind)
            assert handle is not None, f"an event of an unknown type: {kind}"
            handle(self, event)

    def close(self, *, errored: bool) -> None:
        assert self._ended is not None, "the stream came to no end"
        failed = self._ended in ("error", "response.failed")
        assert failed == errored, "a proper end" if errored else "an error"

    def _item(self, event: Object) -> Item:
        assert self._started, "output before response.in_progress"
        index = event["output_index"]
        assert 0 <= index < len(self._items), f"item {index} was not added"
        return self._items[index]

    def _on_created(self, event: Object) -> None:
        self._head = self._check_head(event)

    def _on_progress(self, event: Object) -> None:
        self._check_head(event)
        self._started = True

    def _check_head(self, event: Object) -> tuple[object, ...]:
        response = has_fields(event, {"type", "sequence_number", "response"})["response"]
        head = _check_response(response)
        self.response = response
        assert self._head in (None, head), f"another response: {head}"
        assert response["status"] == "in_progress", f"status {response['status']}"
        assert (response["output"], response["usage"]) == ([], None), "an end at the start"
        assert response["error"] is None
        assert response["incomplete_details"] is None
        return head

    def _on_added(self, event: Object) -> None:
        assert self._started, "output before response.in_progress"
        has_fields(event, {"type", "sequence_number", "output_index", "item"})
        assert event["output_index"] == len(self._items), f"item {event['output_index']}"
        item = Item(event["item"])
        assert item.id not in {other.id for other in self._items}, f"two items {item.id}"
        self._items.append(item)

    def _on_done(self, event: Object) -> None:
        has_fields(event, {"type", "sequence_number", "output_index", "item"})
        item = self._item(event)
        assert item.done is None, "an item is done twice"
        item.complete(event["item"])

    def _on_end(self, event: Object) -> None:
        kind = event["type"].removeprefix("response.")
        response = has_fields(event, {"type", "sequence_number", "response"})["response"]
        assert self._started, "an end before response.in_progress"
        assert self._head == _check_response(response), "another response at the end"
        self.response = response
        assert response["status"] == kind, f"{kind}: status {response['status']}"
        assert all(item.done for item in self._items), "the response ends before its items do"
        assert response["output"] == [item.done for item in self._items], "another output"
        _check_call_ids(response["output"])
        if kind == "failed":
            error = has_fields(response["error"], {"code", "message"})
            is_text(error["code"], "error.code")
            is_text(error["message"], "error.message")
        else:
            _check_terminal(response)
        self._ended = event["type"]

    _HANDLERS: Final[dict[str, Callable[[_Stream, Object], None]]] = {
        "response.created": _on_created,
        "response.in_progress": _on_progress,
        "response.output_item.added": _on_added,
        "response.output_item.done": _on_done,
        "response.completed": _on_end,
        "response.incomplete": _on_end,
        "response.failed": _on_end,
    }


def _check_response(response: Object) -> tuple[object, ...]:
    """What stays the same from the first event to the last."""
    has_fields(response, _ALWAYS, _SOMETIMES, "response")
    assert response["object"] == "response"
    assert is_text(response["id"], "id").startswith("resp_"), f"the id is {response['id']}"
    assert type(response["created_at"]) is int
    is_text(response["model"], "model")
    assert isinstance(response["metadata"], dict | None)
    return tuple(response[name] for name in ("id", "created_at", "model"))


def _with_known_code(event: Object) -> Object:
    """The event as the stock types know it, who have a closed set of codes for what went wrong;
    servers and agents have more."""
    response = event.get("response") or {}
    if not response.get("error"):
        return event
    error = response["error"] | {"code": "server_error"}
    return event | {"response": response | {"error": error}}


def _check_terminal(response: Object) -> None:
    assert response["error"] is None, "an error at a proper end"
    statuses = {item.get("status", "completed") for item in response["output"]}
    if response["status"] == "completed":
        assert response["incomplete_details"] is None, "incomplete details of a whole response"
        assert statuses <= {"completed", "failed"}, "an incomplete item of a completed response"
    else:
        details = has_fields(response["incomplete_details"], {"reason"}, (), "incomplete_details")
        assert details["reason"] in _REASONS, f"reason {details['reason']}"
    _check_usage(response["usage"])


def _check_call_ids(items: list[Object]) -> None:
    ids = [item["call_id"] for item in items if "call_id" in item]
    assert len(ids) == len(set(ids)), f"two calls of one id: {ids}"


def _check_usage(usage: object) -> None:
    known = has_fields(
        usage,
        {
            "input_tokens",
            "input_tokens_details",
            "output_tokens",
            "output_tokens_details",
            "total_tokens",
        },
        (),
        "usage",
    )
    prompt_tokens, reply_tokens = is_count(known["input_tokens"]), is_count(known["output_tokens"])
    assert known["total_tokens"] == prompt_tokens + reply_tokens, f"the total of {known}"
    read = has_fields(known["input_tokens_details"], {"cached_tokens", "cache_write_tokens"})
    cached = is_count(read["cached_tokens"]) + is_count(read["cache_write_tokens"])
    assert cached <= prompt_tokens, f"more cached than asked: {known}"
    details = has_fields(known["output_tokens_details"], {"reasoning_tokens"})
    assert is_count(details["reasoning_tokens"]) <= reply_tokens, (
        f"more reasoning than output: {known}"
    )
