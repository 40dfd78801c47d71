"""Arriving chat streams. It must not know who asked, nor what a client gets to see.

Public format: Chat Completions, "The chat completion chunk object". Upstreams vary it: reasoning
under two names, usage on any chunk or none, finish reasons on the last piece of content, no
`[DONE]`. Only the choice with index 0 is read.

Which tool call a piece of a chat stream belongs to. It must not know text, usage or endings.

Upstreams number calls, or repeat their ids, or use one number for all; some name a call only after
its first piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from gateway.core.events import Begin, Event, Signature, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import CallKind, Part, ProviderData, Refusal, Text, Thinking, ToolCall
from gateway.core.reply import Reply, collect_reply
from gateway.wire.chat.content import parse_citation
from gateway.wire.chat.reasoning import has_signature, merge_details
from gateway.wire.chat.usage import parse_usage
from gateway.wire.event_builder import EventBuilder, normalize_stop
from gateway.wire.json_fields import (
    Payload,
    dump_json,
    lenient_object,
    lenient_objects,
    lenient_str,
)
from gateway.wire.upstream_errors import parse_stream_error

_STOP_REASONS: Final = {
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
}
_TEXT_PARTS: Final = {"text": Text, "refusal": Refusal, "thinking": Thinking}


class ChatDecoder:
    """Turns chunks into events; see `gateway.wire.codec.Decoder`."""

    __slots__ = (
        "_builder",
        "_calls",
        "_finish_reason",
        "_has_refusal",
        "_reasoning_details",
        "_usage",
    )

    def __init__(self) -> None:
        self._builder = EventBuilder()
        self._calls = ToolCallAssembler(self._builder)
        self._reasoning_details: list[Payload] = []
        self._finish_reason: str | None = None
        self._has_refusal = False
        self._usage: Usage | None = None

    def decode(self, name: bytes, data: Payload) -> Sequence[Event]:
        if data.get("error") or name == b"error" or data.get("object") == "error":
            self._builder.fail(parse_stream_error(data), self._usage)
            return self._builder.take()
        if usage := data.get("usage"):
            self._usage = parse_usage(usage, self._usage)
        choices = data.get("choices")
        if choices and isinstance(choices, list):
            if not self._builder.started:
                self._builder.begin(_parse_begin(data))
            for choice in choices:
                if isinstance(choice, dict) and not choice.get("index"):
                    self._on_choice(choice)
        return self._builder.take()

    def done(self) -> Sequence[Event]:
        if self._builder.started:
            self._calls.finish()
            self._emit_signature()
            self._builder.end(self._stop_reason(), self._usage)
        else:
            self._builder.truncate(self._usage)
        return self._builder.take()

    def close(self) -> Sequence[Event]:
        if self._finish_reason:
            return self.done()
        self._builder.truncate(self._usage)
        return self._builder.take()

    def _on_choice(self, choice: Payload) -> None:
        if finish := choice.get("finish_reason"):
            self._finish_reason = str(finish)
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        content = delta.get("content")
        if type(content) is str and content and len(delta) == 1:  # nearly every chunk is this one
            self._append_text("text", content)
            return
        self._append_text("thinking", delta.get("reasoning_content") or delta.get("reasoning"))
        if details := delta.get("reasoning_details"):
            merge_details(self._reasoning_details, details)
        self._on_content(content)
        for annotation in filter(None, lenient_objects(delta.get("annotations"))):
            self._builder.add("text", parse_citation(annotation))
        if refusal := delta.get("refusal"):
            self._has_refusal = True
            self._append_text("refusal", refusal)
        for call in lenient_objects(delta.get("tool_calls")):
            self._on_tool_call(call)
        if function := delta.get("function_call"):
            self._on_tool_call({"index": -1, "function": function})

    def _on_content(self, content: object) -> None:
        """Some upstreams send content as a list of parts, as in requests, and thoughts in it."""
        if not isinstance(content, list):
            self._append_text("text", content)
            return
        for thought, run in groupby(lenient_objects(content), key=_is_thinking):
            parts = list(run)
            if thought:
                parts = [said for part in parts for said in lenient_objects(part.get("thinking"))]
            piece = "".join(lenient_str(part.get("text")) for part in parts)
            self._append_text("thinking" if thought else "text", piece)

    def _append_text(self, kind: str, piece: object) -> None:
        if piece and isinstance(piece, str):
            if self._builder.open_part(kind) is None:
                if kind != "thinking":
                    self._emit_signature()
                self._builder.open(kind, _TEXT_PARTS[kind]())
            self._builder.add(kind, piece)

    def _on_tool_call(self, call: Payload) -> None:
        if not self._builder.tool_call_open():
            self._emit_signature()
        self._calls.add(call)

    def _emit_signature(self) -> None:
        """The details prove the thinking that is open; those that come later prove it too, but
        stand for themselves, for it cannot be opened again."""
        if not self._reasoning_details:
            return
        details, self._reasoning_details = self._reasoning_details, []
        if not any(map(has_signature, details)):
            return
        proof = ProviderData(Format.CHAT, details)
        if self._builder.open_part("thinking") is None:
            self._builder.open("thinking", Thinking(signature=proof, redacted=True))
        else:
            self._builder.add("thinking", Signature(proof))
        self._builder.close("thinking")

    def _stop_reason(self) -> StopReason:
        stop = parse_finish_reason(self._finish_reason)
        refused = self._has_refusal and not self._builder.tool_called
        return StopReason.REFUSAL if refused and stop is StopReason.END_TURN else stop


def _is_thinking(part: Payload) -> bool:
    return part.get("type") == "thinking"


def parse_finish_reason(finish: object) -> StopReason:
    """What a finish reason means where nothing but text was said."""
    return (
        _STOP_REASONS.get(finish, StopReason.END_TURN)
        if isinstance(finish, str)
        else StopReason.END_TURN
    )


def _parse_begin(data: Payload) -> Begin:
    opening = {key: value for key, value in data.items() if key not in ("choices", "usage")}
    return Begin(
        id=lenient_str(data.get("id")),
        model=lenient_str(data.get("model")),
        extra=ProviderData(Format.CHAT, opening),
    )


_CALL_FIELDS: Final = {"index", "id", "type", "function", "custom"}


class _PendingCall:
    """One call, and what came of it before it had a name."""

    __slots__ = ("buffered", "extra", "id", "index", "is_open", "kind")

    def __init__(self, number: int | None, id: str, kind: CallKind, entry: Payload) -> None:
        self.extra = _unknown_call_fields(entry)
        self.index = number
        self.id = id
        self.kind = kind
        self.is_open = False
        self.buffered: list[str] = []


class ToolCallAssembler:
    """The calls of one reply so far."""

    __slots__ = ("_builder", "_calls")

    def __init__(self, assembly: EventBuilder) -> None:
        self._builder = assembly
        self._calls: list[_PendingCall] = []

    def add(self, entry: Payload) -> None:
        """One entry of `tool_calls`: the start of a call, a piece of one, or all of it."""
        kind = CallKind.CUSTOM if isinstance(entry.get("custom"), dict) else CallKind.FUNCTION
        said = lenient_object(entry.get(kind))
        number, id, name = (
            entry.get("index"),
            lenient_str(entry.get("id")),
            lenient_str(said.get("name")),
        )
        call = self._find(number, id, name)
        if call is None:
            call = _PendingCall(number if isinstance(number, int) else None, id, kind, entry)
            self._calls.append(call)
        piece = _arguments_text(said.get("arguments" if kind is CallKind.FUNCTION else "input"))
        if call.is_open:
            self._builder.add(call, piece)
            return
        call.id = call.id or id
        call.buffered.append(piece)
        if name:
            self._open_call(call, name)

    def finish(self) -> None:
        """At the end: a call that was never named still shows."""
        for call in self._calls:
            if not call.is_open and call.id:
                self._open_call(call, "")

    def _open_call(self, call: _PendingCall, name: str) -> None:
        call.is_open = True
        self._builder.open(call, ToolCall(call.id, name, kind=call.kind, extra=call.extra))
        self._builder.add(call, "".join(call.buffered))

    def _find(self, number: Any, id: str, name: str) -> _PendingCall | None:
        """The call that a piece goes on with, None where it begins a new one."""
        for call in reversed(self._calls):
            if isinstance(number, int):
                found = call.index == number
            else:
                found = call.id == id if id else not name
            if found:
                another = id and name and call.id and call.id != id
                return None if another else call
        return None


def parse_call(entry: object) -> ToolCall | None:
    """A call that is all there; None of one without a name, for which `Calls` knows more."""
    if not isinstance(entry, dict):
        return None
    kind, field = CallKind.FUNCTION, "arguments"
    if isinstance(entry.get("custom"), dict):
        kind, field = CallKind.CUSTOM, "input"
    said = lenient_object(entry.get(kind))
    if not (name := lenient_str(said.get("name"))):
        return None
    id, arguments = lenient_str(entry.get("id")), _arguments_text(said.get(field))
    return ToolCall(id, name, arguments, kind, extra=_unknown_call_fields(entry))


def _unknown_call_fields(entry: Payload) -> ProviderData | None:
    if entry.keys() <= _CALL_FIELDS:
        return None
    rest = {name: value for name, value in entry.items() if name not in _CALL_FIELDS and value}
    return ProviderData(Format.CHAT, rest) if rest else None


def _arguments_text(value: object) -> str:
    """Some upstreams send the arguments as the object that they should spell."""
    return dump_json(value) if isinstance(value, dict) else lenient_str(value)


_RARE_FIELDS: Final = ("function_call", "refusal", "reasoning_details", "annotations")


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is an error or has no choice in it."""
    message = _simple_message(body)
    parts = _simple_parts(message) if message is not None else None
    if parts is None:
        return _parse_with_decoder(body)
    called = any([type(part) is ToolCall for part in parts])
    return Reply(
        id=lenient_str(body.get("id")),
        model=lenient_str(body.get("model")),
        parts=tuple(parts),
        stop=normalize_stop(parse_finish_reason(body["choices"][0].get("finish_reason")), called),
        usage=parse_usage(body.get("usage") or None),
    )


def read_usage(body: Payload) -> tuple[StopReason, Usage | None]:
    """Raises `ReplyFailed` like `parse_reply`."""
    message = _simple_message(body)
    if message is not None and message.get("content") and not message.get("tool_calls"):
        stop = parse_finish_reason(body["choices"][0].get("finish_reason"))
        return stop, parse_usage(body.get("usage") or None)
    reply = parse_reply(body)
    return reply.stop, reply.usage


def _parse_with_decoder(body: Payload) -> Reply:
    choices = body.get("choices")
    chunk = body
    if isinstance(choices, list):
        chunk = body | {"choices": [_as_delta(choice) for choice in choices]}
    decoder = ChatDecoder()
    return collect_reply([*decoder.decode(b"", chunk), *decoder.done()])


def _simple_message(body: Payload) -> Payload | None:
    """The message of a body that holds nothing but one choice, and in it nothing but thoughts, text
    and calls; None of any other."""
    choices = body.get("choices")
    if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
        return None
    if body.get("error") or body.get("object") == "error" or choices[0].get("index"):
        return None
    message = choices[0].get("message")
    return message if type(message) is dict and not any(map(message.get, _RARE_FIELDS)) else None


def _simple_parts(message: Payload) -> list[Part] | None:
    """What the decoder makes of such a message; None where that has to be left to it."""
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    content, calls = message.get("content"), message.get("tool_calls")
    parts: list[Part] = []
    if thoughts and isinstance(thoughts, str):
        parts.append(Thinking(thoughts))
    if isinstance(content, list):
        return None
    if content and isinstance(content, str):
        parts.append(Text(content))
    if not calls:
        return parts
    read = [parse_call(call) for call in calls] if isinstance(calls, list) else [None]
    known = [call for call in read if call is not None]
    return [*parts, *known] if len(known) == len(read) else None


def _as_delta(choice: Any) -> Any:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return choice
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message = message | {
            "tool_calls": [
                call | {"index": index} if isinstance(call, dict) else call
                for index, call in enumerate(calls)
            ]
        }
    return choice | {"delta": message}
