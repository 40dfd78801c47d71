"""Renders replies for chat clients: events to a stream, or one body.

Public format: Chat Completions, "The chat completion object", "The chat completion chunk object".
Client libraries accumulate the deltas to a message: role, ids and names are sent once, lists in one
delta at the end, and usage last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
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
    ReplyField,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
    UnknownPart,
)
from gateway.core.prompt import Prompt, Tool, ToolKind
from gateway.core.reply import Reply
from gateway.errors import GatewayError
from gateway.wire.chat.content import render_citation
from gateway.wire.chat.native import error_frame
from gateway.wire.chat.reasoning import render_details
from gateway.wire.chat.usage import render_usage
from gateway.wire.codec import ReplyMetadata
from gateway.wire.json.fields import Payload
from gateway.wire.moderation import moderation_results
from gateway.wire.prompt.tool_names import sanitize_name, upstream_name

_DONE: Final = b"data: [DONE]\n\n"
_FINISH_REASONS: Final = {
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTEXT_WINDOW: "length",
    StopReason.PAUSE: "length",
    StopReason.COMPACTION: "length",
    StopReason.INTERRUPTED: "length",
    StopReason.REFUSAL: "content_filter",
}
_ARGUMENT_FIELDS: Final = {CallKind.FUNCTION: "arguments", CallKind.CUSTOM: "input"}
_dumps: Final = orjson.dumps


def render_reply(reply: Reply, prompt: Prompt, metadata: ReplyMetadata) -> tuple[Payload, set[str]]:
    """The body, and the names of what the format cannot express."""
    encoder = ChatEncoder(prompt, metadata)
    message = encoder.render_message(reply.parts)
    choice = {"index": 0, "message": message, "logprobs": None}
    body = _reply_fields("chat.completion", prompt, metadata) | {
        "choices": [choice | {"finish_reason": encoder.finish_reason(reply.stop)}],
        "usage": _render_usage(reply.usage, metadata),
        "system_fingerprint": None,
    }
    if reply.service_tier is not None:
        body["service_tier"] = reply.service_tier
    return body | encoder.fields, encoder.dropped


def _reply_fields(kind: str, prompt: Prompt, metadata: ReplyMetadata) -> Payload:
    return {
        "id": f"chatcmpl-{metadata.reply_id}",
        "object": kind,
        "created": metadata.created,
        "model": prompt.model,
    }


def _render_usage(usage: Usage | None, metadata: ReplyMetadata) -> Payload:
    """The counts, or the estimate where there are none."""
    return render_usage(usage or Usage(input_tokens=metadata.input_tokens))


def _is_legacy_function(tool: Tool) -> bool:
    definition = ProviderData.native_fields(tool.definition, Format.CHAT)
    return bool(definition) and "function" not in definition


@dataclass(slots=True)
class _OpenPart:
    """One open part and the bytes around each of its pieces. `separator` precedes the first piece;
    `length` counts characters; `pieces` keeps those that are needed when the part closes."""

    part: Part
    prefix: bytes
    suffix: bytes
    separator: bytes = b""
    length: int = 0
    pieces: list[str] | None = None
    citations: list[Citation] = field(default_factory=list)
    signature: ProviderData | None = None


class ChatEncoder:
    """See `gateway.wire.codec.Encoder`. `_legacy_functions`: the client declared its tools in the
    deprecated way, which allows one call. `fields` are those of the whole reply."""

    __slots__ = (
        *("_annotations", "_call_ids", "_chunk_head", "_chunk_tail", "_content_length", "dropped"),
        "fields",
        *("_has_reasoning", "_has_refusal", "_include_usage", "_legacy_functions", "_metadata"),
        *("_open_parts", "_reasoning"),
    )

    def __init__(self, prompt: Prompt, metadata: ReplyMetadata) -> None:
        fields = _reply_fields("chat.completion.chunk", prompt, metadata)
        self._chunk_head = b'data: %b,"choices":[' % _dumps(fields)[:-1]
        self._include_usage = prompt.include_usage
        self._chunk_tail = b',"usage":null}\n\n' if self._include_usage else b"}\n\n"
        functions = [tool for tool in prompt.tools if tool.kind is ToolKind.FUNCTION]
        self._legacy_functions = bool(functions) and all(map(_is_legacy_function, functions))
        self._metadata = metadata
        self._open_parts: dict[int, _OpenPart] = {}
        self._call_ids: set[str] = set()
        self._reasoning: list[Thinking] = []
        self._annotations: list[Payload] = []
        self._content_length = 0
        self._has_reasoning = False
        self._has_refusal = False
        self.dropped: set[str] = set()
        self.fields: Payload = {}

    def encode(self, event: Event) -> bytes:
        if type(event) is Delta:
            opened = self._open_parts.get(event.index)
            if opened is None:
                return b""
            piece = event.piece
            if not isinstance(piece, str):  # sent when the reply ends
                if isinstance(piece, Signature):
                    opened.signature = piece.value
                else:
                    opened.citations.append(piece)
                return b""
            separator = b"" if opened.length else opened.separator
            opened.length += len(piece)
            if opened.pieces is not None:
                opened.pieces.append(piece)
            return separator + opened.prefix + _dumps(piece) + opened.suffix
        handler = _HANDLERS.get(type(event))
        return handler(self, event) if handler else b""

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
        """A chunk without content: clients that wait for chunks ignore comments."""
        return self._chunk(b"{}")

    def encode_error(self, error: GatewayError, *, withheld: bool = False) -> bytes:
        """Renders an error event; nothing has to be closed: a missing finish reason marks an
        incomplete reply."""
        return error_frame(error)

    def render_message(self, parts: Iterable[Part]) -> Payload:
        """The message of a complete reply."""
        texts: dict[type[Part], list[str]] = {Text: [], Thinking: [], Refusal: []}
        calls: list[Payload] = []
        for part in parts:
            match part:
                case Text(text) | Thinking(text) | Refusal(text):
                    texts[type(part)].append(text)
                    self._complete(part, len(text))
                case ToolCall(arguments=arguments, kind=kind):
                    if not arguments and kind is CallKind.FUNCTION:
                        arguments = "{}"
                    if call := self._render_call(part, arguments):
                        calls.append(call)
                case _:
                    self._drop(part)
        content, refusal = "".join(texts[Text]), "".join(texts[Refusal])
        message: Payload = {
            "role": "assistant",
            "content": None if (calls or refusal) and not content else content,
            "refusal": refusal or None,
            "annotations": self._annotations,
        }
        if reasoning := "\n\n".join(filter(None, texts[Thinking])):
            message["reasoning_content"] = reasoning
        if details := render_details(self._reasoning, self._metadata.origin):
            message["reasoning_details"] = details
        if calls and self._legacy_functions:
            message["function_call"] = calls[0]["function"]
        elif calls:
            message["tool_calls"] = calls
        return message

    def finish_reason(self, stop: StopReason) -> str:
        """Calls decide, because agents continue by this field."""
        if stop is StopReason.PAUSE:
            self.dropped.add("pause_turn")
        only_refusal = stop is StopReason.REFUSAL and self._has_refusal and not self._call_ids
        if stop in _FINISH_REASONS and not only_refusal:
            return _FINISH_REASONS[stop]
        if not self._call_ids:
            return "stop"
        return "function_call" if self._legacy_functions else "tool_calls"

    def _chunk(self, delta: bytes, finish_reason: bytes = b"null") -> bytes:
        chunk = b'%b{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]%b'
        return chunk % (self._chunk_head, delta, finish_reason, self._chunk_tail)

    def _open_part(self, part: Part, field: bytes, end: bytes = b"}") -> _OpenPart:
        """A part whose pieces are sent between `field` and `end` of a delta."""
        prefix, suffix = self._chunk(b"%b\0%b" % (field, end)).split(b"\0")
        return _OpenPart(part, prefix, suffix)

    def _on_begin(self, event: Begin) -> bytes:
        return self._chunk(b'{"role":"assistant","content":""}')

    def _on_ping(self, event: Ping) -> bytes:
        return self.ping()

    def _on_open(self, event: Open) -> bytes:
        part = event.part
        out = b""
        match part:
            case Text(text):
                opened = self._open_part(part, b'{"content":')
                opened.citations += part.citations
            case Thinking(text, signature):
                opened = self._open_part(part, b'{"reasoning_content":')
                opened.pieces, opened.signature = [], signature
                if self._has_reasoning:
                    opened.separator = self._chunk(b'{"reasoning_content":"\\n\\n"}')
            case Refusal(text):
                opened = self._open_part(part, b'{"refusal":')
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
        if self._legacy_functions:
            opening = _dumps({"function_call": entry["function"]})
            field, end = b'{"function_call":{"arguments":', b"}}"
        else:
            opening = _dumps({"tool_calls": [{"index": index} | entry]})
            name = _ARGUMENT_FIELDS[call.kind]
            field = f'{{"tool_calls":[{{"index":{index},"{call.kind}":{{"{name}":'.encode()
            end = b"}}]}"
        return self._chunk(opening), self._open_part(call, field, end)

    def _on_close(self, event: Close) -> bytes:
        opened = self._open_parts.pop(event.index, None)
        if opened is None:
            return b""
        part = opened.part
        if isinstance(part, Thinking):
            part = Thinking("".join(opened.pieces or ()), opened.signature, part.redacted)
        elif isinstance(part, Text):
            part = Text(citations=tuple(opened.citations))
        elif isinstance(part, ToolCall) and part.kind is CallKind.FUNCTION and not opened.length:
            return b'%b"{}"%b' % (opened.prefix, opened.suffix)
        self._complete(part, opened.length)
        return b""

    def _on_end(self, event: End) -> bytes:
        finish = self._chunk(b"{}", _dumps(self.finish_reason(event.stop)))
        if event.service_tier is not None:
            self.fields["service_tier"] = event.service_tier
        if self.fields:
            finish = finish.removesuffix(b"}\n\n") + b",%b\n\n" % _dumps(self.fields)[1:]
        out = [finish, _DONE]
        # Client libraries merge the lists of several deltas by the index of the entries.
        annotations = [entry | {"index": i} for i, entry in enumerate(self._annotations)]
        lists = {"annotations": annotations} if annotations else {}
        details = self._reasoning and render_details(self._reasoning, self._metadata.origin)
        if details:
            lists["reasoning_details"] = details
        if lists:
            out.insert(0, self._chunk(_dumps(lists)))
        if self._include_usage:
            usage = _dumps(_render_usage(event.usage, self._metadata))
            out.insert(-1, b'%b],"usage":%b}\n\n' % (self._chunk_head, usage))
        return b"".join(out)

    def _complete(self, part: Part, length: int) -> None:
        """Records what the end of the reply needs of a part with `length` characters."""
        if isinstance(part, Text):
            start, self._content_length = self._content_length, self._content_length + length
            for citation in part.citations:
                self._annotate(citation, start)
        elif isinstance(part, Thinking):
            self._has_reasoning = self._has_reasoning or length > 0
            self._reasoning.append(part)
        elif isinstance(part, Refusal):
            self._has_refusal = self._has_refusal or length > 0

    def _annotate(self, citation: Citation, start: int) -> None:
        """Annotates the last text of the content, which begins at `start`."""
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
        return entry | ProviderData.native_fields(call.extra, Format.CHAT)

    def _drop(self, part: Part) -> None:
        match part:
            case ReplyField("moderation", data) if results := moderation_results(data, Format.CHAT):
                self.fields["moderation"] = results
            case UnknownPart(name) | ServerToolCall(name=name) | ServerToolResult(name=name):
                self.dropped.add(name)
            case ReplyField(name):
                self.dropped.add(name)
            case _:
                self.dropped.add(type(part).__name__.lower())


_HANDLERS: Final[dict[type[Event], Callable[[ChatEncoder, Any], bytes]]] = {
    Begin: ChatEncoder._on_begin,
    Open: ChatEncoder._on_open,
    Close: ChatEncoder._on_close,
    Ping: ChatEncoder._on_ping,
    End: ChatEncoder._on_end,
}
