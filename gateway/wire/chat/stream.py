"""Arriving chat streams. It must not know who asked, nor what a client gets to see.

Public format: Chat Completions, "The chat completion chunk object". Upstreams vary it: reasoning
under two names, usage on any chunk or none, finish reasons on the last piece of content, no
`[DONE]`. Only the choice with index 0 is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from gateway.core.events import Begin, Event, Signature, StopReason
from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Refusal, Text, Thinking
from gateway.core.usage import Usage
from gateway.wire.assembly import EventBuilder
from gateway.wire.chat.calls import ToolCallAssembler
from gateway.wire.chat.citations import parse_citation
from gateway.wire.chat.reasoning import has_signature, merge_details
from gateway.wire.chat.usage import parse_usage
from gateway.wire.failures import parse_stream_error
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_objects, lenient_str

_STOP_REASONS: Final = {
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
}
_TEXT_PARTS: Final = {"text": Text, "refusal": Refusal, "thinking": Thinking}


class ChatDecoder:
    """Turns chunks into events; see `gateway.wire.codec.Decoder`."""

    __slots__ = ("_builder", "_calls", "_reasoning_details", "_finish_reason", "_has_refusal", "_usage")

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
        _STOP_REASONS.get(finish, StopReason.END_TURN) if isinstance(finish, str) else StopReason.END_TURN
    )


def _parse_begin(data: Payload) -> Begin:
    opening = {key: value for key, value in data.items() if key not in ("choices", "usage")}
    return Begin(
        id=lenient_str(data.get("id")),
        model=lenient_str(data.get("model")),
        extra=ProviderData(Format.CHAT, opening),
    )
