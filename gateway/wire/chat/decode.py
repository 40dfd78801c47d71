"""Parses replies of chat upstreams: a stream to events, or one body.

Public format: Chat Completions, "The chat completion chunk object". Upstreams vary it: reasoning
under two names, usage on any chunk or none, finish reasons on the last piece of content, calls by
index, by id or all with one index, names after the first piece of a call, no `[DONE]`. Only the
choice with index 0 is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from gateway.core.events import Begin, Event, Signature, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
    Part,
    ProviderData,
    Refusal,
    ReplyField,
    Text,
    Thinking,
    ToolCall,
    UnknownPart,
)
from gateway.core.reply import Reply, collect_reply
from gateway.wire.chat.content import parse_citation
from gateway.wire.chat.reasoning import (
    CALL_EXTRA,
    REASONING_FIELDS,
    call_extra_entry,
    detail_text,
    has_signature,
    merge_details,
)
from gateway.wire.chat.usage import parse_usage
from gateway.wire.json.fields import (
    Payload,
    dump_json,
    lenient_object,
    lenient_objects,
    lenient_str,
)
from gateway.wire.stream.event_builder import EventBuilder, normalize_stop
from gateway.wire.upstream_errors import parse_stream_error

_STOP_REASONS: Final = {
    **dict.fromkeys(
        (
            *("", "stop", "stop_sequence", "end_turn", "eos", "eos_token", "complete", "completed"),
            *("tool_calls", "tool_call", "tool_use", "function_call"),
        ),
        StopReason.END_TURN,
    ),
    **dict.fromkeys(
        ("length", "max_tokens", "max_output_tokens", "model_length"), StopReason.MAX_TOKENS
    ),
    **dict.fromkeys(
        ("content_filter", "safety", "recitation", "sensitive", "refusal"), StopReason.REFUSAL
    ),
}
"""Reasons of the format and compatible servers; without one a reply that has an end is complete."""
_TEXT_PARTS: Final = {"text": Text, "refusal": Refusal, "thinking": Thinking}
_CALL_FIELDS: Final = {"index", "id", "type", "function", "custom"}
_MESSAGE_FIELDS: Final = {
    *("role", "content", "refusal", "annotations", "tool_calls", "function_call"),
    *REASONING_FIELDS,
}
_RARE_FIELDS: Final = ("function_call", "refusal", "reasoning_details", "annotations")
_MODERATION: Final = "moderation"
_MAX_UNKNOWN: Final = 16
"""Names of other fields of a message that are kept: an upstream chooses them."""


class ChatDecoder:
    """See `gateway.wire.codec.Decoder`."""

    __slots__ = (
        *("_builder", "_calls", "_fields", "_finish_reason", "_has_reasoning", "_has_refusal"),
        *("_late_annotations", "_reasoning_details", "_service_tier", "_usage"),
    )

    def __init__(self) -> None:
        self._builder = EventBuilder()
        self._late_annotations: list[Payload] = []
        self._calls = ToolCallAssembler(self._builder)
        self._reasoning_details: list[Payload] = []
        self._fields: Payload = {}
        self._finish_reason: str | None = None
        self._has_reasoning = False
        self._has_refusal = False
        self._service_tier = ""
        self._usage: Usage | None = None

    def decode(self, name: bytes, data: Payload) -> Sequence[Event]:
        if data.get("error") or name == b"error" or data.get("object") == "error":
            self._builder.fail(parse_stream_error(data), self._usage)
            return self._builder.take()
        if usage := data.get("usage"):
            self._usage = parse_usage(usage, self._usage)
            self._service_tier = lenient_str(data.get("service_tier")) or self._service_tier
        if moderation := data.get(_MODERATION):
            self._fields[_MODERATION] = moderation
        choices = data.get("choices")
        if choices and isinstance(choices, list):
            if not self._builder.started:
                fields = {name: data[name] for name in data if name not in ("choices", "usage")}
                extra = ProviderData(Format.CHAT, fields)
                id, model = lenient_str(data.get("id")), lenient_str(data.get("model"))
                self._service_tier = lenient_str(data.get("service_tier"))
                self._builder.begin(Begin(id, model, extra=extra))
            for choice in choices:
                if isinstance(choice, dict) and not choice.get("index"):
                    self._on_choice(choice)
        return self._builder.take()

    def done(self) -> Sequence[Event]:
        if self._builder.started:
            self._calls.finish()
            self._emit_signature()
            if self._late_annotations:  # their text is closed: a part by which they are named
                data = ProviderData(Format.CHAT, self._late_annotations)
                self._builder.open("annotations", UnknownPart("annotations", data))
            for name, value in self._fields.items():
                self._builder.add_field(ReplyField(name, ProviderData(Format.CHAT, value)))
            tier = self._service_tier or None
            self._builder.end(self._stop_reason(), self._usage, service_tier=tier)
        else:
            self._builder.truncate(self._usage)
        return self._builder.take()

    def close(self) -> Sequence[Event]:
        if self._finish_reason:
            return self.done()
        self._builder.truncate(self._usage)
        return self._builder.take()

    def _on_choice(self, choice: Payload) -> None:
        if finish_reason := choice.get("finish_reason"):
            self._finish_reason = str(finish_reason)
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        content = delta.get("content")
        if type(content) is str and content and len(delta) == 1:  # nearly every chunk
            self._append_text("text", content)
            return
        self._on_reasoning(delta)
        if not delta.keys() <= _MESSAGE_FIELDS:
            self._on_unknown(delta)
        self._on_content(content)
        for annotation in filter(None, lenient_objects(delta.get("annotations"))):
            if self._builder.open_part("text") is None:
                self._late_annotations.append(annotation)
            else:
                self._builder.add("text", parse_citation(annotation))
        if refusal := delta.get("refusal"):
            self._has_refusal = True
            self._append_text("refusal", refusal)
        for call in lenient_objects(delta.get("tool_calls")):
            self._on_tool_call(call)
        if function := delta.get("function_call"):
            self._on_tool_call({"index": -1, "function": function})

    def _on_reasoning(self, delta: Payload) -> None:
        """Reads the text, which some upstreams have in the details alone."""
        text = delta.get("reasoning_content") or delta.get("reasoning")
        self._has_reasoning = self._has_reasoning or bool(text)
        if details := delta.get("reasoning_details"):
            merge_details(self._reasoning_details, details)
            text = text if self._has_reasoning else detail_text(details)
        self._append_text("thinking", text)

    def _on_unknown(self, delta: Payload) -> None:
        for name, value in delta.items():
            if value and name not in _MESSAGE_FIELDS and len(self._fields) < _MAX_UNKNOWN:
                self._fields[name] = None

    def _on_content(self, content: object) -> None:
        """Reads content, which some upstreams send as a list of parts, as in requests, also with
        reasoning."""
        if not isinstance(content, list):
            self._append_text("text", content)
            return
        parts = lenient_objects(content)
        for is_thinking, run in groupby(parts, key=lambda part: part.get("type") == "thinking"):
            texts = list(run)
            if is_thinking:
                texts = [text for part in texts for text in lenient_objects(part.get("thinking"))]
            piece = "".join(lenient_str(text.get("text")) for text in texts)
            self._append_text("thinking" if is_thinking else "text", piece)

    def _append_text(self, kind: str, piece: object) -> None:
        if piece and isinstance(piece, str):
            if self._builder.open_part(kind) is None:
                if kind != "thinking":
                    self._emit_signature()
                self._builder.open(kind, _TEXT_PARTS[kind]())
            self._builder.add(kind, piece)

    def _on_tool_call(self, call: Payload) -> None:
        if not self._builder.tool_call_open():
            if extra := call.get(CALL_EXTRA):  # of parallel calls the first one has it
                self._reasoning_details.append(call_extra_entry(extra))
            self._emit_signature()
        self._calls.add(call)

    def _emit_signature(self) -> None:
        """The details sign the open reasoning; later ones become a part of their own, because a
        part cannot be reopened."""
        if not self._reasoning_details:
            return
        details, self._reasoning_details = self._reasoning_details, []
        if not any(map(has_signature, details)):
            return
        signature = ProviderData(Format.CHAT, details)
        if self._builder.open_part("thinking") is None:
            self._builder.open("thinking", Thinking(signature=signature, redacted=True))
        else:
            self._builder.add("thinking", Signature(signature))
        self._builder.close("thinking")

    def _stop_reason(self) -> StopReason:
        stop = _parse_finish_reason(self._finish_reason)
        refused = self._has_refusal and not self._builder.tool_called
        return StopReason.REFUSAL if refused and stop is StopReason.END_TURN else stop


def _parse_finish_reason(name: object) -> StopReason:
    """The stop reason of a reply without calls."""
    return _STOP_REASONS.get(str(name or "").lower(), StopReason.INTERRUPTED)


@dataclass(slots=True, eq=False)
class _PendingCall:
    """A call and its arguments until it has a name."""

    index: int | None
    id: str
    kind: CallKind
    extra: ProviderData | None
    is_open: bool = False
    buffered: list[str] = field(default_factory=list)


class ToolCallAssembler:
    """Assigns the entries of `tool_calls` to the calls of one reply."""

    __slots__ = ("_builder", "_calls")

    def __init__(self, builder: EventBuilder) -> None:
        self._builder = builder
        self._calls: list[_PendingCall] = []

    def add(self, entry: Payload) -> None:
        """The start of a call, a piece of one, or a complete one."""
        kind, id, name, arguments = _parse_entry(entry)
        index = entry.get("index")
        call = self._find(index, id, name)
        if call is None:
            index = index if isinstance(index, int) else None
            extra = ProviderData.unknown_set_fields(Format.CHAT, entry, _CALL_FIELDS)
            call = _PendingCall(index, id, kind, extra)
            self._calls.append(call)
        if call.is_open:
            self._builder.add(call, arguments)
            return
        call.id = call.id or id
        call.buffered.append(arguments)
        if name:
            self._open_call(call, name)

    def finish(self) -> None:
        """Opens the calls that never got a name."""
        for call in self._calls:
            if not call.is_open and call.id:
                self._open_call(call, "")

    def _open_call(self, call: _PendingCall, name: str) -> None:
        call.is_open = True
        self._builder.open(call, ToolCall(call.id, name, kind=call.kind, extra=call.extra))
        self._builder.add(call, "".join(call.buffered))

    def _find(self, index: Any, id: str, name: str) -> _PendingCall | None:
        """The call that an entry continues; None where it starts a new one."""
        for call in reversed(self._calls):
            if isinstance(index, int):
                is_match = call.index == index
            else:
                is_match = call.id == id if id else not name
            if is_match:
                is_new = id and name and call.id and call.id != id
                return None if is_new else call
        return None


def _parse_entry(entry: Payload) -> tuple[CallKind, str, str, str]:
    """Kind, id, name and arguments; some upstreams send the arguments as an object."""
    kind, field = CallKind.FUNCTION, "arguments"
    if isinstance(entry.get("custom"), dict):
        kind, field = CallKind.CUSTOM, "input"
    call = lenient_object(entry.get(kind))
    arguments = call.get(field)
    text = dump_json(arguments) if isinstance(arguments, dict) else lenient_str(arguments)
    return kind, lenient_str(entry.get("id")), lenient_str(call.get("name")), text


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is an error or has no choice."""
    parts = _simple_parts(body)
    if parts is None:
        return _parse_with_decoder(body)
    has_calls = any([type(part) is ToolCall for part in parts])
    stop = _parse_finish_reason(body["choices"][0].get("finish_reason"))
    return Reply(
        id=lenient_str(body.get("id")),
        model=lenient_str(body.get("model")),
        parts=tuple(parts),
        stop=normalize_stop(stop, has_calls),
        usage=parse_usage(body.get("usage") or None),
        service_tier=lenient_str(body.get("service_tier")) or None,
    )


def read_usage(body: Payload) -> tuple[StopReason, Usage | None]:
    """Stop reason and usage. Raises `ReplyFailed` like `parse_reply`."""
    reply = parse_reply(body)
    return reply.stop, reply.usage


def _simple_parts(body: Payload) -> list[Part] | None:
    """The parts that the decoder would produce, for a body with one choice of only reasoning, text
    and complete calls; None for any other body."""
    choices = body.get("choices")
    if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
        return None
    message = choices[0].get("message")
    if body.get("error") or body.get("object") == "error" or choices[0].get("index"):
        return None
    if type(message) is not dict or any(map(message.get, _RARE_FIELDS)):
        return None
    if body.get(_MODERATION) or not message.keys() <= _MESSAGE_FIELDS:
        return None
    content, calls = message.get("content"), message.get("tool_calls") or []
    if isinstance(content, list) or not isinstance(calls, list):
        return None
    parts: list[Part] = []
    if reasoning := lenient_str(message.get("reasoning_content") or message.get("reasoning")):
        parts.append(Thinking(reasoning))
    if content and isinstance(content, str):
        parts.append(Text(content))
    for entry in calls:
        kind, id, name, arguments = _parse_entry(lenient_object(entry))
        if not name or CALL_EXTRA in entry:  # the decoder decides what it is
            return None
        extra = ProviderData.unknown_set_fields(Format.CHAT, entry, _CALL_FIELDS)
        parts.append(ToolCall(id, name, arguments, kind, extra=extra))
    return parts


def _parse_with_decoder(body: Payload) -> Reply:
    """Decodes an unusual body as one chunk."""
    choices = body.get("choices")
    if isinstance(choices, list):
        body = body | {"choices": [_as_delta(choice) for choice in choices]}
    decoder = ChatDecoder()
    return collect_reply([*decoder.decode(b"", body), *decoder.done()])


def _as_delta(choice: Any) -> Any:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return choice
    calls = enumerate(lenient_objects(message.get("tool_calls")))
    indexed = [call | {"index": index} for index, call in calls]
    return choice | {"delta": message | {"tool_calls": indexed}}
