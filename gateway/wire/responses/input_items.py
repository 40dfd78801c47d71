"""Turns of a prompt as responses input items. It must not know in which order turns may stand.

A client of this format has its items back as it sent them, but for ids that were made here.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final

import orjson

from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
    Opaque,
    OpaquePart,
    Part,
    ServerToolCall,
    ServerToolResult,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.wire import carrier
from gateway.wire.crossing import Losses
from gateway.wire.fields import Payload
from gateway.wire.identity import legal
from gateway.wire.responses.content import Content
from gateway.wire.responses.ids import is_minted
from gateway.wire.toolbox import WRAPPED, sent_name

_NOTHING: Final = {"type": "input_text", "text": "(empty)"}


def restored_reasoning(thinking: Thinking, target: Target) -> Payload | None:
    """The item as its upstream gave it out; None where this upstream is not the one. The encrypted
    content is bound to its id, where it had one."""
    proof = carrier.proof(thinking, Format.RESPONSES, target)
    if not isinstance(proof, dict) or not isinstance(proof.get("encrypted_content"), str):
        return None
    item: Payload = {"type": "reasoning"}
    if isinstance(proof.get("id"), str):
        item["id"] = proof["id"]
    item["summary"] = [{"type": "summary_text", "text": thinking.text}] if thinking.text else []
    return item | {"encrypted_content": proof["encrypted_content"]}


class Items:
    """Renders the turns of one prompt in their order: calls and results share their ids."""

    __slots__ = ("_awaited", "_content", "_losses", "_own", "_target", "_times")

    def __init__(self, prompt: Prompt, target: Target, losses: Losses) -> None:
        self._own = prompt.format is Format.RESPONSES
        self._target = target
        self._losses = losses
        self._content = Content(prompt, target, losses)
        self._times: defaultdict[str, int] = defaultdict(int)
        self._awaited: defaultdict[str, deque[str]] = defaultdict(deque)

    def of(self, turns: Iterable[Turn]) -> list[Payload]:
        return [item for turn in turns for item in self._turn(turn)]

    def joined(self, turns: Iterable[Turn]) -> str:
        """The texts of turns that hold nothing else."""
        texts: list[str] = []
        for turn in turns:
            self._losses.rest(turn.extra)
            texts += (said["text"] for said in self._content.heard(turn.parts))
        return "\n\n".join(texts)

    def _turn(self, turn: Turn) -> Iterator[Payload]:
        """Items of their own, and a message for what is said between them."""
        self._losses.rest(turn.extra)
        said: list[Part] = []
        for part in turn.parts:
            tell = self._teller(part, turn)
            if tell is None:
                said.append(part)
                continue
            if said:
                yield from self._messages(turn, said)
                said = []
            if (item := tell(self, part)) is not None:
                yield item
        if said or not turn.parts:
            yield from self._messages(turn, said)

    def _teller(self, part: Part, turn: Turn) -> Callable[[Items, Any], Payload | None] | None:
        """None for parts of a message. An item of this format that the hub has no word for is all
        of its turn; the parser marks turns that are messages with such a part."""
        if isinstance(part, OpaquePart):
            return Items._opaque if self._own and "type" not in _own(turn.extra) else None
        return self._ITEMS.get(type(part))

    def _messages(self, turn: Turn, parts: Sequence[Part]) -> Iterator[Payload]:
        """One message, or none where nothing is left of it."""
        assistant = turn.role is Role.ASSISTANT
        content = self._content.spoken(parts) if assistant else self._content.heard(parts)
        if not content and turn.role is Role.USER and not self._own:
            content = [_NOTHING]
        if content or self._own:
            role = Role.DEVELOPER if turn.role is Role.SYSTEM and not self._own else turn.role
            yield _message(role, content) | _known(_own(turn.extra))

    def _thinking(self, part: Thinking) -> Payload | None:
        if part.origin is None and (own := _own(part.extra)).get("type") == "reasoning":
            return _known(own)
        if (item := restored_reasoning(part, self._target)) is None:
            self._losses.lose("thinking")
        return item

    def _call(self, part: ToolCall) -> Payload:
        self._finish(part)
        own = _known(_own(part.extra))
        call_id = self._call_id(part.id)
        if "type" in own:
            return own
        item: Payload = {"type": "function_call", "call_id": call_id} | self._named(part)
        if part.kind is not CallKind.CUSTOM:
            unsaid = "" if self._own else "{}"
            return item | {"arguments": part.arguments or unsaid} | own
        if not self._target.custom_tools:
            wrapped = orjson.dumps({WRAPPED: part.arguments}).decode()
            return item | {"arguments": wrapped} | own
        return item | {"type": "custom_tool_call", "input": part.arguments} | own

    def _named(self, part: ToolCall) -> Payload:
        if not self._own:
            return {"name": sent_name(part.name, part.namespace)}
        if part.namespace is None:
            return {"name": part.name}
        return {"name": part.name, "namespace": part.namespace}

    def _result(self, part: ToolResult) -> Payload:
        self._losses.rest(part.extra)
        awaited = self._awaited[part.call_id]
        call_id = awaited.popleft() if awaited else self._legal(part.call_id)
        own = _known(_own(part.extra))
        if "type" in own:
            return own
        custom = part.kind is CallKind.CUSTOM and self._target.custom_tools
        kind = "custom_tool_call_output" if custom else "function_call_output"
        return {"type": kind, "call_id": call_id, "output": self._content.output(part)} | own

    def _call_id(self, id: str) -> str:
        """Some clients name a call by its function, again and again: here ids are unique."""
        if self._own:
            return id
        self._times[id] += 1
        times = self._times[id]
        sent = legal(id) if times == 1 else legal(f"{id}_{times}")
        self._awaited[id].append(sent)
        return sent

    def _legal(self, id: str) -> str:
        return id if self._own else legal(id)

    def _server_call(self, part: ServerToolCall) -> Payload | None:
        own = _known(_own(part.extra))
        if "type" in own:
            return own
        self._losses.lose(part.name)
        return None

    def _server_result(self, part: ServerToolResult) -> None:
        """Here a search is one item with what it found."""
        if not self._own:
            self._losses.lose(part.name)

    def _opaque(self, part: OpaquePart) -> Payload:
        return _known(part.data.data)

    def _finish(self, part: ToolCall) -> None:
        self._losses.rest(part.extra)
        self._content.lose_mark(part.cache)

    _ITEMS: ClassVar[dict[type[Part], Callable[[Items, Any], Payload | None]]] = {
        Thinking: _thinking,
        ToolCall: _call,
        ToolResult: _result,
        ServerToolCall: _server_call,
        ServerToolResult: _server_result,
    }


def nothing() -> Payload:
    """A message of the user's, where there has to be one."""
    return _message(Role.USER, [_NOTHING])


def _message(role: Role, content: Sequence[Payload]) -> Payload:
    return {"type": "message", "role": role.value, "content": content}


def _own(extra: Opaque | None) -> Payload:
    """The fields of a side pocket of this format."""
    return extra.data if extra is not None and extra.format is Format.RESPONSES else {}


def _known(item: Payload) -> Payload:
    """Without the ids that no upstream has given out."""
    if is_minted(item.get("id")):
        return {name: value for name, value in item.items() if name != "id"}
    return item
