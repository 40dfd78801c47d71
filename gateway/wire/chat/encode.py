"""Speaks events as a chat stream. It must not know where they come from, nor any upstream.

Public format: Chat Completions, "The chat completion chunk object". Stock clients add deltas up to
a message: so role, ids and names are said once, lists in one delta at the end, and usage last.

What chat replies for clients have in common, streamed or whole. It must not know frames.

Public format: Chat Completions, "The chat completion object".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import orjson

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Open,
    Ping,
    Signature,
    StopReason,
    Usage,
)
from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
    Citation,
    Part,
    ProviderData,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
    UnknownPart,
)
from gateway.core.prompt import Prompt, ToolKind
from gateway.core.reply import Reply
from gateway.errors import GatewayError
from gateway.wire.chat.content import render_citation
from gateway.wire.chat.native import PING, error_frame
from gateway.wire.chat.reasoning import ReasoningDetails
from gateway.wire.chat.usage import render_usage
from gateway.wire.codec import ReplyMetadata
from gateway.wire.ids import sanitize_name
from gateway.wire.json_fields import Payload
from gateway.wire.tool_names import upstream_name


def render_reply(reply: Reply, prompt: Prompt, stamp: ReplyMetadata) -> tuple[Payload, set[str]]:
    """The body, and the names of what the format could not say."""
    spoken = _MessageBuilder(prompt, stamp)
    for part in reply.parts:
        spoken.add(part)
    usage = reply.usage or Usage(input_tokens=stamp.input_tokens)
    body = {
        "id": reply_id(stamp),
        "object": "chat.completion",
        "created": stamp.created,
        "model": prompt.model,
        "choices": [spoken.choice(reply.stop)],
        "usage": render_usage(usage),
        "system_fingerprint": None,
    }
    return body, spoken.dropped


class _MessageBuilder:
    """The one choice of a reply as its parts add up to it."""

    __slots__ = (
        *(
            "_annotations",
            "_calls",
            "_content",
            "_reasoning_details",
            "_legacy_functions",
            "_refusals",
        ),
        *("_reasoning", "_tool_calls", "dropped"),
    )

    def __init__(self, prompt: Prompt, stamp: ReplyMetadata) -> None:
        self._legacy_functions = uses_legacy_functions(prompt)
        self._calls = CallRenderer(stamp)
        self._tool_calls: list[Payload] = []
        self._reasoning_details = ReasoningDetails(stamp.origin)
        self._annotations = Annotations()
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._refusals: list[str] = []
        self.dropped: set[str] = set()

    def add(self, part: Part) -> None:
        match part:
            case Text(text, citations):
                self._content.append(text)
                self._annotations.add(citations, len(text), self.dropped)
            case Thinking(text, signature, redacted):
                self._reasoning.append(text)
                self._reasoning_details.add(text, signature, redacted=redacted)
            case Refusal(text):
                self._refusals.append(text)
            case ToolCall() if self._legacy_functions and self._tool_calls:
                self.dropped.add("tool_calls")
            case ToolCall(arguments=arguments, kind=kind):
                if kind is CallKind.FUNCTION:
                    arguments = arguments or "{}"
                self._tool_calls.append(self._calls.render(part, arguments))
            case _:
                self.dropped.add(part_name(part))

    def choice(self, stop: StopReason) -> Payload:
        content, refusal = "".join(self._content), "".join(self._refusals)
        silent = bool(self._tool_calls or refusal) and not content
        message: Payload = {
            "role": "assistant",
            "content": None if silent else content,
            "refusal": refusal or None,
            "annotations": self._annotations.entries,
        }
        if thoughts := "\n\n".join(filter(None, self._reasoning)):
            message["reasoning_content"] = thoughts
        if details := self._reasoning_details.entries:
            message["reasoning_details"] = details
        if self._tool_calls and self._legacy_functions:
            message["function_call"] = self._tool_calls[0]["function"]
        elif self._tool_calls:
            message["tool_calls"] = self._tool_calls
        finish = finish_reason(
            stop,
            has_calls=bool(self._tool_calls),
            has_refusal=bool(refusal),
            legacy_functions=self._legacy_functions,
        )
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}


_DONE: Final = b"data: [DONE]\n\n"
_dumps: Final = orjson.dumps


class _OpenPart:
    """One open part: the bytes around each of its pieces, and what its close has to know.

    `lead` goes out before the first piece, if one comes; `length` counts characters; `pieces` are
    kept where they will be needed once more.
    """

    __slots__ = (
        "citations",
        "length",
        "part",
        "pieces",
        "prefix",
        "separator",
        "signature",
        "suffix",
    )

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
        "_chunk_head",
        "_chunk_tail",
        "_estimated_usage",
        "_has_reasoning",
        "_has_refusal",
        "_include_usage",
        "_legacy_functions",
        "_open_parts",
        "_reasoning_details",
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

    def encode_text_run(
        self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]
    ) -> bytes:
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
                lead = (
                    self._chunk(b'{"reasoning_content":"\\n\\n"}') if self._has_reasoning else b""
                )
                opening, told = (
                    b"",
                    _OpenPart(part, *self._delta_frame(b'{"reasoning_content":'), lead),
                )
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
                self._reasoning_details.add(
                    "".join(told.pieces or ()), signature, redacted=redacted
                )
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


_FINISH_REASONS: Final = {
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTEXT_WINDOW: "length",
    StopReason.REFUSAL: "content_filter",
}
ARGUMENT_FIELDS: Final = {CallKind.FUNCTION: "arguments", CallKind.CUSTOM: "input"}
"""The field with what the model says to the tool."""


def reply_id(stamp: ReplyMetadata) -> str:
    return f"chatcmpl-{stamp.reply_id}"


def finish_reason(
    stop: StopReason, *, has_calls: bool, has_refusal: bool, legacy_functions: bool
) -> str:
    """`called`: a tool was called; `refused`: the model said so in words; `functions`: the client
    knows the deprecated functions alone. Calls decide, for agents go on by this word."""
    said_no = stop is StopReason.REFUSAL and has_refusal and not has_calls
    if stop in _FINISH_REASONS and not said_no:
        return _FINISH_REASONS[stop]
    if not has_calls:
        return "stop"
    return "function_call" if legacy_functions else "tool_calls"


def uses_legacy_functions(prompt: Prompt) -> bool:
    """Whether the client declared its tools in the deprecated way, which has one call a reply."""
    functions = [tool.definition for tool in prompt.tools if tool.kind is ToolKind.FUNCTION]
    return bool(functions) and all(map(_is_legacy_function, functions))


def _is_legacy_function(definition: ProviderData | None) -> bool:
    if definition is None or definition.format is not Format.CHAT:
        return False
    return "function" not in definition.data


def part_name(part: Part) -> str:
    """The name of a part that the format has no place for in replies."""
    match part:
        case UnknownPart(kind):
            return kind
        case ServerToolCall(name=name) | ServerToolResult(name=name):
            return name
        case _:
            return type(part).__name__.lower()


class Annotations:
    """The `annotations` of one message, whose content its texts add up to."""

    __slots__ = ("_length", "entries")

    def __init__(self) -> None:
        self._length = 0
        self.entries: list[Payload] = []

    def add(self, citations: Iterable[Citation], length: int, dropped: set[str]) -> None:
        """The next text of the content, `length` characters long, and what it leans on."""
        start, self._length = self._length, self._length + length
        for citation in citations:
            annotation = render_citation(citation, start, self._length)
            if annotation is None:
                dropped.add("citations")
            else:
                self.entries.append(annotation)


class CallRenderer:
    """The calls of one reply, each with an id that is legal and no other's."""

    __slots__ = ("_ids", "_suffix")

    def __init__(self, stamp: ReplyMetadata) -> None:
        self._suffix = stamp.reply_id
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def render(self, call: ToolCall, arguments: str) -> Payload:
        """The next entry of `tool_calls`."""
        call_id = sanitize_name(call.id) if call.id else ""
        if not call_id or call_id in self._ids:
            call_id = sanitize_name(f"call_{self._suffix}_{len(self._ids)}")
        self._ids.add(call_id)
        entry: Payload = {"id": call_id, "type": str(call.kind)}
        # Without a namespace it is the client's own name already, whatever upstreams make of it.
        name = upstream_name(call.name, call.namespace) if call.namespace else call.name
        entry[str(call.kind)] = {"name": name, ARGUMENT_FIELDS[call.kind]: arguments}
        if call.extra is not None and call.extra.format is Format.CHAT:
            entry |= call.extra.data
        return entry
