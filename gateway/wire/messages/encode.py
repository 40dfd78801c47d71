"""Speaks events as a messages stream. It must not know which upstream they came from.

The grammar allows one open block at a time, while calls may arrive side by side: they stand in line
and the first of them is told as it arrives. It is done when its end comes, or when another one is
waiting and nothing can be missing in it any more. Public grammar: Messages, "Streaming messages".

Which block tells a part of a reply. It must not know the order in which blocks are told.

The message object of a reply: how it opens and how it ends. It must not know its blocks.

Public format: Messages, "The message object".

Parts of a complete reply as the blocks of one body. It must not know the message around them.

What a block looks like is what the stream says of it (`gateway.wire.messages.encode_blocks`); here it is
made in one step, for nothing of it is still to come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, ClassVar, Final

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
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.errors import GatewayError
from gateway.wire.codec import ReplyMetadata
from gateway.wire.json_fields import Payload, lenient_object
from gateway.wire.messages.content import native_data, render_citation
from gateway.wire.messages.decode import STOP_REASONS
from gateway.wire.messages.encode_blocks import (
    EMPTY_TEXT,
    BlockWriter,
    CallBlock,
    CompleteBlock,
    NullBlock,
    Piece,
    RedactedBlock,
    SearchBlock,
    SearchesById,
    SearchResultBlock,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    render_call,
    render_search,
    render_search_result,
    render_server_call,
    render_server_result,
)
from gateway.wire.messages.json_stream import JsonObjectStream, JsonStringStream, parse_arguments
from gateway.wire.messages.native import error_frame
from gateway.wire.messages.tools import WEB_SEARCH, ForeignSearch, foreign_search_id
from gateway.wire.messages.tools import WEB_SEARCH as SEARCH
from gateway.wire.messages.usage import render_usage
from gateway.wire.sse import write_frame
from gateway.wire.tool_names import CUSTOM_TOOL_ARG


def render_reply(reply: Reply, prompt: Prompt, stamp: ReplyMetadata) -> tuple[Payload, Set[str]]:
    """The body that the reply's stream adds up to, and the names of what is not in it."""
    mouth = BlockWriter(stamp)
    body = opening_message(prompt, stamp, reply.usage)
    content = body["content"] = ReplyBlocks(mouth).render(reply.parts)
    refusal = next((part for part in reversed(reply.parts) if type(part) is Refusal), None)
    stop = reported_stop(
        reply.stop,
        reply.stop_sequence,
        has_calls=any([type(part) is ToolCall for part in reply.parts]),
        has_refusal=refusal is not None,
    )
    if not content and stop is StopReason.END_TURN:
        content.append(dict(EMPTY_TEXT))
    return body | render_end(
        stop, reply.stop_sequence, refusal.text if refusal else ""
    ), mouth.dropped


PING: Final = write_frame(b"ping", b'{"type":"ping"}')
_STOP: Final = write_frame(b"message_stop", b'{"type":"message_stop"}')


class MessagesEncoder:
    __slots__ = (
        "_blocks",
        "_calls",
        "_has_calls",
        "_metadata",
        "_prompt",
        "_refusal",
        "_searches",
        "_writer",
    )

    def __init__(self, prompt: Prompt, stamp: ReplyMetadata) -> None:
        self._prompt = prompt
        self._metadata = stamp
        self._writer = BlockWriter(stamp)
        self._blocks: dict[int, StreamBlock] = {}
        self._calls: deque[CallBlock] = deque()
        self._has_calls = False
        self._searches: SearchesById = {}
        self._refusal: TextBlock | None = None

    @property
    def dropped(self) -> Set[str]:
        return self._writer.dropped

    def encode(self, event: Event) -> bytes:
        if type(event) is Delta:
            return self._blocks[event.index].add(event.piece)
        return self._HANDLERS[type(event)](self, event)

    def encode_text_run(
        self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]
    ) -> bytes:
        block = self._blocks[index]
        if isinstance(block, TextBlock | ThinkingBlock):
            return block.add_texts(texts, json_texts)
        return b"".join(map(block.add, texts))

    def ping(self) -> bytes:
        return PING

    def encode_error(self, error: GatewayError) -> bytes:
        """A call that is cut off is not completed: it might be run."""
        return self._writer.stop() + error_frame(error)

    def _on_begin(self, event: Begin) -> bytes:
        message = opening_message(self._prompt, self._metadata, event.usage)
        data = {"type": "message_start", "message": message}
        return write_frame(b"message_start", orjson.dumps(data))

    def _on_open(self, event: Open) -> bytes:
        part = event.part
        out = b""
        if isinstance(part, ToolCall):
            self._has_calls = True
            call = open_call(part, self._writer)
            self._calls.append(call)
            out = call.start() if len(self._calls) == 1 else self._start_next_call()
            block: StreamBlock = call
        else:
            block = open_block(part, self._writer, self._searches)
            if isinstance(block, CallBlock):
                out = block.start()
            elif isinstance(part, Refusal) and isinstance(block, TextBlock):
                self._refusal = block
        self._blocks[event.index] = block
        return out + b"".join(map(block.add, initial_deltas(part)))

    def _on_close(self, event: Close) -> bytes:
        block = self._blocks.pop(event.index)
        if isinstance(block, CallBlock):
            block.closed = True
            if block in self._calls:
                return self._start_next_call()
        return block.close()

    def _start_next_call(self) -> bytes:
        """Ends the calls at the head of the line that are complete, and begins the next one. The
        last in line is complete only when it is closed."""
        out = b""
        while self._calls:
            first = self._calls[0]
            if not (first.closed or (len(self._calls) > 1 and first.is_complete)):
                break
            out += first.close()
            self._calls.popleft()
            if self._calls:
                out += self._calls[0].start()
        return out

    def _on_ping(self, event: Ping) -> bytes:
        return PING

    def _on_end(self, event: End) -> bytes:
        refusal = self._refusal
        stop = reported_stop(
            event.stop,
            event.stop_sequence,
            has_calls=self._has_calls,
            has_refusal=refusal is not None,
        )
        out = b""
        if self._writer.index < 0 and stop is StopReason.END_TURN:
            out = self._writer.start(dict(EMPTY_TEXT)) + self._writer.stop()
        said = refusal.text if refusal else ""
        data = {
            "type": "message_delta",
            "delta": render_end(stop, event.stop_sequence, said, event.extra),
            "usage": reported_usage(event.usage, self._metadata),
        }
        return out + write_frame(b"message_delta", orjson.dumps(data)) + _STOP

    _HANDLERS: ClassVar[dict[type[Event], Callable[[MessagesEncoder, Any], bytes]]] = {
        Begin: _on_begin,
        Open: _on_open,
        Close: _on_close,
        Ping: _on_ping,
        End: _on_end,
    }


def open_call(call: ToolCall, writer: BlockWriter) -> CallBlock:
    custom = call.kind is CallKind.CUSTOM
    arguments = JsonStringStream() if custom else JsonObjectStream()
    return CallBlock(writer, render_call(call, writer), arguments)


def open_block(part: Part, writer: BlockWriter, searches: SearchesById) -> StreamBlock:
    match part:
        case Text() | Refusal():
            return TextBlock(writer)
        case Thinking(redacted=True):
            return RedactedBlock(writer)
        case Thinking():
            return ThinkingBlock(writer)
        case ServerToolCall():
            return _open_server_call(part, writer, searches)
        case ServerToolResult():
            return _open_server_result(part, writer, searches)
        case UnknownPart() if (own := native_data(part.data)) is not None:
            return CompleteBlock(writer, own)
        case UnknownPart():
            writer.dropped.add(part.kind)
        case _:
            writer.dropped.add(type(part).__name__.lower())
    return NullBlock()


def initial_deltas(part: Part) -> Sequence[Piece]:
    """What a part already says as it opens."""
    match part:
        case Text(text, citations):
            return [text, *citations] if text else citations
        case Refusal(said) | ToolCall(arguments=said) | ServerToolCall(arguments=said):
            return [said] if said else []
        case Thinking(text, signature):
            pieces: list[Piece] = [text] if text else []
            return [*pieces, Signature(signature)] if signature else pieces
        case _:
            return []


def _open_server_call(
    part: ServerToolCall, writer: BlockWriter, searches: SearchesById
) -> StreamBlock:
    if (block := render_server_call(part, writer)) is not None:
        return CallBlock(writer, block, JsonObjectStream())
    if part.name == SEARCH:
        return SearchBlock(writer, searches, part.id)
    writer.dropped.add(part.name)
    return NullBlock()


def _open_server_result(
    part: ServerToolResult, writer: BlockWriter, searches: SearchesById
) -> StreamBlock:
    if (block := render_server_result(part, writer)) is not None:
        return CompleteBlock(writer, block)
    if part.name == SEARCH:
        return SearchResultBlock(writer, searches, part.call_id)
    writer.dropped.add(part.name)
    return NullBlock()


_STOP_NAMES: Final = {stop: word for word, stop in STOP_REASONS.items()}
_NATIVE_END_FIELDS: Final = ("stop_details", "container")
"""What this format's own upstream may say at the end beside the reason."""


def opening_message(prompt: Prompt, stamp: ReplyMetadata, usage: Usage | None) -> Payload:
    return {
        "id": f"msg_{stamp.reply_id}",
        "type": "message",
        "role": "assistant",
        "model": prompt.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": reported_usage(usage, stamp),
    }


def reported_usage(usage: Usage | None, stamp: ReplyMetadata) -> Payload:
    """The counts, or what is known before there are any."""
    return render_usage(usage or Usage(input_tokens=stamp.input_tokens))


def reported_stop(
    stop: StopReason, stop_sequence: str | None, *, has_calls: bool, has_refusal: bool
) -> StopReason:
    """Agents go on by this alone, so it must fit what they have been told: whether a tool was
    called, and whether the model has declined in words."""
    if stop is StopReason.STOP_SEQUENCE and stop_sequence is None:
        stop = StopReason.END_TURN
    if has_calls and stop in (StopReason.END_TURN, StopReason.STOP_SEQUENCE):
        return StopReason.TOOL_CALL
    if not has_calls and stop is StopReason.TOOL_CALL:
        stop = StopReason.END_TURN
    if has_refusal and stop is StopReason.END_TURN:
        return StopReason.REFUSAL
    return stop


def render_end(
    stop: StopReason, stop_sequence: str | None, refusal: str, extra: ProviderData | None = None
) -> Payload:
    """The fields that are known at the end, besides the usage; `refusal` is what the model has
    declined with."""
    ended: Payload = {
        "stop_reason": _STOP_NAMES[stop],
        "stop_sequence": stop_sequence if stop is StopReason.STOP_SEQUENCE else None,
    }
    if stop is StopReason.REFUSAL:
        ended["stop_details"] = {
            "type": "refusal",
            "category": None,
            "explanation": refusal or None,
        }
    if extra is not None and extra.format is Format.MESSAGES:
        delta = lenient_object(extra.data.get("delta"))
        ended |= {name: delta[name] for name in _NATIVE_END_FIELDS if delta.get(name) is not None}
    return ended


class ReplyBlocks:
    """Renders the parts of one reply in their order."""

    __slots__ = ("_searches", "_writer")

    def __init__(self, mouth: BlockWriter) -> None:
        self._writer = mouth
        self._searches: dict[str, ForeignSearch] = {}

    def render(self, parts: Iterable[Part]) -> list[Payload]:
        """A part that has nothing to say has no block."""
        blocks = [self._RENDERERS.get(type(part), ReplyBlocks._drop)(self, part) for part in parts]
        return [block for block in blocks if block is not None]

    def _render_text(self, part: Text) -> Payload | None:
        if not part.text and not part.citations:
            return None
        block: Payload = {"type": "text", "text": part.text}
        for citation in part.citations:
            shown = render_citation(citation, part.text)
            if shown is None:
                self._writer.dropped.add("citations")
            else:
                block.setdefault("citations", []).append(shown)
        return block

    def _render_refusal(self, part: Refusal) -> Payload | None:
        return {"type": "text", "text": part.text} if part.text else None

    def _render_thinking(self, part: Thinking) -> Payload | None:
        if part.redacted:
            if part.signature is None:
                return None
            data = self._writer.signature(part.signature, redacted=True)
            return {"type": "redacted_thinking", "data": data}
        if not part.text and part.signature is None:
            return None
        signature = self._writer.signature(part.signature)
        return {"type": "thinking", "thinking": part.text, "signature": signature}

    def _render_call(self, part: ToolCall) -> Payload:
        block = render_call(part, self._writer)
        custom = part.kind is CallKind.CUSTOM
        block["input"] = (
            {CUSTOM_TOOL_ARG: part.arguments} if custom else parse_arguments(part.arguments)
        )
        return block

    def _render_server_call(self, part: ServerToolCall) -> Payload | None:
        if (block := render_server_call(part, self._writer)) is not None:
            return block | {"input": parse_arguments(part.arguments)}
        search = ForeignSearch(part.arguments)
        if part.name != WEB_SEARCH or not search.query:
            self._writer.dropped.add(part.name)
            return None
        self._searches[part.id] = search
        shown = render_search(self._writer.call_id(part.id, foreign_search_id(part.id)))
        return shown | {"input": {"query": search.query}}

    def _render_server_result(self, part: ServerToolResult) -> Payload | None:
        if (block := render_server_result(part, self._writer)) is not None:
            return block
        search = self._searches.pop(part.call_id, None) if part.name == WEB_SEARCH else None
        if search is None:
            self._writer.dropped.add(part.name)
            return None
        return render_search_result(self._writer.result_id(part.call_id), search)

    def _render_unknown(self, part: UnknownPart) -> Payload | None:
        own = native_data(part.data)
        if own is None:
            self._writer.dropped.add(part.kind)
        return own

    def _drop(self, part: Part) -> None:
        self._writer.dropped.add(type(part).__name__.lower())

    _RENDERERS: ClassVar[dict[type[Part], Callable[[ReplyBlocks, Any], Payload | None]]] = {
        Text: _render_text,
        Refusal: _render_refusal,
        Thinking: _render_thinking,
        ToolCall: _render_call,
        ServerToolCall: _render_server_call,
        ServerToolResult: _render_server_result,
        UnknownPart: _render_unknown,
    }
