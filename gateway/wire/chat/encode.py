"""Renders replies for chat clients: events to a stream, or one body.

Public format: Chat Completions, "The chat completion object", "The chat completion chunk object".
Client libraries accumulate the deltas to a message: role, ids and names are sent once, lists in one
delta at the end, and usage last.
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

_DONE: Final = b"data: [DONE]\n\n"
_FINISH_REASONS: Final = {
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTEXT_WINDOW: "length",
    StopReason.REFUSAL: "content_filter",
}
_ARGUMENT_FIELDS: Final = {CallKind.FUNCTION: "arguments", CallKind.CUSTOM: "input"}
_dumps: Final = orjson.dumps


def render_reply(reply: Reply, prompt: Prompt, metadata: ReplyMetadata) -> tuple[Payload, set[str]]:
    """The body, and the names of what the format cannot express."""
    message = _MessageBuilder(prompt, metadata)
    for part in reply.parts:
        message.add(part)
    usage = reply.usage or Usage(input_tokens=metadata.input_tokens)
    body = _reply_fields("chat.completion", prompt, metadata) | {
        "choices": [message.choice(reply.stop)],
        "usage": render_usage(usage),
        "system_fingerprint": None,
    }
    return body, message.dropped


def _reply_fields(kind: str, prompt: Prompt, metadata: ReplyMetadata) -> Payload:
    return {
        "id": f"chatcmpl-{metadata.reply_id}",
        "object": kind,
        "created": metadata.created,
        "model": prompt.model,
    }


class _ReplyState:
    """What streamed and complete replies keep of their parts. `dropped` names what the format
    cannot express; `_legacy_functions`: the client declared its tools in the deprecated way, which
    allows one call."""

    __slots__ = (
        *("_annotations", "_call_ids", "_content_length", "_has_refusal", "_legacy_functions"),
        *("_metadata", "_reasoning_details", "dropped"),
    )

    def __init__(self, prompt: Prompt, metadata: ReplyMetadata) -> None:
        functions = [tool.definition for tool in prompt.tools if tool.kind is ToolKind.FUNCTION]
        self._legacy_functions = bool(functions) and all(map(_is_legacy_function, functions))
        self._metadata = metadata
        self._call_ids: set[str] = set()
        self._reasoning_details = ReasoningDetails(metadata.origin)
        self._annotations: list[Payload] = []
        self._content_length = 0
        self._has_refusal = False
        self.dropped: set[str] = set()

    def _add_citations(self, citations: Iterable[Citation], length: int) -> None:
        """Annotates the next text of the content, `length` characters long."""
        start, self._content_length = self._content_length, self._content_length + length
        for citation in citations:
            annotation = render_citation(citation, start, self._content_length)
            if annotation is None:
                self.dropped.add("citations")
            else:
                self._annotations.append(annotation)

    def _render_call(self, call: ToolCall, arguments: str) -> Payload | None:
        """The next entry of `tool_calls`, its id valid and unique; None where the client takes no
        further call."""
        if self._legacy_functions and self._call_ids:
            self.dropped.add("tool_calls")
            return None
        id = sanitize_name(call.id) if call.id else ""
        if not id or id in self._call_ids:
            id = sanitize_name(f"call_{self._metadata.reply_id}_{len(self._call_ids)}")
        self._call_ids.add(id)
        # A name without a namespace is the client's own already.
        name = upstream_name(call.name, call.namespace) if call.namespace else call.name
        kind = str(call.kind)
        entry: Payload = {"id": id, "type": kind}
        entry[kind] = {"name": name, _ARGUMENT_FIELDS[call.kind]: arguments}
        if call.extra is not None and call.extra.format is Format.CHAT:
            entry |= call.extra.data
        return entry

    def _drop(self, part: Part) -> None:
        match part:
            case UnknownPart(name) | ServerToolCall(name=name) | ServerToolResult(name=name):
                self.dropped.add(name)
            case _:
                self.dropped.add(type(part).__name__.lower())

    def _finish_reason(self, stop: StopReason) -> str:
        """Calls decide, because agents continue by this field."""
        only_refusal = stop is StopReason.REFUSAL and self._has_refusal and not self._call_ids
        if stop in _FINISH_REASONS and not only_refusal:
            return _FINISH_REASONS[stop]
        if not self._call_ids:
            return "stop"
        return "function_call" if self._legacy_functions else "tool_calls"


def _is_legacy_function(definition: ProviderData | None) -> bool:
    if definition is None or definition.format is not Format.CHAT:
        return False
    return "function" not in definition.data


class _MessageBuilder(_ReplyState):
    """The one choice of a complete reply."""

    __slots__ = ("_content", "_reasoning", "_refusals", "_tool_calls")

    def __init__(self, prompt: Prompt, metadata: ReplyMetadata) -> None:
        super().__init__(prompt, metadata)
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._refusals: list[str] = []
        self._tool_calls: list[Payload] = []

    def add(self, part: Part) -> None:
        match part:
            case Text(text, citations):
                self._content.append(text)
                self._add_citations(citations, len(text))
            case Thinking(text, signature, redacted):
                self._reasoning.append(text)
                self._reasoning_details.add(text, signature, redacted=redacted)
            case Refusal(text):
                self._refusals.append(text)
            case ToolCall(arguments=arguments, kind=kind):
                if kind is CallKind.FUNCTION:
                    arguments = arguments or "{}"
                if entry := self._render_call(part, arguments):
                    self._tool_calls.append(entry)
            case _:
                self._drop(part)

    def choice(self, stop: StopReason) -> Payload:
        content, refusal = "".join(self._content), "".join(self._refusals)
        self._has_refusal = bool(refusal)
        no_content = bool(self._tool_calls or refusal) and not content
        message: Payload = {
            "role": "assistant",
            "content": None if no_content else content,
            "refusal": refusal or None,
            "annotations": self._annotations,
        }
        if reasoning := "\n\n".join(filter(None, self._reasoning)):
            message["reasoning_content"] = reasoning
        if details := self._reasoning_details.entries:
            message["reasoning_details"] = details
        if self._tool_calls and self._legacy_functions:
            message["function_call"] = self._tool_calls[0]["function"]
        elif self._tool_calls:
            message["tool_calls"] = self._tool_calls
        finish_reason = self._finish_reason(stop)
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}


class _OpenPart:
    """One open part and the bytes around each of its pieces. `separator` precedes the first piece;
    `length` counts characters; `pieces` keeps those that are needed when the part closes."""

    __slots__ = (
        *("citations", "length", "part", "pieces", "prefix", "separator", "signature", "suffix"),
    )

    def __init__(self, part: Part, prefix: bytes, suffix: bytes, separator: bytes = b"") -> None:
        self.part = part
        self.prefix = prefix
        self.suffix = suffix
        self.separator = separator
        self.length = 0
        self.pieces: list[str] | None = None
        self.citations: list[Citation] = []
        self.signature: Signature | None = None


class ChatEncoder(_ReplyState):
    """See `gateway.wire.codec.Encoder`."""

    __slots__ = ("_chunk_head", "_chunk_tail", "_has_reasoning", "_include_usage", "_open_parts")

    def __init__(self, prompt: Prompt, metadata: ReplyMetadata) -> None:
        super().__init__(prompt, metadata)
        fields = _reply_fields("chat.completion.chunk", prompt, metadata)
        self._chunk_head = b'data: %b,"choices":[' % _dumps(fields)[:-1]
        self._include_usage = prompt.include_usage
        self._chunk_tail = b',"usage":null}\n\n' if self._include_usage else b"}\n\n"
        self._open_parts: dict[int, _OpenPart] = {}
        self._has_reasoning = False

    def encode(self, event: Event) -> bytes:
        if type(event) is Delta:
            opened = self._open_parts.get(event.index)
            if opened is None:
                return b""
            piece = event.piece
            if not isinstance(piece, str):
                return self._keep(opened, piece)
            separator = b"" if opened.length else opened.separator
            opened.length += len(piece)
            if opened.pieces is not None:
                opened.pieces.append(piece)
            return separator + opened.prefix + _dumps(piece) + opened.suffix
        return _HANDLERS[type(event)](self, event)

    def encode_text_run(
        self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]
    ) -> bytes:
        opened = self._open_parts.get(index)
        if opened is None:
            return b""
        separator = b"" if opened.length else opened.separator
        opened.length += sum(map(len, texts))
        if opened.pieces is not None:
            opened.pieces += texts
        between = b'"%b%b"' % (opened.suffix, opened.prefix)
        return b'%b%b"%b"%b' % (separator, opened.prefix, between.join(json_texts), opened.suffix)

    def ping(self) -> bytes:
        return PING

    def encode_error(self, error: GatewayError) -> bytes:
        """Nothing has to be closed: a missing finish reason marks an incomplete reply."""
        return error_frame(error)

    def _chunk(self, delta: bytes, finish_reason: bytes = b"null") -> bytes:
        chunk = b'%b{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]%b'
        return chunk % (self._chunk_head, delta, finish_reason, self._chunk_tail)

    def _around(self, field: bytes, end: bytes = b"}") -> tuple[bytes, bytes]:
        """The bytes before and after a piece in a field of the delta."""
        prefix, suffix = self._chunk(b"%b\0%b" % (field, end)).split(b"\0")
        return prefix, suffix

    def _on_begin(self, event: Begin) -> bytes:
        return self._chunk(b'{"role":"assistant","content":""}')

    def _on_ping(self, event: Ping) -> bytes:
        return PING

    def _on_fail(self, event: Fail) -> bytes:
        return b""

    def _on_open(self, event: Open) -> bytes:
        part = event.part
        out = b""
        match part:
            case Text(text):
                opened = _OpenPart(part, *self._around(b'{"content":'))
                opened.citations += part.citations
            case Thinking(text):
                blank_line = self._chunk(b'{"reasoning_content":"\\n\\n"}')
                separator = blank_line if self._has_reasoning else b""
                opened = _OpenPart(part, *self._around(b'{"reasoning_content":'), separator)
                opened.pieces = []
            case Refusal(text):
                opened = _OpenPart(part, *self._around(b'{"refusal":'))
            case ToolCall(arguments=text):
                index = len(self._call_ids)
                if (entry := self._render_call(part, "")) is None:
                    return b""
                out, opened = self._open_call(part, index, entry)
            case _:
                self._drop(part)
                return b""
        self._open_parts[event.index] = opened
        return out + self.encode(Delta(event.index, text)) if text else out

    def _open_call(self, call: ToolCall, index: int, entry: Payload) -> tuple[bytes, _OpenPart]:
        kind = call.kind
        if self._legacy_functions:
            opening = _dumps({"function_call": entry["function"]})
            field, end = b'{"function_call":{"arguments":', b"}}"
        else:
            opening = _dumps({"tool_calls": [{"index": index} | entry]})
            name = _ARGUMENT_FIELDS[kind]
            field = f'{{"tool_calls":[{{"index":{index},"{kind}":{{"{name}":'.encode()
            end = b"}}]}"
        return self._chunk(opening), _OpenPart(call, *self._around(field, end))

    def _keep(self, opened: _OpenPart, piece: Citation | Signature) -> bytes:
        """Keeps what is sent at the end of the reply."""
        if isinstance(piece, Signature):
            opened.signature = piece
        else:
            opened.citations.append(piece)
        return b""

    def _on_close(self, event: Close) -> bytes:
        opened = self._open_parts.pop(event.index, None)
        if opened is None:
            return b""
        match opened.part:
            case Text():
                self._add_citations(opened.citations, opened.length)
            case Thinking(signature=signature, redacted=redacted):
                self._has_reasoning = self._has_reasoning or opened.length > 0
                if opened.signature:
                    signature = opened.signature.value
                text = "".join(opened.pieces or ())
                self._reasoning_details.add(text, signature, redacted=redacted)
            case Refusal():
                self._has_refusal = self._has_refusal or opened.length > 0
            case ToolCall(kind=CallKind.FUNCTION) if not opened.length:
                return b'%b"{}"%b' % (opened.prefix, opened.suffix)
        return b""

    def _on_end(self, event: End) -> bytes:
        out = [self._chunk(b"{}", _dumps(self._finish_reason(event.stop))), _DONE]
        # Client libraries merge the lists of several deltas by the index of the entries.
        annotations = [entry | {"index": i} for i, entry in enumerate(self._annotations)]
        lists = {"annotations": annotations, "reasoning_details": self._reasoning_details.entries}
        if lists := {name: entries for name, entries in lists.items() if entries}:
            out.insert(0, self._chunk(_dumps(lists)))
        if self._include_usage:
            usage = event.usage or Usage(input_tokens=self._metadata.input_tokens)
            usage_chunk = b'%b],"usage":%b}\n\n' % (self._chunk_head, _dumps(render_usage(usage)))
            out.insert(-1, usage_chunk)
        return b"".join(out)


_HANDLERS: Final[dict[type[Event], Callable[[ChatEncoder, Any], bytes]]] = {
    Begin: ChatEncoder._on_begin,
    Open: ChatEncoder._on_open,
    Close: ChatEncoder._on_close,
    Ping: ChatEncoder._on_ping,
    End: ChatEncoder._on_end,
    Fail: ChatEncoder._on_fail,
}
