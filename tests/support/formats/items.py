"""The strict grammar of one output item of a responses stream. Independent of the response
around it, nor the gateway.

Public format: Responses, "Streaming events": added empty, its parts one by one, then done whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tests.support.formats.frames import Object, has_fields, is_text

_LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_PREFIXES: Final = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
    "web_search_call": "ws_",
}
_FIELDS: Final = {
    "message": ({"type", "id", "role", "status", "content"}, {"phase"}),
    "reasoning": ({"type", "id", "summary"}, {"status", "content", "encrypted_content"}),
    "function_call": ({"type", "id", "status", "call_id", "name", "arguments"}, {"namespace"}),
    "custom_tool_call": ({"type", "id", "status", "call_id", "name", "input"}, {"namespace"}),
    "web_search_call": ({"type", "id", "status"}, {"action", "encrypted_content"}),
}
_STATUSES: Final = {"completed", "incomplete"}
_PARTS: Final = {
    "output_text": ({"type", "text", "annotations", "logprobs"}, "text"),
    "refusal": ({"type", "refusal"}, "refusal"),
    "reasoning_text": ({"type", "text"}, "text"),
    "summary_text": ({"type", "text"}, "text"),
}
_SPEECH: Final = {
    "function_call": ("function_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
}


class Item:
    """One item while it arrives. `done` is the whole item once it is there."""

    def __init__(self, item: Object) -> None:
        check_item(item, whole=False)
        self.kind: str = item["type"]
        self.id: str = item["id"]
        self.done: Object | None = None
        self._begun = item
        self._parts = {"content": list[Object](), "summary": list[Object]()}
        self._open: tuple[str, Object] | None = None
        self._said = ""
        self._finished = False
        self._stage = 0

    def take(self, event: Object) -> None:
        """An event about the inside of the item, its type without the prefix `response.`."""
        kind = event["type"].removeprefix("response.")
        assert self.done is None, f"{kind} after the item"
        owner, handle = self._HANDLERS[kind]
        assert self.kind in owner, f"{kind} in an item of type {self.kind}"
        assert event["item_id"] == self.id, f"{kind} of item {event['item_id']}, not {self.id}"
        handle(self, event)

    def complete(self, item: Object) -> None:
        check_item(item, whole=True)
        assert (item["type"], item["id"]) == (self.kind, self.id), f"another item: {item}"
        assert self._open is None, "the item ends with a part open"
        if self.kind in _SPEECH:
            self._complete_call(item)
        elif self.kind == "web_search_call":
            ended = self._stage == 3 or item["status"] in ("incomplete", "failed")
            assert ended, "a search without its end"
        elif self.kind in _FIELDS:
            for name in {"content", "summary"} & set(item):
                assert (item[name] or []) == self._parts[name], f"{name}: {item[name]}"
        self.done = item

    def _complete_call(self, item: Object) -> None:
        field = _SPEECH[self.kind][1]
        assert self._finished, f"the item ends before its {field} do"
        assert item[field] == self._said, f"{item[field]!r}, but the deltas say {self._said!r}"
        for name in ("call_id", "name", "namespace"):
            assert item.get(name) == self._begun.get(name), f"another {name}: {item.get(name)}"
        unsaid = item["status"] == "incomplete" or self.kind == "custom_tool_call"
        is_text(item[field], field, empty=unsaid)

    # parts of messages and of reasoning

    def _part_added(self, event: Object) -> None:
        place = _place(event)
        parts = self._parts[place]
        assert self._open is None, "a part begins while another is open"
        assert event[f"{place}_index"] == len(parts), f"part {event[f'{place}_index']}"
        part = _check_part(event["part"], self.kind)
        field = _PARTS[part["type"]][1]
        assert part[field] == "", "text at the start of a part"
        assert part.get("annotations", []) == []
        started = part | ({"annotations": []} if "annotations" in part else {})
        parts.append(started)
        self._open = place, started

    def _piece(self, event: Object) -> None:
        part, field = self._opened(event)
        part[field] += is_text(event["delta"], event["type"])
        assert event.get("logprobs", []) == []

    def _annotation(self, event: Object) -> None:
        part, _ = self._opened(event)
        assert event["annotation_index"] == len(part["annotations"]), "an annotation out of order"
        part["annotations"].append(event["annotation"])

    def _text_done(self, event: Object) -> None:
        part, field = self._opened(event)
        assert event[field] == part[field], f"{event[field]!r} after {part[field]!r}"
        assert not self._finished, "a text ends twice"
        self._finished = True

    def _part_done(self, event: Object) -> None:
        part, _ = self._opened(event)
        assert self._finished, "a part ends before its text does"
        assert event["part"] == part, f"{event['part']} after {part}"
        _check_part(part, self.kind)
        self._open, self._finished = None, False

    def _opened(self, event: Object) -> tuple[Object, str]:
        assert self._open is not None, f"{event['type']} without a part"
        place, part = self._open
        assert event.get(f"{place}_index") == len(self._parts[place]) - 1, "another part's event"
        kind = event["type"].removeprefix("response.").partition(".")[0]
        allowed = _TOLD_BY[part["type"]]
        assert kind in allowed, f"{kind} in a part of type {part['type']}"
        return part, _PARTS[part["type"]][1]

    # calls and searches

    def _argument(self, event: Object) -> None:
        assert not self._finished, "a piece after the end of the call"
        self._said += is_text(event["delta"], event["type"])

    def _argument_done(self, event: Object) -> None:
        field = _SPEECH[self.kind][1]
        assert not self._finished, "a call ends twice"
        assert event[field] == self._said, f"{event[field]!r}, but the deltas say {self._said!r}"
        assert event.get("name", self._begun["name"]) == self._begun["name"], "another name"
        self._finished = True

    def _search(self, event: Object) -> None:
        stage = event["type"].rpartition(".")[2]
        assert stage == ("in_progress", "searching", "completed")[self._stage], f"{stage} of search"
        self._stage += 1

    _HANDLERS: Final[dict[str, tuple[set[str], Callable[[Item, Object], None]]]] = {
        "content_part.added": ({"message", "reasoning"}, _part_added),
        "content_part.done": ({"message", "reasoning"}, _part_done),
        "output_text.delta": ({"message"}, _piece),
        "output_text.annotation.added": ({"message"}, _annotation),
        "output_text.done": ({"message"}, _text_done),
        "refusal.delta": ({"message"}, _piece),
        "refusal.done": ({"message"}, _text_done),
        "reasoning_text.delta": ({"reasoning"}, _piece),
        "reasoning_text.done": ({"reasoning"}, _text_done),
        "reasoning_summary_part.added": ({"reasoning"}, _part_added),
        "reasoning_summary_part.done": ({"reasoning"}, _part_done),
        "reasoning_summary_text.delta": ({"reasoning"}, _piece),
        "reasoning_summary_text.done": ({"reasoning"}, _text_done),
        "function_call_arguments.delta": ({"function_call"}, _argument),
        "function_call_arguments.done": ({"function_call"}, _argument_done),
        "custom_tool_call_input.delta": ({"custom_tool_call"}, _argument),
        "custom_tool_call_input.done": ({"custom_tool_call"}, _argument_done),
        "web_search_call.in_progress": ({"web_search_call"}, _search),
        "web_search_call.searching": ({"web_search_call"}, _search),
        "web_search_call.completed": ({"web_search_call"}, _search),
    }

    KINDS = frozenset(_HANDLERS)


_TOLD_BY: Final = {
    "output_text": {"output_text", "content_part"},
    "refusal": {"refusal", "content_part"},
    "reasoning_text": {"reasoning_text", "content_part"},
    "summary_text": {"reasoning_summary_text", "reasoning_summary_part"},
}


def check_item(item: Object, *, whole: bool) -> None:
    """An item as it is added, or `whole`."""
    kind = item["type"]
    is_text(item["id"], "id")
    if kind not in _FIELDS:  # of its own format alone, and then whole from the start
        return
    has_fields(item, *_FIELDS[kind], kind)
    assert item["id"].startswith(_PREFIXES[kind]), f"{kind} {item['id']}"
    status = item.get("status", "completed" if whole else "in_progress")
    statuses = {*_STATUSES, "failed"} if kind == "web_search_call" else _STATUSES
    assert (status in statuses) if whole else status == "in_progress", f"status {status}"
    if kind in _SPEECH:
        assert _LEGAL.match(item["call_id"]), f"an illegal id: {item['call_id']!r}"
        is_text(item["name"], "name", empty=True)
        is_text(item[_SPEECH[kind][1]], "arguments", empty=True)
        assert whole or item[_SPEECH[kind][1]] == "", "arguments at the start of the item"
    for name in {"content", "summary"} & set(item):
        assert whole or item[name] in ([], None), f"{name} at the start of the item"
        for part in item[name] or []:
            _check_part(part, kind)


def _check_part(part: Object, item: str) -> Object:
    kind = part["type"]
    assert (kind in ("output_text", "refusal")) == (item == "message"), f"{kind} in {item}"
    fields, field = _PARTS[kind]
    has_fields(part, fields, (), kind)
    is_text(part[field], kind, empty=True)
    for annotation in part.get("annotations", ()):
        assert annotation["type"] == "url_citation", f"{annotation}"
        has_fields(annotation, {"type", "start_index", "end_index", "title", "url"})
        start, end = annotation["start_index"], annotation["end_index"]
        assert 0 <= start <= end <= len(part["text"]), f"offsets of {annotation}"
    return part


def _place(event: Object) -> str:
    return "summary" if "summary_index" in event else "content"
