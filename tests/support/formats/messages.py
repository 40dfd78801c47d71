"""The strict grammar of messages replies, as streams and whole. Independent of the gateway.

Public format: Messages, "Streaming messages". Narrower than that: one block open at a time,
indexes without gaps, thinking always signed, counts of the whole prompt in the last delta.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import orjson
from anthropic.types import Message, RawMessageStreamEvent
from jiter import from_json

from tests.support.formats.frames import (
    Object,
    by_type,
    has_fields,
    is_count,
    is_text,
    named_events,
)
from tests.support.formats.reply import Reply, UsageCounts

_EVENTS: Final = by_type(RawMessageStreamEvent)
_LEGAL = re.compile(r"[a-zA-Z0-9_-]+\Z")
_STOPS: Final = {
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
    "compaction",
}
_NEVER_AFTER_A_CALL: Final = {"end_turn", "stop_sequence"}
_MAY_CUT_A_CALL: Final = {"max_tokens", "model_context_window_exceeded", "refusal"}
_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)
_MORE_USAGE: Final = ("cache_creation", "output_tokens_details", "server_tool_use", "service_tier")
_RUN_BY_SERVER: Final = {"server_tool_use", "mcp_tool_use"}
_CALLS: Final = {"tool_use"} | _RUN_BY_SERVER
_OPEN: Final = {"server_tool_use", "mcp_tool_use", "mcp_tool_result", "compaction", "fallback"}
_PIECES: Final = {
    "text_delta": ({"text"}, "text"),
    "thinking_delta": ({"thinking"}, "thinking"),
    "input_json_delta": (_CALLS, "partial_json"),
    "signature_delta": ({"thinking"}, "signature"),
}
"""Which blocks a delta belongs to, and the field with its piece."""


def check(raw: bytes, *, errored: bool = False) -> Object:
    """The whole reply, or what came of it."""
    return check_events(named_events(raw), errored=errored)


def check_events(events: Iterable[Object | None], *, errored: bool = False) -> Object:
    """The whole reply of a stream's events, of which a library gives no comments."""
    stream = _Stream()
    for event in events:
        assert event is not None, "a comment: agents take only a ping for a sign of life"
        stream.take(event)
    stream.close(errored=errored)
    return stream.body()


def check_body(body: Object) -> None:
    if not any(block["type"] in _OPEN for block in body["content"]):
        Message.model_validate(body)
    _check_message(body)
    content = body["content"]
    assert isinstance(content, list)
    calls = set[str]()
    for block in content:
        _check_block(block, whole=True)
        if block["type"] in _CALLS:
            assert block["id"] not in calls, f"two calls {block['id']}"
            calls.add(block["id"])
    called = any(block["type"] == "tool_use" for block in content)
    _check_stop(body["stop_reason"], body["stop_sequence"], called=called)
    _check_usage(body["usage"])


def reply_of(body: Object) -> Reply:
    blocks = body["content"]
    texts = [block for block in blocks if block["type"] == "text"]
    details = body.get("stop_details")
    return Reply(
        text="".join(block["text"] for block in texts),
        stop=body["stop_reason"],
        model=body["model"],
        thinking="".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        refusal=details["explanation"] if details else None,
        calls=tuple(
            (block["id"], block["name"], block["input"])
            for block in blocks
            if block["type"] == "tool_use"
        ),
        sources=tuple(
            (citation["url"], citation["title"])
            for block in texts
            for citation in block.get("citations") or ()
        ),
        usage=_counts(body["usage"]),
        body=body,
    )


def _counts(usage: Object) -> UsageCounts:
    cached, kept = (usage.get(f"cache_{done}_input_tokens") or 0 for done in ("read", "creation"))
    return UsageCounts(
        input=usage["input_tokens"] + cached + kept,
        cached=cached,
        kept=kept,
        output=usage["output_tokens"],
        thinking=(usage.get("output_tokens_details") or {}).get("thinking_tokens", 0),
    )


class _Stream:
    def __init__(self) -> None:
        self._message: Object = {}
        self._over = False
        self._errored = False
        self._stop: str | None = None
        self._open: _Block | None = None
        self._blocks: list[_Block] = []

    def take(self, event: Object) -> None:
        kind = event["type"]
        assert not self._over, f"{kind} after the end"
        handle = self._HANDLERS.get(kind)
        assert handle is not None, f"an event of an unknown type: {kind}"
        if kind not in ("ping", "error"):
            begun = bool(self._message)
            assert begun == (kind != "message_start"), f"{kind} where it may not stand"
        handle(self, event)
        if kind not in ("ping", "error") and not _is_open(event):
            _EVENTS[kind].model_validate(event)

    def close(self, *, errored: bool) -> None:
        assert self._over, "the stream came to no end"
        assert self._errored == errored, "a proper end" if errored else "an error"

    def body(self) -> Object:
        """The whole reply that the events make."""
        return self._message | {"content": [block.whole for block in self._blocks]}

    def _on_start(self, event: Object) -> None:
        message = has_fields(event, {"type", "message"})["message"]
        _check_message(message)
        assert message["content"] == [], "content before any block"
        assert message["stop_reason"] is None, "a stop reason before the stop"
        assert message["stop_sequence"] is None, "a stop sequence before the stop"
        _check_usage(message["usage"])
        self._message = dict(message)

    def _on_block_start(self, event: Object) -> None:
        has_fields(event, {"type", "index", "content_block"})
        assert self._open is None, "a block begins while another is open"
        assert self._stop is None, "a block after the stop reason"
        assert event["index"] == len(self._blocks), f"index {event['index']} out of order"
        block = _Block(event["content_block"])
        assert not block.id or block.id not in {other.id for other in self._blocks}, (
            f"two calls {block.id}"
        )
        self._open = block
        self._blocks.append(block)

    def _on_block_delta(self, event: Object) -> None:
        has_fields(event, {"type", "index", "delta"})
        self._the_open(event["index"]).grow(event["delta"])

    def _on_block_stop(self, event: Object) -> None:
        has_fields(event, {"type", "index"})
        self._the_open(event["index"])
        self._open = None

    def _the_open(self, index: object) -> _Block:
        assert self._open is not None, "no block is open"
        assert index == len(self._blocks) - 1, f"block {index} is not the open one"
        return self._open

    def _on_delta(self, event: Object) -> None:
        delta = has_fields(event, {"type", "delta", "usage"})["delta"]
        assert self._open is None, "the message ends with a block open"
        assert self._stop is None, "two stop reasons"
        has_fields(delta, {"stop_reason", "stop_sequence"}, {"stop_details", "container"})
        called = any(block.kind == "tool_use" for block in self._blocks)
        _check_stop(delta["stop_reason"], delta["stop_sequence"], called=called)
        _check_usage(event["usage"])
        self._stop = delta["stop_reason"]
        counted = {name: value for name, value in event["usage"].items() if value is not None}
        self._message |= delta | {"usage": self._message["usage"] | counted}
        for block in self._blocks:
            block.close(cut=self._stop in _MAY_CUT_A_CALL)

    def _on_stop(self, event: Object) -> None:
        has_fields(event, {"type"})
        assert self._stop is not None, "the message stops without a stop reason"
        self._over = True

    def _on_ping(self, event: Object) -> None:
        has_fields(event, {"type"})

    def _on_error(self, event: Object) -> None:
        error = has_fields(event, {"type", "error"}, {"request_id"})["error"]
        has_fields(error, {"type", "message"}, {"details"})
        is_text(error["type"], "error.type")
        is_text(error["message"], "error.message")
        assert self._open is None, "an error while a block is open"
        assert self._stop is None, "an error after the stop reason"
        self._over = self._errored = True

    _HANDLERS: Final[dict[str, Callable[[_Stream, Object], None]]] = {
        "message_start": _on_start,
        "content_block_start": _on_block_start,
        "content_block_delta": _on_block_delta,
        "content_block_stop": _on_block_stop,
        "message_delta": _on_delta,
        "message_stop": _on_stop,
        "ping": _on_ping,
        "error": _on_error,
    }


class _Block:
    """One block while it arrives."""

    def __init__(self, block: Object) -> None:
        _check_block(block, whole=False)
        self.kind: str = block["type"]
        self.id = str(block.get("id", ""))
        self.whole = dict(block)
        self._json: str | None = None

    def grow(self, delta: Object) -> None:
        kind = delta["type"]
        if kind == "citations_delta":
            assert self.kind == "text", f"a citation of {self.kind}"
            citation = has_fields(delta, {"type", "citation"})["citation"]
            has_fields(citation, {"type"}, _CITATION)
            self.whole["citations"] = [*(self.whole.get("citations") or ()), citation]
            return
        owners, field = _PIECES[kind]
        assert self.kind in owners, f"{kind} in a block of {self.kind}"
        assert not self.whole.get("signature"), "a delta after the signature"
        has_fields(delta, {"type", field})
        if field == "partial_json":
            piece = is_text(delta[field], kind, empty=self._json is None)
            self._json = (self._json or "") + piece
        else:
            self.whole[field] += is_text(delta[field], kind)

    def close(self, *, cut: bool) -> None:
        """At the end of a message that did not fail; `cut`: a limit ended it."""
        if self.kind == "thinking":
            assert self.whole["signature"], "thinking without a signature"
        elif text := self._json:
            parsed = (
                from_json(text.encode(), partial_mode=True)
                if cut and self.kind == "tool_use"
                else orjson.loads(text)
            )
            assert isinstance(parsed, dict), f"input that is no object: {text}"
            self.whole["input"] = parsed


_CITATION: Final = {
    "url",
    "title",
    "cited_text",
    "encrypted_index",
    "source",
    "document_index",
    "document_title",
    "file_id",
    "search_result_index",
    "start_char_index",
    "end_char_index",
    "start_page_number",
    "end_page_number",
    "start_block_index",
    "end_block_index",
}


def _is_open(event: Object) -> bool:
    """Whether a block is of a kind, or an end, that the stock types do not all know."""
    if event.get("delta", {}).get("stop_reason") == "compaction":
        return True
    return event.get("content_block", {}).get("type") in _OPEN


def _check_message(message: Object) -> None:
    has_fields(
        message,
        {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"},
        {"stop_details", "container"},
    )
    assert is_text(message["id"], "id").startswith("msg_"), f"the id is {message['id']}"
    assert (message["type"], message["role"]) == ("message", "assistant")
    is_text(message["model"], "model")


def _check_block(block: Object, *, whole: bool) -> None:
    """A block as it starts, or `whole`."""
    match block["type"]:
        case "text":
            has_fields(block, {"type", "text"}, {"citations"})
            is_text(block["text"], "text", empty=True)
            assert whole or not (block["text"] or block.get("citations")), "text at the start"
        case "thinking":
            has_fields(block, {"type", "thinking", "signature"})
            is_text(block["thinking"], "thinking", empty=True)
            is_text(block["signature"], "signature", empty=not whole)
            assert whole or block["thinking"] + block["signature"] == ""
        case "redacted_thinking":
            is_text(has_fields(block, {"type", "data"})["data"], "data")
        case kind if kind in _CALLS:
            has_fields(block, {"type", "id", "name", "input"}, {"caller", "server_name"})
            assert _LEGAL.match(block["id"]), f"an illegal id: {block['id']!r}"
            is_text(block["name"], "name", empty=True)
            assert isinstance(block["input"], dict), "input that is no object"
            assert whole or block["input"] == {}, "input at the start of the block"
        case kind if kind.endswith("_tool_result"):
            assert _LEGAL.match(block["tool_use_id"]), f"illegal: {block['tool_use_id']!r}"
            assert "content" in block, f"{kind} without content"


def _check_stop(reason: object, sequence: object, *, called: bool) -> None:
    assert reason in _STOPS, f"stop reason {reason!r}"
    assert (reason == "stop_sequence") == isinstance(sequence, str), f"stop sequence {sequence!r}"
    assert isinstance(sequence, str | None)
    if called:
        assert reason not in _NEVER_AFTER_A_CALL, f"{reason} although a tool was called"
    else:
        assert reason != "tool_use", "tool_use although no tool was called"


def _check_usage(usage: object) -> None:
    known = has_fields(usage, _COUNTS, _MORE_USAGE, "usage")
    for name in _COUNTS:
        is_count(known[name], name)
    for name in ("cache_creation", "output_tokens_details", "server_tool_use"):
        for field, value in (known.get(name) or {}).items():
            is_count(value, f"{name}.{field}")
    thinking = (known.get("output_tokens_details") or {}).get("thinking_tokens", 0)
    assert thinking <= known["output_tokens"], "more thinking than output"
