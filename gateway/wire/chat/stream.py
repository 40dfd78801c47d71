"""Arriving chat streams. It must not know who asked, nor what a client gets to see.

Public format: Chat Completions, "The chat completion chunk object". Upstreams vary it: reasoning
under two names, usage on any chunk or none, finish reasons on the last piece of content, no
`[DONE]`. Only the choice with index 0 is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.core.events import Begin, Event, StopReason
from gateway.core.formats import Format
from gateway.core.parts import Citation, Opaque, Refusal, Text, Thinking
from gateway.core.usage import Usage
from gateway.wire.assembly import Assembly
from gateway.wire.chat.calls import Calls
from gateway.wire.chat.usage import parse_usage
from gateway.wire.failures import parse_stream_error
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_objects, read_text

_STOPS: Final = {
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
}
_PROSE: Final = {"text": Text, "refusal": Refusal, "thinking": Thinking}


class ChatDecoder:
    """Turns chunks into events; see `gateway.wire.codec.Decoder`."""

    __slots__ = ("_assembly", "_calls", "_finish", "_refused", "_usage")

    def __init__(self) -> None:
        self._assembly = Assembly()
        self._calls = Calls(self._assembly)
        self._finish: str | None = None
        self._refused = False
        self._usage: Usage | None = None

    def decode(self, name: bytes, data: Payload) -> Sequence[Event]:
        if data.get("error") or name == b"error" or data.get("object") == "error":
            self._assembly.fail(parse_stream_error(data), self._usage)
            return self._assembly.take()
        if usage := data.get("usage"):
            self._usage = parse_usage(usage, self._usage)
        choices = data.get("choices")
        if choices and isinstance(choices, list):
            if not self._assembly.begun:
                self._assembly.begin(_begin(data))
            for choice in choices:
                if isinstance(choice, dict) and not choice.get("index"):
                    self._choose(choice)
        return self._assembly.take()

    def done(self) -> Sequence[Event]:
        if self._assembly.begun:
            self._calls.close()
            self._assembly.end(self._stop(), self._usage)
        else:
            self._assembly.cut(self._usage)
        return self._assembly.take()

    def close(self) -> Sequence[Event]:
        if self._finish:
            return self.done()
        self._assembly.cut(self._usage)
        return self._assembly.take()

    def _choose(self, choice: Payload) -> None:
        if finish := choice.get("finish_reason"):
            self._finish = str(finish)
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        content = delta.get("content")
        if content and len(delta) == 1:  # nearly every chunk is this one
            self._grow("text", _joined(content))
            return
        self._grow("thinking", delta.get("reasoning_content") or delta.get("reasoning"))
        self._grow("text", _joined(content))
        if refusal := delta.get("refusal"):
            self._refused = True
            self._grow("refusal", refusal)
        for annotation in filter(None, read_objects(delta.get("annotations"))):
            self._assembly.add("text", _citation(annotation))
        for call in read_objects(delta.get("tool_calls")):
            self._calls.add(call)
        if function := delta.get("function_call"):
            self._calls.add({"index": -1, "function": function})

    def _grow(self, kind: str, piece: object) -> None:
        if piece and isinstance(piece, str):
            if self._assembly.part(kind) is None:
                self._assembly.open(kind, _PROSE[kind]())
            self._assembly.add(kind, piece)

    def _stop(self) -> StopReason:
        stop = plain_stop(self._finish)
        refused = self._refused and not self._assembly.called
        return StopReason.REFUSAL if refused and stop is StopReason.END_TURN else stop


def plain_stop(finish: object) -> StopReason:
    """What a finish reason means where nothing but text was said."""
    return (
        _STOPS.get(finish, StopReason.END_TURN) if isinstance(finish, str) else StopReason.END_TURN
    )


def _begin(data: Payload) -> Begin:
    opening = {key: value for key, value in data.items() if key not in ("choices", "usage")}
    return Begin(
        id=read_text(data.get("id")),
        model=read_text(data.get("model")),
        extra=Opaque(Format.CHAT, opening),
    )


def _joined(content: object) -> object:
    """Some upstreams send content as a list of parts, as in requests."""
    if not isinstance(content, list):
        return content
    return "".join(read_text(part.get("text")) for part in read_objects(content))


def _citation(annotation: Payload) -> Citation:
    said = annotation.get("url_citation")
    if not isinstance(said, dict):
        return Citation(extra=Opaque(Format.CHAT, annotation))
    return Citation(
        url=read_text(said.get("url")) or None,
        title=read_text(said.get("title")) or None,
        start=_offset(said.get("start_index")),
        end=_offset(said.get("end_index")),
    )


def _offset(value: object) -> int | None:
    return value if type(value) is int else None
