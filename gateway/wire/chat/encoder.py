"""Speaks events as a chat stream. It must not know where they come from, nor any upstream.

Public format: Chat Completions, "The chat completion chunk object". Stock clients add deltas up to
a message: so role, ids and names are said once, lists in one delta at the end, and usage last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from gateway.core.events import Begin, Close, Delta, End, Event, Fail, Open, Ping, Signature
from gateway.core.parts import (
    CallKind,
    Citation,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
)
from gateway.core.prompt import Prompt
from gateway.core.usage import Usage
from gateway.errors import GatewayError
from gateway.wire.chat.errors import error_frame
from gateway.wire.chat.reasoning import Details
from gateway.wire.chat.rewrite import PING
from gateway.wire.chat.spoken import (
    ARGUMENTS,
    Annotations,
    Calls,
    finish_reason,
    knows_functions_alone,
    lost_part,
    reply_id,
)
from gateway.wire.chat.usage import render_usage
from gateway.wire.codec import Stamp
from gateway.wire.fields import Payload

_DONE: Final = b"data: [DONE]\n\n"
_dumps: Final = orjson.dumps


class _Told:
    """One open part: the bytes around each of its pieces, and what its close has to know.

    `lead` goes out before the first piece, if one comes; `length` counts characters; `pieces` are
    kept where they will be needed once more.
    """

    __slots__ = ("after", "before", "citations", "lead", "length", "part", "pieces", "signature")

    def __init__(self, part: Part, before: bytes, after: bytes, lead: bytes = b"") -> None:
        self.part = part
        self.before = before
        self.after = after
        self.lead = lead
        self.length = 0
        self.pieces: list[str] | None = None
        self.citations: list[Citation] = []
        self.signature: Signature | None = None


class ChatEncoder:
    """See `gateway.wire.codec.Encoder`."""

    __slots__ = (
        "_annotations",
        "_calls",
        "_counts",
        "_details",
        "_estimate",
        "_functions",
        "_head",
        "_refused",
        "_tail",
        "_thought",
        "_told",
        "dropped",
    )

    def __init__(self, prompt: Prompt, stamp: Stamp) -> None:
        opening = {
            "id": reply_id(stamp),
            "object": "chat.completion.chunk",
            "created": stamp.created,
            "model": prompt.model,
        }
        self._head = b'data: %b,"choices":[' % _dumps(opening)[:-1]
        self._counts = prompt.include_usage
        self._tail = b',"usage":null}\n\n' if self._counts else b"}\n\n"
        self._estimate = Usage(input_tokens=stamp.input_tokens)
        self._functions = knows_functions_alone(prompt)
        self._calls = Calls(stamp)
        self._details = Details(stamp.origin)
        self._told: dict[int, _Told] = {}
        self._annotations = Annotations()
        self._thought = False
        self._refused = False
        self.dropped: set[str] = set()

    def encode(self, event: Event) -> bytes:
        if type(event) is Delta:
            told = self._told.get(event.index)
            if told is None:
                return b""
            piece = event.piece
            if not isinstance(piece, str):
                return self._note(told, piece)
            lead = b"" if told.length else told.lead
            told.length += len(piece)
            if told.pieces is not None:
                told.pieces.append(piece)
            return lead + told.before + _dumps(piece) + told.after
        return _SPEAKERS[type(event)](self, event)

    def encode_texts(self, index: int, texts: Sequence[str], spelled: Sequence[bytes]) -> bytes:
        told = self._told.get(index)
        if told is None:
            return b""
        lead = b"" if told.length else told.lead
        told.length += sum(map(len, texts))
        if told.pieces is not None:
            told.pieces += texts
        between = b'"%b%b"' % (told.after, told.before)
        return b'%b%b"%b"%b' % (lead, told.before, between.join(spelled), told.after)

    def ping(self) -> bytes:
        return PING

    def fail(self, error: GatewayError) -> bytes:
        """Nothing needs closing in this format: what is missing is the finish reason."""
        return error_frame(error)

    def _chunk(self, delta: bytes, finish: bytes = b"null") -> bytes:
        around = b'%b{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]%b'
        return around % (self._head, delta, finish, self._tail)

    def _around(self, field: bytes, end: bytes = b"}") -> tuple[bytes, bytes]:
        """The bytes before and after a piece that stands in a field of the delta."""
        before, after = self._chunk(b"%b\0%b" % (field, end)).split(b"\0")
        return before, after

    def _begin(self, event: Begin) -> bytes:
        return self._chunk(b'{"role":"assistant","content":""}')

    def _pong(self, event: Ping) -> bytes:
        return PING

    def _fail(self, event: Fail) -> bytes:
        return b""

    def _open(self, event: Open) -> bytes:
        part = event.part
        match part:
            case Text(text):
                opening, told = b"", _Told(part, *self._around(b'{"content":'))
                told.citations += part.citations
            case Thinking(text):
                lead = self._chunk(b'{"reasoning_content":"\\n\\n"}') if self._thought else b""
                opening, told = b"", _Told(part, *self._around(b'{"reasoning_content":'), lead)
                told.pieces = []
            case Refusal(text):
                opening, told = b"", _Told(part, *self._around(b'{"refusal":'))
            case ToolCall(arguments=text):
                if self._functions and len(self._calls):
                    self.dropped.add("tool_calls")
                    return b""
                opening, told = self._call(part)
            case _:
                self.dropped.add(lost_part(part))
                return b""
        self._told[event.index] = told
        return opening + self.encode(Delta(event.index, text)) if text else opening

    def _call(self, call: ToolCall) -> tuple[bytes, _Told]:
        number = len(self._calls)
        entry = self._calls.render(call, "")
        if self._functions:
            opening = _dumps({"function_call": entry["function"]})
            return self._chunk(opening), _Told(
                call, *self._around(b'{"function_call":{"arguments":', b"}}")
            )
        opening = _dumps({"tool_calls": [{"index": number} | entry]})
        kind = call.kind
        field = f'{{"tool_calls":[{{"index":{number},"{kind}":{{"{ARGUMENTS[kind]}":'.encode()
        return self._chunk(opening), _Told(call, *self._around(field, b"}}]}"))

    def _note(self, told: _Told, piece: Citation | Signature) -> bytes:
        """What is said at the end of the reply."""
        if isinstance(piece, Signature):
            told.signature = piece
        else:
            told.citations.append(piece)
        return b""

    def _close(self, event: Close) -> bytes:
        told = self._told.pop(event.index, None)
        if told is None:
            return b""
        match told.part:
            case Text():
                self._annotations.add(told.citations, told.length, self.dropped)
            case Thinking(signature=signature, redacted=redacted):
                self._thought = self._thought or told.length > 0
                if told.signature:
                    signature = told.signature.value
                self._details.add("".join(told.pieces or ()), signature, redacted=redacted)
            case Refusal():
                self._refused = self._refused or told.length > 0
            case ToolCall(kind=CallKind.FUNCTION) if not told.length:
                return b'%b"{}"%b' % (told.before, told.after)
        return b""

    def _end(self, event: End) -> bytes:
        finish = finish_reason(
            event.stop,
            called=len(self._calls) > 0,
            refused=self._refused,
            functions=self._functions,
        )
        out = [self._chunk(b"{}", _dumps(finish)), _DONE]
        lists: Payload = {
            # Client libraries put the lists of deltas together by a number in each entry.
            "annotations": [
                entry | {"index": number} for number, entry in enumerate(self._annotations.entries)
            ],
            "reasoning_details": self._details.entries,
        }
        if lists := {name: entries for name, entries in lists.items() if entries}:
            out.insert(0, self._chunk(_dumps(lists)))
        if self._counts:
            usage = _dumps(render_usage(event.usage or self._estimate))
            out.insert(-1, b'%b],"usage":%b}\n\n' % (self._head, usage))
        return b"".join(out)


_SPEAKERS: Final[dict[type[Event], Callable[[ChatEncoder, Any], bytes]]] = {
    Begin: ChatEncoder._begin,
    Open: ChatEncoder._open,
    Close: ChatEncoder._close,
    Ping: ChatEncoder._pong,
    End: ChatEncoder._end,
    Fail: ChatEncoder._fail,
}
