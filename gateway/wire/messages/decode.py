"""Parses replies of messages upstreams: a stream to events, or one body.

Real upstreams omit indexes, fields and block ends, end all blocks at the very end, send the input
of a tool when its block starts, and report errors in the forms of other formats. No block raises.
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
    ReplyField,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
    UnknownPart,
)
from gateway.core.reply import Reply, ReplyFailed, initial_pieces, opening_part
from gateway.wire.json.fields import (
    Payload,
    dump_json,
    lenient_object,
    lenient_objects,
    lenient_str,
)
from gateway.wire.messages.content import parse_citation
from gateway.wire.messages.usage import merge_usage, parse_usage
from gateway.wire.service_tier import FAST
from gateway.wire.stream.event_builder import EventBuilder, normalize_stop
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
_ALL_STOP_REASONS: Final = STOP_REASONS | {
    **{"stop": StopReason.END_TURN, "length": StopReason.MAX_TOKENS},
    **{"tool_calls": StopReason.TOOL_CALL, "content_filter": StopReason.REFUSAL},
}
"""Stop reasons, with the names that compatible servers take from chat."""
_SERVICE_TIERS: Final = {"standard": "default"}
"""Names of a reply's service tier in chat and responses, where they differ."""
_REPLY_FIELDS: Final = ("container", "context_management", "diagnostics", "input_transformations")
"""Optional fields of a message; those of a refusal are read elsewhere."""
_TOOL_USE: Final = "tool_use"
_SERVER_TOOL_USES: Final = ("server_tool_use", "mcp_tool_use")
_CALL_FIELDS: Final = frozenset({"type", "id", "name", "input"})
_SERVER_CALL_FIELDS: Final = frozenset({"id", "name", "input"})
_EMPTY_TEXT: Final = Text()
_EMPTY_REFUSAL: Final = Refusal()
_EMPTY_THINKING: Final = Thinking()


class MessagesDecoder:
    """See `gateway.wire.codec.Decoder`. A frame without an `index` is about the newest block."""

    __slots__ = (*("_builder", "_counts", "_fields", "_index", "_stop", "_stop_sequence"),)

    def __init__(self) -> None:
        self._builder = EventBuilder()
        self._counts: Payload | None = None
        self._index = -1
        self._stop: StopReason | None = None
        self._stop_sequence: str | None = None
        self._fields: Payload = {}

    def decode(self, name: bytes, data: Payload) -> Sequence[Event]:
        if self._builder.finished:
            return ()
        kind = lenient_str(data.get("type")) or name.decode("ascii", "replace")
        if (handle := self._HANDLERS.get(kind)) is not None:
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
        self._fields = message
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
        index = data.get("index")
        self._index = index = index if isinstance(index, int) else self._index + 1
        part = _parse_block(lenient_object(data.get("content_block")))
        if isinstance(part, ToolCall | ServerToolCall):
            self._builder.open(index, opening_part(part), part.arguments)
            return
        self._builder.open(index, opening_part(part))
        for piece in initial_pieces(part):
            self._builder.add(index, piece)

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
            signature = lenient_str(delta.get("signature"))
            if signature and isinstance(self._builder.open_part(index), Thinking):
                self._builder.add(index, Signature(ProviderData(Format.MESSAGES, signature)))
        elif kind == "citations_delta" and isinstance(self._builder.open_part(index), Text):
            self._builder.add(index, parse_citation(lenient_object(delta.get("citation"))))

    def _append_text(self, index: int, opening: Part, text: Any) -> None:
        """Opens a part where none is open, so that late text is not lost."""
        if not isinstance(text, str) or not text:
            return
        if type(self._builder.open_part(index)) is not type(opening):
            self._builder.open(index, opening)
        self._builder.add(index, text)

    def _on_block_stop(self, data: Payload) -> None:
        index = data.get("index")
        self._builder.close(index if isinstance(index, int) else self._index)

    def _on_message_delta(self, data: Payload) -> None:
        delta = lenient_object(data.get("delta"))
        self._counts = merge_usage(self._counts, data.get("usage"))
        self._fields = self._fields | {
            name: value for name, value in (data | delta).items() if value
        }
        self._stop_sequence = lenient_str(delta.get("stop_sequence")) or self._stop_sequence
        if stop_reason := lenient_str(delta.get("stop_reason")):
            self._stop = _ALL_STOP_REASONS.get(stop_reason, StopReason.INTERRUPTED)
        if self._stop is StopReason.END_TURN and self._stop_sequence:
            self._stop = StopReason.STOP_SEQUENCE

    def _on_message_stop(self, data: Payload) -> None:
        if self._stop is StopReason.REFUSAL and self._index < 0:  # nothing else has the reason
            self._append_text(0, _EMPTY_REFUSAL, _explanation(self._fields))
        for field in _reply_fields(self._fields):
            self._builder.add_field(field)
        self._builder.end(
            self._stop or StopReason.END_TURN,
            parse_usage(self._counts),
            self._stop_sequence,
            service_tier=_service_tier(self._counts or {}),
        )

    def _on_error(self, data: Payload) -> None:
        self._builder.fail(parse_stream_error(data), parse_usage(self._counts))

    _HANDLERS: ClassVar[dict[str, Callable[[MessagesDecoder, Payload], None]]] = {
        "message_start": _on_message_start,
        "content_block_start": _on_block_start,
        "content_block_delta": _on_block_delta,
        "content_block_stop": _on_block_stop,
        "message_delta": _on_message_delta,
        "message_stop": _on_message_stop,
        "ping": lambda self, _: self._builder.ping(),
        "error": _on_error,
    }


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is an error or not a message."""
    parts: list[Part] = [_parse_block(lenient_object(block)) for block in _content(body)]
    stop = _stop(body, has_calls=any([type(part) is ToolCall for part in parts]))
    if stop is StopReason.REFUSAL and not parts and (explanation := _explanation(body)):
        parts.append(Refusal(explanation))  # nothing else has the reason
    parts += _reply_fields(body)
    return Reply(
        id=lenient_str(body.get("id")),
        model=lenient_str(body.get("model")),
        parts=tuple(parts),
        stop=stop,
        usage=_usage(body),
        stop_sequence=lenient_str(body.get("stop_sequence")) or None,
        service_tier=_service_tier(lenient_object(body.get("usage"))),
    )


def _service_tier(counts: Payload) -> str | None:
    tier = FAST if counts.get("speed") == FAST else lenient_str(counts.get("service_tier"))
    return _SERVICE_TIERS.get(tier, tier) or None


def _explanation(fields: Payload) -> str:
    """The explanation of a refusal."""
    return lenient_str(lenient_object(fields.get("stop_details")).get("explanation"))


def _reply_fields(fields: Payload) -> list[ReplyField]:
    """The fields of a message that no part has."""
    names = [name for name in _REPLY_FIELDS if fields.get(name)]
    if lenient_object(fields.get("stop_details")).get("category"):
        names.append("stop_details")  # an explanation alone is the text of the refusal
    return [ReplyField(name, ProviderData(Format.MESSAGES, fields[name])) for name in names]


def read_usage(body: Payload) -> tuple[StopReason, Usage | None]:
    """Stop reason and usage. Raises `ReplyFailed` like `parse_reply`."""
    kinds = [lenient_object(block).get("type") for block in _content(body)]
    return _stop(body, has_calls=_TOOL_USE in kinds), _usage(body)


def _content(body: Payload) -> list[Any]:
    content = body.get("content")
    if isinstance(content, list):
        return content
    if "error" in body:
        raise ReplyFailed(parse_stream_error(body))
    raise ReplyFailed(Failure(kind=FailureKind.MALFORMED, message="the reply is no message"))


def _stop(body: Payload, *, has_calls: bool) -> StopReason:
    name = lenient_str(body.get("stop_reason"))
    stop = _ALL_STOP_REASONS.get(name, StopReason.INTERRUPTED) if name else StopReason.END_TURN
    if name and stop is StopReason.END_TURN and lenient_str(body.get("stop_sequence")):
        stop = StopReason.STOP_SEQUENCE
    return normalize_stop(stop, has_calls)


def _usage(body: Payload) -> Usage | None:
    counts = body.get("usage")
    return parse_usage(counts) if isinstance(counts, dict) else None


def _parse_block(block: Payload) -> Part:
    """The part of a complete block."""
    kind = lenient_str(block.get("type"))
    if kind == "text":
        citations = block.get("citations")
        if not citations:
            return Text(lenient_str(block.get("text")))
        parsed = [parse_citation(citation) for citation in lenient_objects(citations)]
        return Text(lenient_str(block.get("text")), tuple(parsed))
    if kind == "thinking":
        value = lenient_str(block.get("signature"))
        signature = ProviderData(Format.MESSAGES, value) if value else None
        return Thinking(lenient_str(block.get("thinking")), signature)
    if kind == _TOOL_USE:
        extra = ProviderData.unknown_fields(Format.MESSAGES, block, _CALL_FIELDS)
        return ToolCall(*_call_fields(block), extra=extra)
    native = ProviderData(Format.MESSAGES, block)
    if kind in _SERVER_TOOL_USES:
        extra = ProviderData.unknown_fields(Format.MESSAGES, block, _SERVER_CALL_FIELDS)
        return ServerToolCall(*_call_fields(block), extra=extra)
    if kind == "redacted_thinking":
        data = ProviderData(Format.MESSAGES, lenient_str(block.get("data")))
        return Thinking(signature=data, redacted=True)
    if kind.endswith("_tool_result"):
        name = kind.removesuffix("_tool_result")
        return ServerToolResult(lenient_str(block.get("tool_use_id")), name, native)
    return UnknownPart(kind, native)


def _call_fields(block: Payload) -> tuple[str, str, str]:
    """Id, name and arguments."""
    arguments = dump_json(block.get("input") or {})
    return lenient_str(block.get("id")), lenient_str(block.get("name")), arguments
