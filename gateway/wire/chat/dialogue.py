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
    OpaquePart,
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
from gateway.wire.chat.content import PARAGRAPHS, Content, flowing
from gateway.wire.chat.reasoning import render_reasoning
from gateway.wire.crossing import Losses
from gateway.wire.fields import Payload
from gateway.wire.history import PlainDialogue, leading_system, paired
from gateway.wire.identity import legal
from gateway.wire.toolbox import WRAPPED, sent_name

_SYSTEM: Final = (Role.SYSTEM, Role.DEVELOPER)
_BILLING: Final = re.compile(r"x-[a-z]+-billing-header:")
"""How a text begins that is no instruction: it changes with every request of some agents."""
_ERROR: Final = "Error: "
_NOTHING: Final[Payload] = {"role": "user", "content": "(empty)"}
"""Where there has to be a message and nothing is left to say."""


def render_messages(
    prompt: Prompt, target: Target, losses: Losses, instruction: str | None = None
) -> list[Payload]:
    """`instruction` is what the model has to be told beyond the prompt's own words."""
    dialogue = _Dialogue(prompt, target, losses)
    opening, turns = leading_system([_without_billing(turn) for turn in paired(prompt.turns)])
    if instruction is not None:
        opening = (*opening, Turn(Role.SYSTEM, (Text(instruction),)))
    if not target.system_turns:
        opening, turns = _one_system(opening), tuple(map(_reminder, turns))
    messages = [*dialogue.system(opening)]
    for role, run in groupby(turns, key=lambda turn: turn.role):
        messages += dialogue.speak(role, list(run))
    return messages or [dict(_NOTHING)]


def render_plain(plain: PlainDialogue, prompt: Prompt, target: Target) -> list[Payload] | None:
    """The messages of a conversation of words alone, in one step; None where some of them have to
    be put together or left out."""
    own = prompt.format is Format.CHAT
    if len(plain.system) > 1 or (plain.system and _BILLING.match(plain.system[0])):
        return None
    messages: list[Payload] = []
    if plain.system:
        role: str = "developer" if target.developer else "system"
        if own:
            role = prompt.turns[0].role
        messages.append({"role": role, "content": plain.system[0]})
    before = None
    for speaker, text in plain.said:
        if speaker is before and not own:
            return None
        before = speaker
        messages.append({"role": speaker.value, "content": text})
    return messages


def _without_billing(turn: Turn) -> Turn:
    if turn.role not in _SYSTEM:
        return turn
    parts = [p for p in turn.parts if not (isinstance(p, Text) and _BILLING.match(p.text))]
    return turn if len(parts) == len(turn.parts) else replace(turn, parts=tuple(parts))


def _one_system(opening: Sequence[Turn]) -> tuple[Turn, ...]:
    """Who takes no system messages further on takes no second one either."""
    if len(opening) < 2:
        return tuple(opening)
    return (replace(opening[0], parts=tuple(part for turn in opening for part in turn.parts)),)


def _reminder(turn: Turn) -> Turn:
    """System text within the conversation, in a person's mouth and marked as what it is."""
    if turn.role not in _SYSTEM:
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
class _Said:
    """An assistant's message as its parts add up to it."""

    content: list[Payload] = field(default_factory=list)
    thoughts: list[Thinking] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    calls: list[Payload] = field(default_factory=list)
    audio: Payload | None = None


class _Dialogue:
    __slots__ = ("_content", "_losses", "_own", "_target")

    def __init__(self, prompt: Prompt, target: Target, losses: Losses) -> None:
        self._content = Content(prompt, target, losses)
        self._losses = losses
        self._own = prompt.format is Format.CHAT
        self._target = target

    def speak(self, role: Role, turns: Sequence[Turn]) -> Iterator[Payload]:
        """The messages of neighbouring turns of one role. Other formats cut one speaker's words
        into several turns, so those become one message; a chat client's own stay as they are."""
        if role in _SYSTEM:
            yield from self.system(turns)
            return
        render = self._assistant if role is Role.ASSISTANT else self._user
        for run in [[turn] for turn in turns] if self._own else [turns]:
            yield from render(run)

    def system(self, turns: Iterable[Turn]) -> Iterator[Payload]:
        for turn in turns:
            role: str = turn.role
            if not self._own:
                role = "developer" if self._target.developer else "system"
            if content := self._content.whole(turn.parts):
                yield {"role": role, "content": content} | self._around(turn)

    def _around(self, turn: Turn) -> Payload:
        """What stands in the message beside its content."""
        fields: Payload = {} if turn.name is None else {"name": turn.name}
        return fields | self._losses.rest(turn.extra)

    def _user(self, turns: Sequence[Turn]) -> Iterator[Payload]:
        results: list[Payload] = []
        shown: list[Payload] = []
        fields: Payload = {}
        for turn in turns:
            others: list[Part] = []
            for part in turn.parts:
                if isinstance(part, ToolResult):
                    message, media = self._result(part)
                    results.append(message)
                    shown += media
                else:
                    others.append(part)
            if others or not turn.parts:
                shown += self._content.rendered(others)
                fields |= self._around(turn)
        yield from results
        content = self._content.joined(shown)
        if content or (self._own and not results):
            yield {"role": "user", "content": content} | fields

    def _result(self, result: ToolResult) -> tuple[Payload, list[Payload]]:
        """A `tool` message, and what else of the result has to be shown."""
        content = self._content
        said: list[Payload] = []
        shown: list[Payload] = []
        for part in result.parts:
            entries = content.rendered([part])
            if not self._own and entries and entries[0]["type"] != "text":
                shown += entries
                kind = type(part).__name__.lower()
                entries = [{"type": "text", "text": f"[{kind} attached below]"}]
            said += entries
        if result.is_error:
            _begin_with_error(said)
        if mark := content.mark(result.cache):
            said = said or [{"type": "text", "text": ""}]
            said[-1] |= mark
        message: Payload = {"role": "tool", "tool_call_id": legal(result.call_id)}
        message["content"] = content.joined(said, "\n")
        return message | self._losses.rest(result.extra), shown

    def _assistant(self, turns: Sequence[Turn]) -> Iterator[Payload]:
        said = _Said()
        message: Payload = {"role": "assistant", "content": None}
        for turn in turns:
            for part in turn.parts if self._own else flowing(turn.parts):
                self._say(part, said)
            message |= self._around(turn)
        content = self._content.joined(said.content)
        silent = said.calls or said.refusals or said.audio
        message["content"] = None if silent and not content else content
        if said.refusals:
            message["refusal"] = PARAGRAPHS.join(said.refusals)
        reasoning, lost = render_reasoning(said.thoughts, self._target, own=self._own)
        if lost:
            self._losses.lose("thinking")
        message |= reasoning
        if said.calls:
            message["tool_calls"] = said.calls
        if said.audio:
            message["audio"] = said.audio
        if self._own or content or silent:
            yield message

    def _say(self, part: Part, said: _Said) -> None:
        match part:
            case ToolCall():
                said.calls.append(self._call(part))
            case Thinking():
                said.thoughts.append(part)
            case Refusal(text):
                said.refusals.append(text)
            case Image() | Document() | Audio() if not self._own:
                self._losses.lose(type(part).__name__.lower())
            case OpaquePart(kind, data) if self._own and (kind == "audio" or "id" in data.data):
                if kind == "audio":
                    said.audio = data.data
                else:
                    said.calls.append(data.data)
            case _:
                said.content += self._content.rendered([part])

    def _call(self, call: ToolCall) -> Payload:
        if call.cache:
            self._losses.lose("cache_marks")
        name = sent_name(call.name, call.namespace)
        entry: Payload = {"id": legal(call.id), "type": "function"}
        if call.kind is CallKind.FUNCTION:
            arguments = call.arguments if self._own else _object_text(call.arguments)
            entry["function"] = {"name": name, "arguments": arguments or "{}"}
        elif self._own or self._target.custom_tools:
            entry["type"] = "custom"
            entry["custom"] = {"name": name, "input": call.arguments}
        else:
            wrapped = orjson.dumps({WRAPPED: call.arguments}).decode()
            entry["function"] = {"name": name, "arguments": wrapped}
        return entry | self._losses.rest(call.extra)


def _object_text(arguments: str) -> str:
    """Arguments that are the text of a JSON object: servers put them into the model's template."""
    try:
        value = orjson.loads(arguments or "{}")
        return arguments if isinstance(value, dict) else orjson.dumps({"value": value}).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # no JSON, or nested too deeply
        return orjson.dumps({"_raw": arguments}).decode()


def _begin_with_error(said: list[Payload]) -> None:
    """The format has no other sign for a tool that failed."""
    if not said or said[0]["type"] != "text":
        said.insert(0, {"type": "text", "text": _ERROR.rstrip()})
    elif not said[0]["text"].startswith(_ERROR.rstrip()):
        said[0] |= {"text": _ERROR + said[0]["text"]}
