"""Items of the input, both ways: each is one turn. Items of unknown types are accepted, too."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final

import orjson

from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
    Part,
    ProviderData,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.wire.json.fields import (
    Payload,
    as_json,
    as_object,
    as_objects,
    invalid_field,
    join_path,
    optional_object,
    optional_str,
    required,
    required_str,
)
from gateway.wire.prompt import signatures
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.tool_names import CUSTOM_TOOL_ARG, sanitize_name, upstream_name
from gateway.wire.responses import client_tools
from gateway.wire.responses.content import ContentRenderer, parse_content
from gateway.wire.responses.ids import is_generated
from gateway.wire.search.history import call_and_result, is_own_search

_ROLES: Final = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.DEVELOPER,
}
REFERENCE: Final = "item_reference"
_MESSAGE_FIELDS: Final = frozenset({"type", "role", "content"})
_CALL_FIELDS: Final = frozenset({"type", "call_id", "name", "namespace", "arguments", "input"})
_RESULT_FIELDS: Final = frozenset({"type", "call_id", "output"})


def parse_item(item: Any, path: str) -> Turn:
    item = as_object(item, path)
    kind = optional_str(item, "type", path)
    if kind is None:
        kind = item_kind(item)
    if kind == "message":
        return _parse_message(item, path)
    if parse := _ITEM_PARSERS.get(kind):
        return parse(item, path)
    if name := client_tools.called_tool(item):
        return _parse_client_call(item, name, path)
    if client_tools.is_call_output(item):
        return _parse_client_output(item, path)
    role = Role.USER if kind.endswith(("_output", "_response")) else Role.ASSISTANT
    return Turn(role, (UnknownPart(kind, ProviderData(Format.RESPONSES, item)),))


def item_kind(item: Payload) -> str:
    """The type of an item that `parse_item` accepts: it can be missing."""
    kind: str | None = item.get("type")
    if kind is not None:
        return kind
    return REFERENCE if "id" in item and "role" not in item else "message"


def is_reference(turn: Turn) -> bool:
    """Tells whether the item is only the name of another."""
    part = turn.parts[0] if turn.parts else None
    return type(part) is UnknownPart and part.kind == REFERENCE


def _parse_message(item: Payload, path: str) -> Turn:
    role = _ROLES.get(required_str(item, "role", path))
    if role is None:
        reason = "Input should be 'user', 'assistant', 'system' or 'developer'"
        raise invalid_field(join_path(path, "role"), reason)
    parts = parse_content(required(item, "content", path), join_path(path, "content"))
    extra: Payload = {}
    if not item.keys() <= _MESSAGE_FIELDS:
        extra = {name: value for name, value in item.items() if name not in _MESSAGE_FIELDS}
    if any([type(part) is UnknownPart for part in parts]):
        extra["type"] = "message"  # marks the turn, which is otherwise an item of an unknown type
    return Turn(role, parts, extra=ProviderData(Format.RESPONSES, extra) if extra else None)


def _parse_call(item: Payload, path: str) -> Turn:
    custom = item["type"] == "custom_tool_call"
    call = ToolCall(
        id=required_str(item, "call_id", path),
        name=required_str(item, "name", path),
        arguments=required_str(item, "input" if custom else "arguments", path),
        kind=CallKind.CUSTOM if custom else CallKind.FUNCTION,
        namespace=optional_str(item, "namespace", path),
        extra=ProviderData.unknown_fields(Format.RESPONSES, item, _CALL_FIELDS),
    )
    return Turn(Role.ASSISTANT, (call,))


def _parse_output(item: Payload, path: str) -> Turn:
    custom = item["type"] == "custom_tool_call_output"
    call_id = optional_str(item, "call_id", path)
    rest = ProviderData.unknown_fields(Format.RESPONSES, item, _RESULT_FIELDS)
    result = ToolResult(
        call_id=call_id or optional_str(item, "name", path) or "",
        parts=parse_content(required(item, "output", path), join_path(path, "output")),
        kind=CallKind.CUSTOM if custom else CallKind.FUNCTION,
        extra=rest if call_id else ProviderData(Format.RESPONSES, item),
    )
    return Turn(Role.USER, (result,))


def _parse_client_call(item: Payload, name: str, path: str) -> Turn:
    arguments = client_tools.CLIENT_TOOLS[name].arguments(item)
    call = ToolCall(
        id=_call_id(item, path),
        name=name,
        arguments=as_json(arguments, path),
        extra=ProviderData(Format.RESPONSES, item),
    )
    return Turn(Role.ASSISTANT, (call,))


def _parse_client_output(item: Payload, path: str) -> Turn:
    text = Text(client_tools.output_text(item, path))
    failed, extra = item.get("status") == "failed", ProviderData(Format.RESPONSES, item)
    result = ToolResult(_call_id(item, path), (text,), is_error=failed, extra=extra)
    return Turn(Role.USER, (result,))


def _call_id(item: Payload, path: str) -> str:
    """Returns an item's call id; some items have only an id of their own, or none."""
    id = optional_str(item, "call_id", path) or optional_str(item, "id", path)
    has_none = id is None and item["type"].startswith("tool_search")
    return "tool_search" if has_none else id or required_str(item, "id", path)


def _parse_reasoning(item: Payload, path: str) -> Turn:
    text = _joined_texts(item, "summary", path) or _joined_texts(item, "content", path)
    encrypted = optional_str(item, "encrypted_content", path)
    if encrypted and signatures.is_wrapped(encrypted):
        return Turn(Role.ASSISTANT, (signatures.unwrap(encrypted, text),))
    signature = {"id": item.get("id"), "encrypted_content": encrypted}
    thinking = Thinking(
        text,
        signature=ProviderData(Format.RESPONSES, signature) if encrypted else None,
        redacted=bool(encrypted and not text),
        extra=ProviderData(Format.RESPONSES, item),
    )
    return Turn(Role.ASSISTANT, (thinking,))


def _joined_texts(item: Payload, name: str, path: str) -> str:
    parts = as_objects(item.get(name), join_path(path, name))
    return "\n\n".join([required_str(part, "text", at) for part, at in parts])


def _parse_web_search(item: Payload, path: str) -> Turn:
    action = optional_object(item, "action", path) or {}
    arguments = as_json(action, join_path(path, "action"))
    call_id = optional_str(item, "id", path) or ""
    extra = ProviderData(Format.RESPONSES, item)
    call = ServerToolCall(call_id, "web_search", arguments, extra=extra)
    return Turn(Role.ASSISTANT, (call,))


_ITEM_PARSERS: Final[dict[str, Callable[[Payload, str], Turn]]] = {
    "function_call": _parse_call,
    "function_call_output": _parse_output,
    "custom_tool_call": _parse_call,
    "custom_tool_call_output": _parse_output,
    "reasoning": _parse_reasoning,
    "web_search_call": _parse_web_search,
}


_EMPTY_TEXT: Final = {"type": "input_text", "text": "(empty)"}


def restore_reasoning(thinking: Thinking, target: Target) -> Payload | None:
    """The item as its upstream sent it; None where the target is another upstream. The encrypted
    content is bound to the item's id, if it had one."""
    signature = signatures.signature_for(thinking, Format.RESPONSES, target)
    if not isinstance(signature, dict) or not isinstance(signature.get("encrypted_content"), str):
        return None
    item: Payload = {"type": "reasoning"}
    if isinstance(signature.get("id"), str):
        item["id"] = signature["id"]
    item["summary"] = [{"type": "summary_text", "text": thinking.text}] if thinking.text else []
    return item | {"encrypted_content": signature["encrypted_content"]}


def search_items(item: Payload) -> tuple[Payload, Payload]:
    """A search that the gateway ran, as a call of a function and its output."""
    part = _parse_web_search(item, "input").parts[0]
    if not isinstance(part, ServerToolCall):
        raise TypeError
    call, result = call_and_result(part)
    (text,) = result.parts
    output = text.text if isinstance(text, Text) else ""
    name = {"name": call.name, "arguments": call.arguments}
    return (
        {"type": "function_call", "call_id": call.id} | name,
        {"type": "function_call_output", "call_id": call.id, "output": output},
    )


class InputItemRenderer:
    """Renders the turns of one prompt in their order: calls and results share their ids. Items of
    this format are rendered as received, except for generated ids."""

    __slots__ = ("_content", "_dropped", "_id_counts", "_pending_ids", "_same_format", "_target")

    def __init__(self, prompt: Prompt, target: Target, dropped: Dropped) -> None:
        self._same_format = prompt.format is Format.RESPONSES
        self._target = target
        self._dropped = dropped
        self._content = ContentRenderer(prompt, target, dropped)
        self._id_counts: defaultdict[str, int] = defaultdict(int)
        self._pending_ids: defaultdict[str, deque[str]] = defaultdict(deque)

    def render(self, turns: Iterable[Turn]) -> list[Payload]:
        return [item for turn in turns for item in self._render_turn(turn)]

    def join_texts(self, turns: Iterable[Turn]) -> str:
        """The text of turns that have only texts."""
        texts: list[str] = []
        for turn in turns:
            self._dropped.remaining_fields(turn.extra)
            texts += (content["text"] for content in self._content.render_input(turn.parts))
        return "\n\n".join(texts)

    def _render_turn(self, turn: Turn) -> Iterator[Payload]:
        """Calls, results and reasoning are items, and the parts between them become messages."""
        self._dropped.remaining_fields(turn.extra)
        message: list[Part] = []
        for part in turn.parts:
            render = self._item_renderer(part, turn)
            if render is None:
                message.append(part)
                continue
            if message:
                yield from self._render_message(turn, message)
                message = []
            if type(part) is ServerToolCall and is_own_search(part):
                yield from search_items(ProviderData.native_fields(part.extra, Format.RESPONSES))
            elif (item := render(self, part)) is not None:
                yield item
        if message or not turn.parts:
            yield from self._render_message(turn, message)

    def _item_renderer(
        self, part: Part, turn: Turn
    ) -> Callable[[InputItemRenderer, Any], Payload | None] | None:
        """Finds the renderer of an item; None for parts of a message. An unknown item of this
        format is a turn of its own; the parser marks messages that have an unknown part."""
        if isinstance(part, UnknownPart):
            is_item = self._same_format and "type" not in _native_fields(turn.extra)
            return InputItemRenderer._render_unknown if is_item else None
        return self._RENDERERS.get(type(part))

    def _render_message(self, turn: Turn, parts: Sequence[Part]) -> Iterator[Payload]:
        """One message, or none where nothing is left of it."""
        role = turn.role
        if role is Role.ASSISTANT:
            content = self._content.render_output(parts)
        else:
            content = self._content.render_input(parts)
        if not self._same_format:
            if role is Role.SYSTEM:
                role = Role.DEVELOPER
            elif role is Role.USER and not content:
                content = [_EMPTY_TEXT]
        if content or self._same_format:
            yield _message_item(role, content) | _native_fields(turn.extra)

    def _render_thinking(self, part: Thinking) -> Payload | None:
        native = _native_fields(part.extra)
        if part.origin is None and native.get("type") == "reasoning":
            return native
        if (item := restore_reasoning(part, self._target)) is None:
            self._dropped.drop("thinking")
        return item

    def _render_call(self, part: ToolCall) -> Payload:
        self._dropped.remaining_fields(part.extra)
        if part.cache is not None:
            self._dropped.drop("cache_marks")
        native = _native_fields(part.extra)
        call_id = self._call_id(part.id)
        if "type" in native:
            return native
        item: Payload = {"type": "function_call", "call_id": call_id, "name": part.name}
        if not self._same_format:
            item["name"] = upstream_name(part.name, part.namespace)
        elif part.namespace is not None:
            item["namespace"] = part.namespace
        if part.kind is not CallKind.CUSTOM:
            item["arguments"] = part.arguments or ("" if self._same_format else "{}")
        elif self._target.custom_tools:
            item |= {"type": "custom_tool_call", "input": part.arguments}
        else:
            item["arguments"] = orjson.dumps({CUSTOM_TOOL_ARG: part.arguments}).decode()
        return item | native

    def _render_result(self, part: ToolResult) -> Payload:
        self._dropped.remaining_fields(part.extra)
        native = _native_fields(part.extra)
        if self._same_format:
            call_id = part.call_id
        elif pending := self._pending_ids[part.call_id]:
            call_id = pending.popleft()
        else:
            call_id = sanitize_name(part.call_id)
        if "type" in native:
            return native
        custom = part.kind is CallKind.CUSTOM and self._target.custom_tools
        kind = "custom_tool_call_output" if custom else "function_call_output"
        output = self._content.render_result(part)
        return {"type": kind, "call_id": call_id, "output": output} | native

    def _call_id(self, id: str) -> str:
        """A unique id: some clients use the name of the function as the id of all its calls."""
        if self._same_format:
            return id
        self._id_counts[id] += 1
        count = self._id_counts[id]
        unique = sanitize_name(id if count == 1 else f"{id}_{count}")
        self._pending_ids[id].append(unique)
        return unique

    def _render_server_call(self, part: ServerToolCall) -> Payload | None:
        native = _native_fields(part.extra)
        if "type" in native:
            return native
        self._dropped.drop(part.name)
        return None

    def _render_server_result(self, part: ServerToolResult) -> None:
        """Renders results into the search item, which has them in this format."""
        if not self._same_format:
            self._dropped.drop(part.name)

    def _render_unknown(self, part: UnknownPart) -> Payload:
        return _native_fields(part.data)

    _RENDERERS: ClassVar[dict[type[Part], Callable[[InputItemRenderer, Any], Payload | None]]] = {
        Thinking: _render_thinking,
        ToolCall: _render_call,
        ToolResult: _render_result,
        ServerToolCall: _render_server_call,
        ServerToolResult: _render_server_result,
    }


def empty_user_message() -> Payload:
    return _message_item(Role.USER, [_EMPTY_TEXT])


def _message_item(role: Role, content: Sequence[Payload]) -> Payload:
    return {"type": "message", "role": role.value, "content": content}


def _native_fields(extra: ProviderData | None) -> Payload:
    """The fields in `extra` of this format, without a generated id."""
    if extra is None:
        return {}
    fields = ProviderData.native_fields(extra, Format.RESPONSES)
    if is_generated(fields.get("id")):
        return {name: value for name, value in fields.items() if name != "id"}
    return fields
