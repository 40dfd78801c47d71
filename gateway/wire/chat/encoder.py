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
from gateway.wire.chat.reasoning import ReasoningDetails
from gateway.wire.chat.rewrite import PING
from gateway.wire.chat.spoken import (
    ARGUMENT_FIELDS,
    Annotations,
    CallRenderer,
    finish_reason,
    uses_legacy_functions,
    part_name,
    reply_id,
)
from gateway.wire.chat.usage import render_usage
from gateway.wire.codec import ReplyMetadata
from gateway.wire.fields import Payload

_DONE: Final = b"data: [DONE]\n\n"
_dumps: Final = orjson.dumps


class _OpenPart:
    """One open part: the bytes around each of its pieces, and what its close has to know.

    `lead` goes out before the first piece, if one comes; `length` counts characters; `pieces` are
    kept where they will be needed once more.
    """

    __slots__ = ("suffix", "prefix", "citations", "separator", "length", "part", "pieces", "signature")

    def __init__(self, part: Part, before: bytes, after: bytes, lead: bytes = b"") -> None:
        self.part = part
        self.prefix = before
        self.suffix = after
        self.separator = lead
        self.length = 0
        self.pieces: list[str] | None = None
        self.citations: list[Citation] = []
        self.signature: Signature | None = None


class ChatEncoder:
    """See `gateway.wire.codec.Encoder`."""

    __slots__ = (
        "_annotations",
        "_calls",
        "_include_usage",
        "_reasoning_details",
        "_estimated_usage",
        "_legacy_functions",
        "_chunk_head",
        "_has_refusal",
        "_chunk_tail",
        "_has_reasoning",
        "_open_parts",
        "dropped",
    )

    def __init__(self, prompt: Prompt, stamp: ReplyMetadata) -> None:
        opening = {
            "id": reply_id(stamp),
            "object": "chat.completion.chunk",
            "created": stamp.created,
            "model": prompt.model,
        }
        self._chunk_head = b'data: %b,"choices":[' % _dumps(opening)[:-1]
        self._include_usage = prompt.include_usage
        self._chunk_tail = b',"usage":null}\n\n' if self._include_usage else b"}\n\n"
        self._estimated_usage = Usage(input_tokens=stamp.input_tokens)
        self._legacy_functions = uses_legacy_functions(prompt)
        self._calls = CallRenderer(stamp)
        self._reasoning_details = ReasoningDetails(stamp.origin)
        self._open_parts: dict[int, _OpenPart] = {}
        self._annotations = Annotations()
        self._has_reasoning = False
        self._has_refusal = False
        self.dropped: set[str] = set()

    def encode(self, event: Event) -> bytes:
        if type(event) is Delta:
            told = self._open_parts.get(event.index)
            if told is None:
                return b""
            piece = event.piece
            if not isinstance(piece, str):
                return self._add_annotation(told, piece)
            lead = b"" if told.length else told.separator
            told.length += len(piece)
            if told.pieces is not None:
                told.pieces.append(piece)
            return lead + told.prefix + _dumps(piece) + told.suffix
        return _HANDLERS[type(event)](self, event)

    def encode_text_run(self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        told = self._open_parts.get(index)
        if told is None:
            return b""
        lead = b"" if told.length else told.separator
        told.length += sum(map(len, texts))
        if told.pieces is not None:
            told.pieces += texts
        between = b'"%b%b"' % (told.suffix, told.prefix)
        return b'%b%b"%b"%b' % (lead, told.prefix, between.join(json_texts), told.suffix)

    def ping(self) -> bytes:
        return PING

    def encode_error(self, error: GatewayError) -> bytes:
        """Nothing needs closing in this format: what is missing is the finish reason."""
        return error_frame(error)

    def _chunk(self, delta: bytes, finish: bytes = b"null") -> bytes:
        around = b'%b{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]%b'
        return around % (self._chunk_head, delta, finish, self._chunk_tail)

    def _delta_frame(self, field: bytes, end: bytes = b"}") -> tuple[bytes, bytes]:
        """The bytes before and after a piece that stands in a field of the delta."""
        before, after = self._chunk(b"%b\0%b" % (field, end)).split(b"\0")
        return before, after

    def _on_begin(self, event: Begin) -> bytes:
        return self._chunk(b'{"role":"assistant","content":""}')

    def _on_ping(self, event: Ping) -> bytes:
        return PING

    def _on_fail(self, event: Fail) -> bytes:
        return b""

    def _on_open(self, event: Open) -> bytes:
        part = event.part
        match part:
            case Text(text):
                opening, told = b"", _OpenPart(part, *self._delta_frame(b'{"content":'))
                told.citations += part.citations
            case Thinking(text):
                lead = self._chunk(b'{"reasoning_content":"\\n\\n"}') if self._has_reasoning else b""
                opening, told = b"", _OpenPart(part, *self._delta_frame(b'{"reasoning_content":'), lead)
                told.pieces = []
            case Refusal(text):
                opening, told = b"", _OpenPart(part, *self._delta_frame(b'{"refusal":'))
            case ToolCall(arguments=text):
                if self._legacy_functions and len(self._calls):
                    self.dropped.add("tool_calls")
                    return b""
                opening, told = self._open_call(part)
            case _:
                self.dropped.add(part_name(part))
                return b""
        self._open_parts[event.index] = told
        return opening + self.encode(Delta(event.index, text)) if text else opening

    def _open_call(self, call: ToolCall) -> tuple[bytes, _OpenPart]:
        number = len(self._calls)
        entry = self._calls.render(call, "")
        if self._legacy_functions:
            opening = _dumps({"function_call": entry["function"]})
            return self._chunk(opening), _OpenPart(
                call, *self._delta_frame(b'{"function_call":{"arguments":', b"}}")
            )
        opening = _dumps({"tool_calls": [{"index": number} | entry]})
        kind = call.kind
        field = f'{{"tool_calls":[{{"index":{number},"{kind}":{{"{ARGUMENT_FIELDS[kind]}":'.encode()
        return self._chunk(opening), _OpenPart(call, *self._delta_frame(field, b"}}]}"))

    def _add_annotation(self, told: _OpenPart, piece: Citation | Signature) -> bytes:
        """What is said at the end of the reply."""
        if isinstance(piece, Signature):
            told.signature = piece
        else:
            told.citations.append(piece)
        return b""

    def _on_close(self, event: Close) -> bytes:
        told = self._open_parts.pop(event.index, None)
        if told is None:
            return b""
        match told.part:
            case Text():
                self._annotations.add(told.citations, told.length, self.dropped)
            case Thinking(signature=signature, redacted=redacted):
                self._has_reasoning = self._has_reasoning or told.length > 0
                if told.signature:
                    signature = told.signature.value
                self._reasoning_details.add("".join(told.pieces or ()), signature, redacted=redacted)
            case Refusal():
                self._has_refusal = self._has_refusal or told.length > 0
            case ToolCall(kind=CallKind.FUNCTION) if not told.length:
                return b'%b"{}"%b' % (told.prefix, told.suffix)
        return b""

    def _on_end(self, event: End) -> bytes:
        finish = finish_reason(
            event.stop,
            has_calls=len(self._calls) > 0,
            has_refusal=self._has_refusal,
            legacy_functions=self._legacy_functions,
        )
        out = [self._chunk(b"{}", _dumps(finish)), _DONE]
        lists: Payload = {
            # Client libraries put the lists of deltas together by a number in each entry.
            "annotations": [
                entry | {"index": number} for number, entry in enumerate(self._annotations.entries)
            ],
            "reasoning_details": self._reasoning_details.entries,
        }
        if lists := {name: entries for name, entries in lists.items() if entries}:
            out.insert(0, self._chunk(_dumps(lists)))
        if self._include_usage:
            usage = _dumps(render_usage(event.usage or self._estimated_usage))
            out.insert(-1, b'%b],"usage":%b}\n\n' % (self._chunk_head, usage))
        return b"".join(out)


_HANDLERS: Final[dict[type[Event], Callable[[ChatEncoder, Any], bytes]]] = {
    Begin: ChatEncoder._on_begin,
    Open: ChatEncoder._on_open,
    Close: ChatEncoder._on_close,
    Ping: ChatEncoder._on_ping,
    End: ChatEncoder._on_end,
    Fail: ChatEncoder._on_fail,
}
