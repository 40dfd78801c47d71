"""Reads messages streams into events. It must not know who asked or what leaves for the client.

Upstreams met in the wild leave out indexes and blocks' ends, stop all blocks at the very end, give
a tool's whole input at its start, and speak errors in other formats' forms.

Makes parts of the content blocks of replies. It must not know how the blocks arrive.

Upstreams met in the wild leave out fields; nothing here raises. The blocks of requests are read
strictly, by `gateway.wire.messages.content`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from gateway.core.events import Begin, Event, Failure, FailureKind, Signature, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import (
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
from gateway.core.reply import Reply, ReplyFailed
from gateway.wire.event_builder import EventBuilder, normalize_stop
from gateway.wire.json_fields import Payload, dump_json, lenient_object, lenient_str
from gateway.wire.messages.content import parse_citation
from gateway.wire.messages.usage import merge_usage, parse_usage
from gateway.wire.upstream_errors import parse_stream_error

STOP_REASONS: Final = {
    "end_turn": StopReason.END_TURN,
    "max_tokens": StopReason.MAX_TOKENS,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_use": StopReason.TOOL_CALL,
    "pause_turn": StopReason.PAUSE,
    "refusal": StopReason.REFUSAL,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
    "compaction": StopReason.COMPACTION,
}


class MessagesDecoder:
    """Blocks are known by their `index`; where it is missing, the newest one is meant."""

    __slots__ = (
        "_builder",
        "_counts",
        "_explanation",
        "_index",
        "_last_delta",
        "_stop",
        "_stop_sequence",
    )

    def __init__(self) -> None:
        self._builder = EventBuilder()
        self._counts: Payload | None = None
        self._index = -1
        self._stop: StopReason | None = None
        self._stop_sequence: str | None = None
        self._last_delta: ProviderData | None = None
        self._explanation = ""

    def decode(self, name: bytes, data: Payload) -> Sequence[Event]:
        if self._builder.finished:
            return ()
        handle = self._HANDLERS.get(
            lenient_str(data.get("type")) or name.decode("ascii", "replace")
        )
        if handle is not None:
            handle(self, data)
        elif name == b"error" or data.get("error"):
            self._on_error(data)
        return self._builder.take()

    def done(self) -> Sequence[Event]:
        return ()

    def close(self) -> Sequence[Event]:
        if self._stop is not None:
            self._on_message_stop({})
        else:
            self._builder.truncate(parse_usage(self._counts))
        return self._builder.take()

    def _on_message_start(self, data: Payload) -> None:
        message = lenient_object(data.get("message"))
        self._counts = merge_usage(self._counts, message.get("usage"))
        self._builder.begin(
            Begin(
                id=lenient_str(message.get("id")),
                model=lenient_str(message.get("model")),
                usage=parse_usage(self._counts),
                extra=ProviderData(Format.MESSAGES, message),
            )
        )

    def _on_block_start(self, data: Payload) -> None:
        block = lenient_object(data.get("content_block"))
        given = data.get("index")
        self._index = given if isinstance(given, int) else self._index + 1
        kind = lenient_str(block.get("type"))
        if kind == "text":
            self._open_text(block)
        elif kind == "thinking":
            self._open_thinking(block)
        elif kind == TOOL_USE:
            self._builder.open(self._index, parse_call(block), arguments_text(block))
        elif kind in SERVER_TOOL_USES:
            self._builder.open(self._index, parse_server_call(block), arguments_text(block))
        else:
            self._builder.open(self._index, parse_complete_block(kind, block))

    def _open_text(self, block: Payload) -> None:
        self._builder.open(self._index, Text())
        self._builder.add(self._index, lenient_str(block.get("text")))
        citations = block.get("citations")
        for citation in citations if isinstance(citations, list) else ():
            self._builder.add(self._index, parse_citation(lenient_object(citation)))

    def _open_thinking(self, block: Payload) -> None:
        self._builder.open(self._index, Thinking())
        self._builder.add(self._index, lenient_str(block.get("thinking")))
        self._add_signature(self._index, block)

    def _on_block_delta(self, data: Payload) -> None:
        delta = lenient_object(data.get("delta"))
        index = data.get("index")
        if not isinstance(index, int):
            index = self._index
        kind = delta.get("type")
        if kind == "text_delta":
            self._append_text(index, _EMPTY_TEXT, delta.get("text"))
        elif kind == "thinking_delta":
            self._append_text(index, _EMPTY_THINKING, delta.get("thinking"))
        elif kind == "input_json_delta":
            if isinstance(self._builder.open_part(index), ToolCall | ServerToolCall):
                self._builder.add(index, lenient_str(delta.get("partial_json")))
        elif kind == "signature_delta":
            self._add_signature(index, delta)
        elif kind == "citations_delta" and isinstance(self._builder.open_part(index), Text):
            self._builder.add(index, parse_citation(lenient_object(delta.get("citation"))))

    def _append_text(self, index: int, opening: Part, text: Any) -> None:
        """A piece without its open block opens one, so that late text is not lost."""
        if not isinstance(text, str) or not text:
            return
        if type(self._builder.open_part(index)) is not type(opening):
            self._builder.open(index, opening)
        self._builder.add(index, text)

    def _add_signature(self, index: int, holder: Payload) -> None:
        signature = lenient_str(holder.get("signature"))
        if signature and isinstance(self._builder.open_part(index), Thinking):
            self._builder.add(index, Signature(ProviderData(Format.MESSAGES, signature)))

    def _on_block_stop(self, data: Payload) -> None:
        index = data.get("index")
        self._builder.close(index if isinstance(index, int) else self._index)

    def _on_message_delta(self, data: Payload) -> None:
        delta = lenient_object(data.get("delta"))
        self._counts = merge_usage(self._counts, data.get("usage"))
        self._last_delta = ProviderData(Format.MESSAGES, data)
        self._stop_sequence = lenient_str(delta.get("stop_sequence")) or self._stop_sequence
        self._explanation = lenient_str(
            lenient_object(delta.get("stop_details")).get("explanation")
        )
        if said := lenient_str(delta.get("stop_reason")):
            self._stop = STOP_REASONS.get(said, StopReason.END_TURN)
        if self._stop is StopReason.END_TURN and self._stop_sequence:
            self._stop = StopReason.STOP_SEQUENCE

    def _on_message_stop(self, data: Payload) -> None:
        if self._stop is StopReason.REFUSAL and self._index < 0:  # else its words were told
            self._append_text(0, _EMPTY_REFUSAL, self._explanation)
        self._builder.end(
            self._stop or StopReason.END_TURN,
            parse_usage(self._counts),
            self._stop_sequence,
            self._last_delta,
        )

    def _on_ping(self, data: Payload) -> None:
        self._builder.ping()

    def _on_error(self, data: Payload) -> None:
        self._builder.fail(parse_stream_error(data), parse_usage(self._counts))

    _HANDLERS: ClassVar[dict[str, Callable[[MessagesDecoder, Payload], None]]] = {
        "message_start": _on_message_start,
        "content_block_start": _on_block_start,
        "content_block_delta": _on_block_delta,
        "content_block_stop": _on_block_stop,
        "message_delta": _on_message_delta,
        "message_stop": _on_message_stop,
        "ping": _on_ping,
        "error": _on_error,
    }


_EMPTY_TEXT = Text()
_EMPTY_REFUSAL = Refusal()
_EMPTY_THINKING = Thinking()


TOOL_USE: Final = "tool_use"
SERVER_TOOL_USES: Final = ("server_tool_use", "mcp_tool_use")
_CALL_FIELDS: Final = frozenset({"type", "id", "name", "input"})
_SERVER_CALL_FIELDS: Final = frozenset({"id", "name", "input"})


def parse_block(block: Payload) -> Part:
    """The part of a block that is complete."""
    kind = lenient_str(block.get("type"))
    if kind == "text":
        citations = block.get("citations")
        if not citations or not isinstance(citations, list):
            return Text(lenient_str(block.get("text")))
        read = [parse_citation(lenient_object(citation)) for citation in citations]
        return Text(lenient_str(block.get("text")), tuple(read))
    if kind == "thinking":
        signature = lenient_str(block.get("signature"))
        proof = ProviderData(Format.MESSAGES, signature) if signature else None
        return Thinking(lenient_str(block.get("thinking")), proof)
    if kind == TOOL_USE:
        return parse_call(block, arguments_text(block))
    if kind in SERVER_TOOL_USES:
        return parse_server_call(block, arguments_text(block))
    return parse_complete_block(kind, block)


def parse_call(block: Payload, arguments: str = "") -> ToolCall:
    """A call; as it opens it has no arguments."""
    more = _unknown_fields(block, _CALL_FIELDS)
    return ToolCall(
        id=lenient_str(block.get("id")),
        name=lenient_str(block.get("name")),
        arguments=arguments,
        extra=ProviderData(Format.MESSAGES, more) if more else None,
    )


def parse_server_call(block: Payload, arguments: str = "") -> ServerToolCall:
    """The same for a call that the upstream runs."""
    return ServerToolCall(
        id=lenient_str(block.get("id")),
        name=lenient_str(block.get("name")),
        arguments=arguments,
        extra=ProviderData(Format.MESSAGES, _unknown_fields(block, _SERVER_CALL_FIELDS)),
    )


def arguments_text(block: Payload) -> str:
    """The arguments of a call as JSON text."""
    return dump_json(block.get("input") or {})


def parse_complete_block(kind: str, block: Payload) -> Part:
    """The part of a block that streams give whole at its start."""
    if kind == "redacted_thinking":
        signature = ProviderData(Format.MESSAGES, lenient_str(block.get("data")))
        return Thinking(signature=signature, redacted=True)
    pocket = ProviderData(Format.MESSAGES, block)
    if kind.endswith("_tool_result"):
        return ServerToolResult(
            lenient_str(block.get("tool_use_id")), kind.removesuffix("_tool_result"), pocket
        )
    return UnknownPart(kind, pocket)


def _unknown_fields(block: Payload, known: frozenset[str]) -> dict[str, Any]:
    if block.keys() <= known:
        return {}
    return {name: value for name, value in block.items() if name not in known}


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is an error or no message at all."""
    content = _reply_content(body)
    parts: list[Part] = [parse_block(lenient_object(block)) for block in content]
    called = any([type(part) is ToolCall for part in parts])
    stop = _reply_stop(body, has_calls=called)
    if stop is StopReason.REFUSAL and not parts:  # else its words were told
        details = lenient_object(body.get("stop_details"))
        if explanation := lenient_str(details.get("explanation")):
            parts.append(Refusal(explanation))
    return Reply(
        id=lenient_str(body.get("id")),
        model=lenient_str(body.get("model")),
        parts=tuple(parts),
        stop=stop,
        usage=_reply_usage(body),
        stop_sequence=lenient_str(body.get("stop_sequence")) or None,
    )


def read_usage(body: Payload) -> tuple[StopReason, Usage | None]:
    """Raises `ReplyFailed` like `parse_reply`."""
    content = _reply_content(body)
    called = any([lenient_object(block).get("type") == TOOL_USE for block in content])
    return _reply_stop(body, has_calls=called), _reply_usage(body)


def _reply_content(body: Payload) -> list[Any]:
    content = body.get("content")
    if isinstance(content, list):
        return content
    if "error" in body:
        raise ReplyFailed(parse_stream_error(body))
    raise ReplyFailed(Failure(kind=FailureKind.MALFORMED, message="the reply is no message"))


def _reply_stop(body: Payload, *, has_calls: bool) -> StopReason:
    word = lenient_str(body.get("stop_reason"))
    stop = STOP_REASONS.get(word, StopReason.END_TURN)
    if word and stop is StopReason.END_TURN and lenient_str(body.get("stop_sequence")):
        stop = StopReason.STOP_SEQUENCE
    return normalize_stop(stop, has_calls)


def _reply_usage(body: Payload) -> Usage | None:
    counts = body.get("usage")
    return parse_usage(counts) if isinstance(counts, dict) else None
