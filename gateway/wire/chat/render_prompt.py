"""Renders prompts as chat requests (Chat Completions, "Create chat completion").

Upstreams demand that an assistant's calls are followed by one `tool` message each, which have only
text; so the media in tool results go into a user message after them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import orjson

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CallKind,
    Document,
    Image,
    Part,
    ProviderData,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import OutputKind, Prompt, Role, Turn
from gateway.core.target import Target, ToolEffort
from gateway.core.value import replace
from gateway.wire.chat.content import PARAGRAPH_BREAK, ContentRenderer, is_plain, merge_texts
from gateway.wire.chat.reasoning import CALL_EXTRA, render_reasoning, split_call_extra
from gateway.wire.chat.tools import render_tools
from gateway.wire.codec import Rendering
from gateway.wire.json.fields import Payload
from gateway.wire.json.limits import load_json
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.history import (
    SYSTEM_ROLES,
    PlainDialogue,
    pair_tool_results,
    plain_dialogue,
    split_leading_system,
)
from gateway.wire.prompt.known_turns import render_known
from gateway.wire.prompt.render_rules import (
    check_supported,
    effort_of,
    enforces_schema,
    limit_max_tokens,
    nearest_effort,
    render_sampling,
    with_output_instruction,
)
from gateway.wire.prompt.server_results import read_results
from gateway.wire.prompt.tool_names import (
    CUSTOM_TOOL_ARG,
    conversation_key,
    sanitize_name,
    shorten_user,
    upstream_name,
)

_MAX_STOPS: Final = 4
_SERVICE_TIERS: Final = {"standard_only": "default"}
_BILLING_HEADER: Final = re.compile(r"x-[a-z]+-billing-header:")
"""Start of a text of agents that changes with every request and has no meaning elsewhere."""
_ERROR_PREFIX: Final = "Error: "
"""The format has no other sign of a failed tool."""
_EMPTY_MESSAGE: Final[Payload] = {"role": "user", "content": "(empty)"}


def render_prompt(prompt: Prompt, target: Target) -> Rendering:
    """Raises `UnsupportedField` for what would change the meaning of the reply."""
    check_supported(prompt, Format.CHAT)
    dropped = Dropped(Format.CHAT)
    same_format = prompt.format is Format.CHAT
    expects_json = prompt.output is not None
    prompt = with_output_instruction(prompt, target)
    plain = plain_dialogue(prompt.turns)
    messages: list[Payload] | None = None
    if plain:
        messages = _render_plain_dialogue(plain, prompt, target)
    if messages is None:
        messages = render_messages(prompt, target, dropped)
    tools: Payload = {}
    if prompt.tools or prompt.tool_choice is not None or not plain:
        tools = render_tools(prompt, target, dropped)
    limit = "max_tokens" if target.plain_max_tokens else "max_completion_tokens"
    stops = [stop for stop in prompt.stop if stop]
    fields = {
        "model": target.model,
        "messages": messages,
        **tools,
        limit: limit_max_tokens(prompt, target, dropped, minimum=1),
        "verbosity": prompt.verbosity,
        "response_format": _render_output(prompt, dropped),
        "stop": stops[:_MAX_STOPS] or None,
        **render_sampling(prompt, Format.CHAT, target, dropped),
        "n": prompt.sampling.choices if same_format else None,
        **_render_effort(prompt, target, dropped, has_tools="tools" in tools),
        **_identity_fields(prompt, dropped),
    }
    body = {name: value for name, value in fields.items() if value is not None}
    body |= dropped.request_fields(prompt)
    if prompt.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return Rendering(
        body=body,
        dropped=frozenset(dropped.names),
        stop=tuple(stops[_MAX_STOPS:]),
        fenced=expects_json,
    )


def _render_output(prompt: Prompt, dropped: Dropped) -> Payload | None:
    """A schema from another format, which has no `strict`, is enforced where that is possible."""
    output = prompt.output
    if output is None:
        return None
    if output.kind is OutputKind.JSON_OBJECT:
        return {"type": "json_object"}
    same_format = prompt.format is Format.CHAT
    schema = {
        "name": output.name or "output",
        "description": output.description,
        "schema": output.schema,
        "strict": output.strict if same_format else enforces_schema(output, dropped),
    }
    set_fields = {name: value for name, value in schema.items() if value is not None}
    return {"type": "json_schema", "json_schema": set_fields}


def _render_effort(prompt: Prompt, target: Target, dropped: Dropped, *, has_tools: bool) -> Payload:
    """Renders the effort, which some models do not accept together with tools."""
    same_format, reasoning = prompt.format is Format.CHAT, prompt.reasoning
    if reasoning is None and not has_tools:
        return {}
    if same_format and reasoning and reasoning.extra:  # the fields of compatible servers
        return dict(reasoning.extra.data)
    requested = effort_of(reasoning)
    effort = nearest_effort(requested, target.efforts) if requested else None
    if requested is None and reasoning and reasoning.effort:  # not one of `EFFORTS`
        requested, effort = reasoning.effort, reasoning.effort if same_format else None
    if has_tools and target.tool_effort is not ToolEffort.KEEP:
        effort = "none" if target.tool_effort is ToolEffort.NONE else None
    if requested not in (effort, None) and not (requested == "none" and effort is None):
        dropped.drop("reasoning_effort")
    return {"reasoning_effort": effort}


def _identity_fields(prompt: Prompt, dropped: Dropped) -> Payload:
    """User, conversation and service tier."""
    user, tier = prompt.user or None, prompt.service_tier or None
    fields: Payload = {
        "prompt_cache_key": prompt.cache_key or conversation_key(user) or None,
        "user": user,
        "service_tier": _SERVICE_TIERS.get(tier, tier) if tier else None,
    }
    if prompt.format is not Format.CHAT:
        dropped.drop_set(metadata=prompt.metadata)  # only stored requests have metadata
        return fields | {"user": shorten_user(user) if user else None}
    if "user" in ProviderData.native_fields(prompt.extra, Format.CHAT):
        fields["safety_identifier"] = user
    return fields | {"metadata": prompt.metadata, "store": prompt.store}


def render_messages(prompt: Prompt, target: Target, dropped: Dropped) -> list[Payload]:
    renderer = _MessageRenderer(prompt, target, dropped)
    leading, rest = split_leading_system(prompt.turns)
    first = [_without_billing(turn) for turn in pair_tool_results(leading)]
    if not target.system_turns and len(first) > 1:  # such targets accept one system message
        parts = [part for turn in first for part in turn.parts]
        first = [replace(first[0], parts=tuple(parts))]

    def render(turns: Sequence[Turn], uses: dict[str, int]) -> list[Payload]:
        paired = pair_tool_results(read_results(turns, dropped), uses)
        ordered = [_without_billing(turn) for turn in paired]
        if not target.system_turns:
            ordered = [*map(_as_reminder, ordered)]
        messages: list[Payload] = []
        for role, run in groupby(ordered, key=lambda turn: turn.role):
            messages += renderer.render(role, list(run))
        return messages

    messages = [*renderer.render_system(first)]
    messages += render_known(prompt.turns, rest, target, dropped, render)
    return messages or [dict(_EMPTY_MESSAGE)]


def _render_plain_dialogue(
    plain: PlainDialogue, prompt: Prompt, target: Target
) -> list[Payload] | None:
    """Renders a dialogue of plain texts in one step; None if some have to be merged or left out."""
    same_format = prompt.format is Format.CHAT
    if len(plain.system) > 1 or (plain.system and _BILLING_HEADER.match(plain.system[0])):
        return None
    messages: list[Payload] = []
    if plain.system:
        role = prompt.turns[0].role.value if same_format else _system_role(target)
        messages.append({"role": role, "content": plain.system[0]})
    previous = None
    for turn_role, text in plain.messages:
        if turn_role is previous and not same_format:
            return None
        previous = turn_role
        messages.append({"role": turn_role.value, "content": text})
    return messages


def _system_role(target: Target) -> str:
    return "developer" if target.developer else "system"


def _without_billing(turn: Turn) -> Turn:
    if turn.role not in SYSTEM_ROLES:
        return turn
    parts = [p for p in turn.parts if not (isinstance(p, Text) and _BILLING_HEADER.match(p.text))]
    return turn if len(parts) == len(turn.parts) else replace(turn, parts=tuple(parts))


def _as_reminder(turn: Turn) -> Turn:
    """A system turn within the conversation as a user turn with marked text."""
    if turn.role not in SYSTEM_ROLES:
        return turn
    parts = [
        replace(part, text=f"<system-reminder>\n{part.text}\n</system-reminder>")
        if isinstance(part, Text)
        else part
        for part in turn.parts
    ]
    return Turn(Role.USER, tuple(parts))


@dataclass(slots=True)
class _AssistantDraft:
    """The sum of the parts of an assistant's message add up to."""

    content: list[Payload] = field(default_factory=list)
    thinking: list[Thinking] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    tool_calls: list[Payload] = field(default_factory=list)
    audio: Payload | None = None
    call_extra: Any | None = None


class _MessageRenderer:
    __slots__ = ("_content", "_dropped", "_same_format", "_target")

    def __init__(self, prompt: Prompt, target: Target, dropped: Dropped) -> None:
        self._content = ContentRenderer(prompt, target, dropped)
        self._dropped = dropped
        self._same_format = prompt.format is Format.CHAT
        self._target = target

    def render(self, role: Role, turns: Sequence[Turn]) -> Iterator[Payload]:
        """The messages of adjacent turns of one role: one message, as other formats split such
        turns; a chat client's own turns stay separate."""
        if role in SYSTEM_ROLES:
            yield from self.render_system(turns)
            return
        render = self._render_assistant if role is Role.ASSISTANT else self._render_user
        for run in [[turn] for turn in turns] if self._same_format else [turns]:
            yield from render(run)

    def render_system(self, turns: Iterable[Turn]) -> Iterator[Payload]:
        for turn in turns:
            role = turn.role.value if self._same_format else _system_role(self._target)
            if content := self._content.render(turn.parts):
                yield {"role": role, "content": content} | self._message_fields(turn)

    def _message_fields(self, turn: Turn) -> Payload:
        """The other fields of a message."""
        fields: Payload = {} if turn.name is None else {"name": turn.name}
        return fields | self._dropped.remaining_fields(turn.extra)

    def _render_user(self, turns: Sequence[Turn]) -> Iterator[Payload]:
        """The messages of the tool results come before the user's own. The latter are one message,
        except that a text which was sent as a string stays one."""
        results: list[Payload] = []
        contents: list[list[Payload]] = []
        fields: Payload = {}
        for turn in turns:
            entries: list[Payload] = []
            others: list[Part] = []
            for part in turn.parts:
                if isinstance(part, ToolResult):
                    message, media = self._render_result(part)
                    results.append(message)
                    entries += media
                else:
                    others.append(part)
            if others or not turn.parts:
                entries += self._content.render_parts(others)
                fields |= self._message_fields(turn)
            if contents and (is_plain(entries) or not is_plain(contents[-1])):
                contents[-1] += entries
            else:
                contents.append(entries)
        yield from results
        for entries in contents:
            content = self._content.as_content(entries)
            if content or (self._same_format and not results):
                yield {"role": "user", "content": content} | fields

    def _render_result(self, result: ToolResult) -> tuple[Payload, list[Payload]]:
        """A `tool` message, and the media that it cannot have."""
        content = self._content
        entries: list[Payload] = []
        media: list[Payload] = []
        for part in result.parts:
            rendered = content.render_parts([part])
            if not self._same_format and rendered and rendered[0]["type"] != "text":
                media += rendered
                kind = type(part).__name__.lower()
                rendered = [{"type": "text", "text": f"[{kind} attached below]"}]
            entries += rendered
        if result.is_error:
            _mark_as_error(entries)
        if breakpoint := content.cache_field(result.cache):
            entries = entries or [{"type": "text", "text": ""}]
            entries[-1] |= breakpoint
        message = {
            "role": "tool",
            "tool_call_id": sanitize_name(result.call_id),
            "content": content.as_content(entries, "\n"),
        }
        return message | self._dropped.remaining_fields(result.extra), media

    def _render_assistant(self, turns: Sequence[Turn]) -> Iterator[Payload]:
        draft = _AssistantDraft()
        message: Payload = {"role": "assistant", "content": None}
        for turn in turns:
            for part in turn.parts if self._same_format else merge_texts(turn.parts):
                self._add_part(part, draft)
            if turn.name is not None or turn.extra is not None:
                message |= self._message_fields(turn)
        content = self._content.as_content(draft.content)
        has_others = draft.tool_calls or draft.refusals or draft.audio
        message["content"] = None if has_others and not content else content
        if draft.refusals:
            message["refusal"] = PARAGRAPH_BREAK.join(draft.refusals)
        if draft.thinking:
            reasoning, is_dropped = render_reasoning(
                draft.thinking, self._target, same_format=self._same_format
            )
            if is_dropped:
                self._dropped.drop("thinking")
            message |= reasoning
        if draft.tool_calls:
            message["tool_calls"] = draft.tool_calls
        if draft.audio:
            message["audio"] = draft.audio
        if self._same_format or content or has_others:
            yield message

    def _add_part(self, part: Part, draft: _AssistantDraft) -> None:
        match part:
            case Text():
                draft.content += self._content.render_parts((part,))
            case ToolCall():
                call = self._render_call(part)
                if draft.call_extra is not None:
                    call, draft.call_extra = {CALL_EXTRA: draft.call_extra, **call}, None
                draft.tool_calls.append(call)
            case Thinking():
                thinking, extra = split_call_extra(part, self._target)
                draft.call_extra = draft.call_extra if extra is None else extra
                if thinking is not None:
                    draft.thinking.append(thinking)
            case Refusal(text):
                draft.refusals.append(text)
            case Image() | Document() | Audio() if not self._same_format:
                self._dropped.drop(type(part).__name__.lower())
            case UnknownPart("audio", data) if self._same_format:
                draft.audio = data.data
            case UnknownPart(data=data) if self._same_format and "id" in data.data:
                draft.tool_calls.append(data.data)
            case _:
                draft.content += self._content.render_parts((part,))

    def _render_call(self, call: ToolCall) -> Payload:
        if call.cache:
            self._dropped.drop("cache_marks")
        name = upstream_name(call.name, call.namespace)
        kind, fields = "function", {"name": name}
        if call.kind is CallKind.FUNCTION:
            arguments = call.arguments if self._same_format else _object_text(call.arguments)
            fields["arguments"] = arguments or "{}"
        elif self._same_format or self._target.custom_tools:
            kind, fields["input"] = "custom", call.arguments
        else:
            fields["arguments"] = orjson.dumps({CUSTOM_TOOL_ARG: call.arguments}).decode()
        entry: Payload = {"id": sanitize_name(call.id), "type": kind, kind: fields}
        return entry if call.extra is None else entry | self._dropped.remaining_fields(call.extra)


def _object_text(arguments: str) -> str:
    """Arguments as the text of a JSON object: servers put them into the model's template."""
    try:
        value = load_json(arguments or "{}")
        return arguments if isinstance(value, dict) else orjson.dumps({"value": value}).decode()
    except (ValueError, orjson.JSONEncodeError):  # no JSON, too large or nested too deeply
        return orjson.dumps({"_raw": arguments}).decode()


def _mark_as_error(entries: list[Payload]) -> None:
    if not entries or entries[0]["type"] != "text":
        entries.insert(0, {"type": "text", "text": _ERROR_PREFIX.rstrip()})
    elif not entries[0]["text"].startswith(_ERROR_PREFIX.rstrip()):
        entries[0] |= {"text": _ERROR_PREFIX + entries[0]["text"]}
