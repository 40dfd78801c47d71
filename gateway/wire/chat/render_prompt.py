"""Renders a prompt of any format as the body of a chat request. It must not know replies.

Public format: Chat Completions, "Create chat completion". What the format cannot say is left out
and named, or refused where the answer would mean something else without the client noticing.

Renders a prompt's turns as the `messages` of a chat upstream. It must not know other fields.

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
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import OutputFormat, OutputKind, Prompt, Role, Turn
from gateway.core.target import Target, ToolEffort
from gateway.core.value import replace
from gateway.wire.chat.content import PARAGRAPH_BREAK, ContentRenderer, merge_texts
from gateway.wire.chat.reasoning import render_reasoning
from gateway.wire.chat.tools import render_tools
from gateway.wire.codec import Rendering
from gateway.wire.dropped import Dropped
from gateway.wire.effort import effort_of, nearest_effort
from gateway.wire.history import (
    PlainDialogue,
    pair_tool_results,
    plain_dialogue,
    split_leading_system,
)
from gateway.wire.ids import conversation_key, sanitize_name, shorten_user
from gateway.wire.json_fields import Payload, as_json
from gateway.wire.render_rules import (
    check_supported,
    enforces_schema,
    limit_max_tokens,
    render_sampling,
)
from gateway.wire.tool_names import CUSTOM_TOOL_ARG, upstream_name

_MAX_STOPS: Final = 4
_SERVICE_TIERS: Final = {"standard_only": "default"}
_SCHEMA_INSTRUCTION: Final = (
    "Answer with one JSON object only, no prose, no code fence. It must fit this JSON schema:\n"
)


def render_prompt(prompt: Prompt, target: Target) -> Rendering:
    """Raises `CannotConvert`."""
    check_supported(prompt, Format.CHAT)
    losses = Dropped(Format.CHAT)
    in_words = _schema_instruction(prompt.output, target)
    plain = plain_dialogue(prompt.turns)
    messages = render_plain_dialogue(plain, prompt, target) if plain and in_words is None else None
    if messages is None:
        messages = render_messages(prompt, target, losses, in_words)
    uncalled = plain and not prompt.tools and prompt.tool_choice is None
    tools = {} if uncalled else render_tools(prompt, target, losses)
    stops = [text for text in prompt.stop if text]
    body: Payload = {"model": target.model, "messages": messages}
    body |= tools
    body |= _render_output_limits(prompt, target, losses)
    if prompt.output and in_words is None:
        body["response_format"] = _render_response_format(
            prompt.output, losses, same_format=_is_same_format(prompt)
        )
    if stops:
        body["stop"] = stops[:_MAX_STOPS]
    body |= render_sampling(prompt, Format.CHAT, target, losses)
    if _is_same_format(prompt) and prompt.sampling.choices is not None:
        body["n"] = prompt.sampling.choices
    body |= _render_effort(prompt, target, losses, has_tools="tools" in tools)
    body |= _identity_fields(prompt, losses)
    body |= losses.request_fields(prompt)
    if prompt.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return Rendering(
        body=body,
        dropped=frozenset(losses.names),
        stop=tuple(stops[_MAX_STOPS:]),
        fenced=in_words is not None,
    )


def _is_same_format(prompt: Prompt) -> bool:
    return prompt.format is Format.CHAT


def _schema_instruction(output: OutputFormat | None, target: Target) -> str | None:
    if output is None or output.kind is not OutputKind.JSON_SCHEMA or target.structured:
        return None
    return _SCHEMA_INSTRUCTION + as_json(output.schema, "schema")


def _render_response_format(output: OutputFormat, losses: Dropped, *, same_format: bool) -> Payload:
    """A schema of a format that does not know `strict` is enforced where it may be."""
    if output.kind is OutputKind.JSON_OBJECT:
        return {"type": "json_object"}
    described: Payload = {"name": output.name or "output"}
    if output.description is not None:
        described["description"] = output.description
    if output.schema is not None:
        described["schema"] = output.schema
    strict = output.strict if same_format else enforces_schema(output, losses)
    if strict is not None:
        described["strict"] = strict
    return {"type": "json_schema", "json_schema": described}


def _render_output_limits(prompt: Prompt, target: Target, losses: Dropped) -> Payload:
    """How long the answer may be, and how wordy."""
    fields: Payload = {}
    if (limit := limit_max_tokens(prompt, target, losses, minimum=1)) is not None:
        name = "max_tokens" if target.plain_max_tokens else "max_completion_tokens"
        fields[name] = limit
    if prompt.verbosity is not None:
        fields["verbosity"] = prompt.verbosity
    return fields


def _render_effort(prompt: Prompt, target: Target, losses: Dropped, *, has_tools: bool) -> Payload:
    """`calling`: tools are sent along, which some models do not take together with an effort."""
    own, reasoning = _is_same_format(prompt), prompt.reasoning
    if reasoning is None and not has_tools:
        return {}
    if own and reasoning and reasoning.extra:  # in the words of compatible servers, which it keeps
        return dict(reasoning.extra.data)
    asked = effort_of(reasoning)
    word = nearest_effort(asked, target.efforts) if asked else None
    if asked is None and reasoning and reasoning.effort:  # a word that nobody here knows
        asked, word = reasoning.effort, reasoning.effort if own else None
    if has_tools and target.tool_effort is not ToolEffort.KEEP:
        word = "none" if target.tool_effort is ToolEffort.NONE else None
    if asked not in (word, None) and not (asked == "none" and word is None):
        losses.drop("reasoning_effort")
    return {} if word is None else {"reasoning_effort": word}


def _identity_fields(prompt: Prompt, losses: Dropped) -> Payload:
    """Who asks and in which conversation, how urgently, and what is noted beside it."""
    own = _is_same_format(prompt)
    fields: Payload = {}
    if key := prompt.cache_key or conversation_key(prompt.user):
        fields["prompt_cache_key"] = key
    if prompt.user:
        fields["user"] = prompt.user if own else shorten_user(prompt.user)
    if prompt.service_tier:
        fields["service_tier"] = _SERVICE_TIERS.get(prompt.service_tier, prompt.service_tier)
    if own:
        if prompt.extra and "user" in prompt.extra.data:
            fields["safety_identifier"] = fields["user"]
        if prompt.metadata is not None:
            fields["metadata"] = prompt.metadata
        if prompt.store is not None:
            fields["store"] = prompt.store
    else:
        losses.drop_set(metadata=prompt.metadata)  # it has a place only beside what is stored
    return fields


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
    opening, turns = split_leading_system(
        [_strip_billing_header(turn) for turn in pair_tool_results(prompt.turns)]
    )
    if instruction is not None:
        opening = (*opening, Turn(Role.SYSTEM, (Text(instruction),)))
    if not target.system_turns:
        opening, turns = _merge_system(opening), tuple(map(_as_reminder, turns))
    messages = [*dialogue.render_system(opening)]
    for role, run in groupby(turns, key=lambda turn: turn.role):
        messages += dialogue.render(role, list(run))
    return messages or [dict(_EMPTY_MESSAGE)]


def render_plain_dialogue(
    plain: PlainDialogue, prompt: Prompt, target: Target
) -> list[Payload] | None:
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
        reasoning, lost = render_reasoning(
            said.thinking, self._target, same_format=self._same_format
        )
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
            case UnknownPart(kind, data) if self._same_format and (
                kind == "audio" or "id" in data.data
            ):
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
