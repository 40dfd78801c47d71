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
from gateway.core.parts import Opaque, Refusal, Text, Thinking
from gateway.core.usage import Usage
from gateway.wire.assembly import Assembly
from gateway.wire.chat.calls import Calls
from gateway.wire.chat.citations import parse_citation
from gateway.wire.chat.reasoning import is_proof, merge_details
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

    __slots__ = ("_assembly", "_calls", "_details", "_finish", "_refused", "_usage")

    def __init__(self) -> None:
        self._assembly = Assembly()
        self._calls = Calls(self._assembly)
        self._details: list[Payload] = []
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
            self._prove()
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
        if type(content) is str and content and len(delta) == 1:  # nearly every chunk is this one
            self._grow("text", content)
            return
        self._grow("thinking", delta.get("reasoning_content") or delta.get("reasoning"))
        if details := delta.get("reasoning_details"):
            merge_details(self._details, details)
        self._say(content)
        for annotation in filter(None, read_objects(delta.get("annotations"))):
            self._assembly.add("text", parse_citation(annotation))
        if refusal := delta.get("refusal"):
            self._refused = True
            self._grow("refusal", refusal)
        for call in read_objects(delta.get("tool_calls")):
            self._call(call)
        if function := delta.get("function_call"):
            self._call({"index": -1, "function": function})

    def _say(self, content: object) -> None:
        """Some upstreams send content as a list of parts, as in requests, and thoughts in it."""
        if not isinstance(content, list):
            self._grow("text", content)
            return
        for thought, run in groupby(read_objects(content), key=_is_thought):
            parts = list(run)
            if thought:
                parts = [said for part in parts for said in read_objects(part.get("thinking"))]
            piece = "".join(read_text(part.get("text")) for part in parts)
            self._grow("thinking" if thought else "text", piece)

    def _grow(self, kind: str, piece: object) -> None:
        if piece and isinstance(piece, str):
            if self._assembly.part(kind) is None:
                if kind != "thinking":
                    self._prove()
                self._assembly.open(kind, _PROSE[kind]())
            self._assembly.add(kind, piece)

    def _call(self, call: Payload) -> None:
        if not self._assembly.calling():
            self._prove()
        self._calls.add(call)

    def _prove(self) -> None:
        """The details prove the thinking that is open; those that come later prove it too, but
        stand for themselves, for it cannot be opened again."""
        if not self._details:
            return
        details, self._details = self._details, []
        if not any(map(is_proof, details)):
            return
        proof = Opaque(Format.CHAT, details)
        if self._assembly.part("thinking") is None:
            self._assembly.open("thinking", Thinking(signature=proof, redacted=True))
        else:
            self._assembly.add("thinking", Signature(proof))
        self._assembly.close("thinking")

    def _stop(self) -> StopReason:
        stop = plain_stop(self._finish)
        refused = self._refused and not self._assembly.called
        return StopReason.REFUSAL if refused and stop is StopReason.END_TURN else stop


def _is_thought(part: Payload) -> bool:
    return part.get("type") == "thinking"


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
