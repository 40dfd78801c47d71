"""Renders a prompt's turns as the `messages` of a chat upstream. It must not know other fields.

What the upstream enforces: an assistant's calls are followed at once by one `tool` message each,
which hold texts alone, so what tools gave beside text comes in a person's message after them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import orjson

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CallKind,
    Document,
    Image,
    UnknownPart,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.wire.chat.content import PARAGRAPH_BREAK, ContentRenderer, merge_texts
from gateway.wire.chat.reasoning import render_reasoning
from gateway.wire.crossing import Dropped
from gateway.wire.fields import Payload
from gateway.wire.history import PlainDialogue, split_leading_system, pair_tool_results
from gateway.wire.identity import sanitize_name
from gateway.wire.toolbox import CUSTOM_TOOL_ARG, upstream_name

_SYSTEM_ROLES: Final = (Role.SYSTEM, Role.DEVELOPER)
_BILLING_HEADER: Final = re.compile(r"x-[a-z]+-billing-header:")
"""How a text begins that is no instruction: it changes with every request of some agents."""
_ERROR_PREFIX: Final = "Error: "
_EMPTY_MESSAGE: Final[Payload] = {"role": "user", "content": "(empty)"}
"""Where there has to be a message and nothing is left to say."""


def render_messages(
    prompt: Prompt, target: Target, losses: Dropped, instruction: str | None = None
) -> list[Payload]:
    """`instruction` is what the model has to be told beyond the prompt's own words."""
    dialogue = _MessageRenderer(prompt, target, losses)
    opening, turns = split_leading_system([_strip_billing_header(turn) for turn in pair_tool_results(prompt.turns)])
    if instruction is not None:
        opening = (*opening, Turn(Role.SYSTEM, (Text(instruction),)))
    if not target.system_turns:
        opening, turns = _merge_system(opening), tuple(map(_as_reminder, turns))
    messages = [*dialogue.render_system(opening)]
    for role, run in groupby(turns, key=lambda turn: turn.role):
        messages += dialogue.render(role, list(run))
    return messages or [dict(_EMPTY_MESSAGE)]


def render_plain_dialogue(plain: PlainDialogue, prompt: Prompt, target: Target) -> list[Payload] | None:
    """The messages of a conversation of words alone, in one step; None where some of them have to
    be put together or left out."""
    own = prompt.format is Format.CHAT
    if len(plain.system) > 1 or (plain.system and _BILLING_HEADER.match(plain.system[0])):
        return None
    messages: list[Payload] = []
    if plain.system:
        role: str = "developer" if target.developer else "system"
        if own:
            role = prompt.turns[0].role
        messages.append({"role": role, "content": plain.system[0]})
    before = None
    for speaker, text in plain.messages:
        if speaker is before and not own:
            return None
        before = speaker
        messages.append({"role": speaker.value, "content": text})
    return messages


def _strip_billing_header(turn: Turn) -> Turn:
    if turn.role not in _SYSTEM_ROLES:
        return turn
    parts = [p for p in turn.parts if not (isinstance(p, Text) and _BILLING_HEADER.match(p.text))]
    return turn if len(parts) == len(turn.parts) else replace(turn, parts=tuple(parts))


def _merge_system(opening: Sequence[Turn]) -> tuple[Turn, ...]:
    """Who takes no system messages further on takes no second one either."""
    if len(opening) < 2:
        return tuple(opening)
    return (replace(opening[0], parts=tuple(part for turn in opening for part in turn.parts)),)


def _as_reminder(turn: Turn) -> Turn:
    """System text within the conversation, in a person's mouth and marked as what it is."""
    if turn.role not in _SYSTEM_ROLES:
        return turn
    return Turn(
        Role.USER,
        tuple(
            replace(part, text=f"<system-reminder>\n{part.text}\n</system-reminder>")
            if isinstance(part, Text)
            else part
            for part in turn.parts
        ),
    )


@dataclass(slots=True)
class _AssistantDraft:
    """An assistant's message as its parts add up to it."""

    content: list[Payload] = field(default_factory=list)
    thinking: list[Thinking] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    tool_calls: list[Payload] = field(default_factory=list)
    audio: Payload | None = None


class _MessageRenderer:
    __slots__ = ("_content", "_dropped", "_same_format", "_target")

    def __init__(self, prompt: Prompt, target: Target, losses: Dropped) -> None:
        self._content = ContentRenderer(prompt, target, losses)
        self._dropped = losses
        self._same_format = prompt.format is Format.CHAT
        self._target = target

    def render(self, role: Role, turns: Sequence[Turn]) -> Iterator[Payload]:
        """The messages of neighbouring turns of one role. Other formats cut one speaker's words
        into several turns, so those become one message; a chat client's own stay as they are."""
        if role in _SYSTEM_ROLES:
            yield from self.render_system(turns)
            return
        render = self._render_assistant if role is Role.ASSISTANT else self._render_user
        for run in [[turn] for turn in turns] if self._same_format else [turns]:
            yield from render(run)

    def render_system(self, turns: Iterable[Turn]) -> Iterator[Payload]:
        for turn in turns:
            role: str = turn.role
            if not self._same_format:
                role = "developer" if self._target.developer else "system"
            if content := self._content.render(turn.parts):
                yield {"role": role, "content": content} | self._message_fields(turn)

    def _message_fields(self, turn: Turn) -> Payload:
        """What stands in the message beside its content."""
        fields: Payload = {} if turn.name is None else {"name": turn.name}
        return fields | self._dropped.remaining_fields(turn.extra)

    def _render_user(self, turns: Sequence[Turn]) -> Iterator[Payload]:
        results: list[Payload] = []
        shown: list[Payload] = []
        fields: Payload = {}
        for turn in turns:
            others: list[Part] = []
            for part in turn.parts:
                if isinstance(part, ToolResult):
                    message, media = self._render_result(part)
                    results.append(message)
                    shown += media
                else:
                    others.append(part)
            if others or not turn.parts:
                shown += self._content.render_parts(others)
                fields |= self._message_fields(turn)
        yield from results
        content = self._content.as_content(shown)
        if content or (self._same_format and not results):
            yield {"role": "user", "content": content} | fields

    def _render_result(self, result: ToolResult) -> tuple[Payload, list[Payload]]:
        """A `tool` message, and what else of the result has to be shown."""
        content = self._content
        said: list[Payload] = []
        shown: list[Payload] = []
        for part in result.parts:
            entries = content.render_parts([part])
            if not self._same_format and entries and entries[0]["type"] != "text":
                shown += entries
                kind = type(part).__name__.lower()
                entries = [{"type": "text", "text": f"[{kind} attached below]"}]
            said += entries
        if result.is_error:
            _mark_as_error(said)
        if mark := content.cache_field(result.cache):
            said = said or [{"type": "text", "text": ""}]
            said[-1] |= mark
        message: Payload = {"role": "tool", "tool_call_id": sanitize_name(result.call_id)}
        message["content"] = content.as_content(said, "\n")
        return message | self._dropped.remaining_fields(result.extra), shown

    def _render_assistant(self, turns: Sequence[Turn]) -> Iterator[Payload]:
        said = _AssistantDraft()
        message: Payload = {"role": "assistant", "content": None}
        for turn in turns:
            for part in turn.parts if self._same_format else merge_texts(turn.parts):
                self._add_part(part, said)
            message |= self._message_fields(turn)
        content = self._content.as_content(said.content)
        silent = said.tool_calls or said.refusals or said.audio
        message["content"] = None if silent and not content else content
        if said.refusals:
            message["refusal"] = PARAGRAPH_BREAK.join(said.refusals)
        reasoning, lost = render_reasoning(said.thinking, self._target, same_format=self._same_format)
        if lost:
            self._dropped.drop("thinking")
        message |= reasoning
        if said.tool_calls:
            message["tool_calls"] = said.tool_calls
        if said.audio:
            message["audio"] = said.audio
        if self._same_format or content or silent:
            yield message

    def _add_part(self, part: Part, said: _AssistantDraft) -> None:
        match part:
            case ToolCall():
                said.tool_calls.append(self._render_call(part))
            case Thinking():
                said.thinking.append(part)
            case Refusal(text):
                said.refusals.append(text)
            case Image() | Document() | Audio() if not self._same_format:
                self._dropped.drop(type(part).__name__.lower())
            case UnknownPart(kind, data) if self._same_format and (kind == "audio" or "id" in data.data):
                if kind == "audio":
                    said.audio = data.data
                else:
                    said.tool_calls.append(data.data)
            case _:
                said.content += self._content.render_parts([part])

    def _render_call(self, call: ToolCall) -> Payload:
        if call.cache:
            self._dropped.drop("cache_marks")
        name = upstream_name(call.name, call.namespace)
        entry: Payload = {"id": sanitize_name(call.id), "type": "function"}
        if call.kind is CallKind.FUNCTION:
            arguments = call.arguments if self._same_format else _object_text(call.arguments)
            entry["function"] = {"name": name, "arguments": arguments or "{}"}
        elif self._same_format or self._target.custom_tools:
            entry["type"] = "custom"
            entry["custom"] = {"name": name, "input": call.arguments}
        else:
            wrapped = orjson.dumps({CUSTOM_TOOL_ARG: call.arguments}).decode()
            entry["function"] = {"name": name, "arguments": wrapped}
        return entry | self._dropped.remaining_fields(call.extra)


def _object_text(arguments: str) -> str:
    """Arguments that are the text of a JSON object: servers put them into the model's template."""
    try:
        value = orjson.loads(arguments or "{}")
        return arguments if isinstance(value, dict) else orjson.dumps({"value": value}).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # no JSON, or nested too deeply
        return orjson.dumps({"_raw": arguments}).decode()


def _mark_as_error(said: list[Payload]) -> None:
    """The format has no other sign for a tool that failed."""
    if not said or said[0]["type"] != "text":
        said.insert(0, {"type": "text", "text": _ERROR_PREFIX.rstrip()})
    elif not said[0]["text"].startswith(_ERROR_PREFIX.rstrip()):
        said[0] |= {"text": _ERROR_PREFIX + said[0]["text"]}
