"""Prompts of any format as messages requests. It must not know which client or account it is for.

Public format: Messages, "Create a message". What only tunes the answer and has no word here is left
out and named; what would make it another answer is refused.

The form that the answer must have, as messages upstreams can be asked for it.

Where a model enforces no schemas, a tool that must be called stands in for one, or words do. It
must not know what the conversation is about.

A prompt's turns as `system` and `messages`, in the order that messages upstreams insist on.

The first message is a user's, roles take turns, results come first in the message after their
calls, and nothing is empty (Messages, "Messages", "Tool use"). It must not know tools or options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Text
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target, ThinkingStyle
from gateway.core.value import replace, value
from gateway.wire.codec import Rendering
from gateway.wire.dropped import Dropped
from gateway.wire.history import (
    PlainDialogue,
    inline_names,
    pair_tool_results,
    plain_dialogue,
    split_leading_system,
)
from gateway.wire.ids import shorten_user
from gateway.wire.json_fields import Payload, as_json
from gateway.wire.json_schema import messages_schema
from gateway.wire.messages import cache_control
from gateway.wire.messages.content import ContentRenderer
from gateway.wire.messages.reasoning import (
    ThinkingParams,
    is_thinking,
    remove_clear_thinking,
    render_reasoning,
)
from gateway.wire.messages.tools import as_auto, is_forced, render_tool_choice, render_tools
from gateway.wire.render_rules import check_supported, limit_max_tokens, render_sampling
from gateway.wire.tool_names import JSON_OUTPUT_TOOL, UpstreamTools, has_tool_calls

_NUMBERS: Final = (int, float)
_NO_THINKING: Final = ThinkingParams(None, None, 0)
"""Of a prompt that says nothing of how hard to think."""
_DEFAULT_MAX_TOKENS: Final = 32_000
_DEFAULT_MAX_OUTPUT: Final = 8192
"""Tokens that a model can put out as far as nothing is known of it."""
_SERVICE_TIERS: Final = {"auto": "auto", "default": "standard_only"}


def render_prompt(prompt: Prompt, target: Target) -> Rendering:
    """Raises `CannotConvert` naming the field."""
    losses = Dropped(Format.MESSAGES)
    own = prompt.format is Format.MESSAGES
    check_supported(prompt, Format.MESSAGES)
    fields = _native_request_fields(prompt, losses)

    tools, choice, form = _render_tools_and_output(prompt, target, losses)
    system, messages = render_messages(prompt, target, losses)
    if form.instruction:
        system.append({"type": "text", "text": form.instruction})
    most = _render_max_tokens(prompt, target, losses)
    thoughts = _NO_THINKING
    if prompt.reasoning is not None:
        off, unled = is_forced(choice), missing_leading_thinking(messages)
        thoughts = render_reasoning(
            prompt, target, losses, most, tool_forced=off, missing_leading_thinking=unled
        )
        most = thoughts.max_tokens
    thinks = is_thinking(thoughts.thinking, target)
    end_with_user(messages, losses, prefill=own or (target.prefill and not thinks))

    said = {
        "model": target.model,
        "max_tokens": most,
        "system": system,
        "messages": messages,
        "tools": tools,
        "tool_choice": choice,
        "thinking": thoughts.thinking,
        "output_config": _render_output_config(thoughts.effort, form.format),
        **render_sampling(prompt, Format.MESSAGES, target, losses, thinking=thinks),
        "stop_sequences": [stop for stop in prompt.stop if stop.strip()],
        "stream": prompt.stream,
        **_identity_fields(prompt, losses),
    }
    # 0 tells something; what else is empty or off does not.
    body = {name: value for name, value in said.items() if value or type(value) in _NUMBERS}
    _merge_native_fields(body, fields, thinks=thinks)
    _apply_cache_control(body, target, losses, same_format=own)
    return Rendering(
        body=body,
        dropped=frozenset(losses.names),
        stop=tuple([stop for stop in prompt.stop if stop and not stop.strip()]),
        json_tool=JSON_OUTPUT_TOOL if form.tool else None,
        fenced=form.instruction is not None,
    )


def _render_tools_and_output(
    prompt: Prompt, target: Target, losses: Dropped
) -> tuple[list[Payload], Payload | None, OutputConstraint]:
    """The tools, the choice among them, and the form of the answer, which may be a tool too."""
    tools: list[Payload] = []
    choice: Payload | None = None
    if prompt.tools or prompt.tool_choice is not None or has_tool_calls(prompt.turns):
        box = UpstreamTools(prompt)
        tools = render_tools(box, prompt, target, losses)
        choice = render_tool_choice(box, prompt, tools, losses)
    form = render_output(prompt, target, has_tools=bool(tools))
    if form.tool is not None:
        tools, choice = [form.tool], {"type": "tool", "name": JSON_OUTPUT_TOOL}
    if target.thinking is ThinkingStyle.ALWAYS and choice and is_forced(choice):
        losses.drop("tool_choice")
        choice = as_auto(choice)
    return tools, choice, form


def _native_request_fields(prompt: Prompt, losses: Dropped) -> Payload:
    """This format's fields that the hub has no word for. What the prompt says in other words that
    have no counterpart is lost; what is empty says nothing."""
    if prompt.verbosity is not None and prompt.verbosity != "medium":
        losses.drop_set(verbosity=prompt.verbosity)
    if prompt.metadata:
        losses.drop("metadata")
    return dict(losses.request_fields(prompt))


def _render_output_config(effort: str | None, form: Payload | None) -> Payload:
    config: Payload = {} if effort is None else {"effort": effort}
    return config if form is None else config | {"format": form}


def _render_max_tokens(prompt: Prompt, target: Target, losses: Dropped) -> int:
    """The format demands a limit; where the client names none it is what the model can."""
    limit = limit_max_tokens(prompt, target, losses)
    if limit is None:
        return min(target.max_output or _DEFAULT_MAX_OUTPUT, _DEFAULT_MAX_TOKENS)
    return limit


def _identity_fields(prompt: Prompt, losses: Dropped) -> Payload:
    """Who asks, and how the request is to be served."""
    own = prompt.format is Format.MESSAGES
    said: Payload = {}
    if prompt.user is not None:
        said["metadata"] = {"user_id": prompt.user if own else shorten_user(prompt.user)}
    if prompt.service_tier is not None:
        tier = prompt.service_tier if own else _SERVICE_TIERS.get(prompt.service_tier)
        if tier is None:
            losses.drop("service_tier")
        said["service_tier"] = tier or "auto"
    return said


def _merge_native_fields(body: Payload, fields: Payload, *, thinks: bool) -> None:
    """The client's own fields, and those within fields that are written anew here."""
    if not fields:
        return
    if not thinks or "thinking" not in body:
        fields.pop("thinking", None)
    for name, entry in fields.items():
        written: Any = body.get(name)
        body[name] = entry | written if isinstance(written, dict) else entry
    if not thinks:
        remove_clear_thinking(body)


def _apply_cache_control(
    body: Payload, target: Target, losses: Dropped, *, same_format: bool
) -> None:
    if target.cache_marks and not same_format and not cache_control.has_breakpoints(body):
        cache_control.add_default_breakpoints(body)
    if cache_control.enforce_limit(body):
        losses.drop("cache_marks")


_JSON_INSTRUCTION: Final = "Answer with one JSON object only, no prose, no code fence."


@value(kw_only=True)
class OutputConstraint:
    """At most one of three: a `format` that is enforced, a `tool` whose input is the answer, or
    `words` for the system's text."""

    format: Payload | None = None
    tool: Payload | None = None
    instruction: str | None = None


_UNCONSTRAINED: Final = OutputConstraint()


def render_output(prompt: Prompt, target: Target, *, has_tools: bool) -> OutputConstraint:
    asked = prompt.output
    if asked is None:
        return _UNCONSTRAINED
    schema = asked.schema
    if schema is None:
        return OutputConstraint(instruction=_JSON_INSTRUCTION)
    if target.structured:
        enforced = schema if prompt.format is Format.MESSAGES else messages_schema(schema)
        if enforced is not None:
            return OutputConstraint(format={"type": "json_schema", "schema": enforced})
    callable = not has_tools and target.thinking is not ThinkingStyle.ALWAYS
    if callable and schema.get("type") == "object":
        description = asked.description or "The answer, and the only way to give it."
        tool = {"name": JSON_OUTPUT_TOOL, "description": description, "input_schema": schema}
        return OutputConstraint(tool=tool)
    return OutputConstraint(instruction=_schema_instruction(schema))


def _schema_instruction(schema: Mapping[str, Any]) -> str:
    text = as_json(schema, "schema")
    return f"{_JSON_INSTRUCTION} It must fit this JSON Schema:\n{text}"


_SYSTEM_ROLES: Final = (Role.SYSTEM, Role.DEVELOPER)
_THINKING_TYPES: Final = ("thinking", "redacted_thinking")
_ROLES: Final = {Role.USER: "user", Role.ASSISTANT: "assistant", Role.SYSTEM: "system"}
_EMPTY_TEXT: Final = "(empty)"
_FIRST_USER_TEXT: Final = "."
_CONTINUE_TEXT: Final = "Continue."


class Conversation(NamedTuple):
    system: list[Payload]
    messages: list[Payload]


def render_messages(prompt: Prompt, target: Target, losses: Dropped) -> Conversation:
    plain = plain_dialogue(prompt.turns)
    if plain is not None and plain.messages[0][0] is Role.USER:
        return _render_plain_dialogue(plain)
    content = ContentRenderer(prompt, target, losses)
    leading, rest = split_leading_system([*inline_names(prompt.turns, losses)])
    system = [block for turn in leading for block in content.render(turn)]
    turns = pair_tool_results(rest)
    messages = _alternate_roles(_place_system(turns, system_turns=target.system_turns), content)
    if not messages and system:
        messages = [{"role": "user", "content": [system.pop()]}]
    if not messages or messages[0]["role"] == "assistant":
        messages.insert(0, _user_message(_FIRST_USER_TEXT))
    _add_text_to_documents(messages)
    return Conversation(system, messages)


def _render_plain_dialogue(plain: PlainDialogue) -> Conversation:
    """The same in one step, where there is nothing to put in order."""
    messages: list[Payload] = []
    before = None
    for speaker, text in plain.messages:
        if speaker is before:
            messages[-1]["content"].append(_text_block(text))
        else:
            messages.append({"role": _ROLES[speaker], "content": [_text_block(text)]})
        before = speaker
    return Conversation([_text_block(text) for text in plain.system], messages)


def end_with_user(messages: list[Payload], losses: Dropped, *, prefill: bool) -> None:
    """Where the assistant has the last word, which the model is to go on from: `prefill` tells
    whether it can."""
    last = messages[-1]
    if last["role"] != "assistant":
        return
    block = last["content"][-1]
    if prefill and block["type"] == "text":
        last["content"][-1] = block | {"text": block["text"].rstrip()}
    else:
        losses.drop("prefill")
        messages.append(_user_message(_CONTINUE_TEXT))


def missing_leading_thinking(messages: Sequence[Payload]) -> bool:
    """Whether a conversation ends within a tool loop that does not begin with thinking, as fixed
    thinking budgets demand. Contents may be strings."""
    first: Payload | None = None
    looping = False
    for message in reversed(messages):
        if message["role"] == "assistant":
            first = message
        elif message["role"] == "user":
            if not _has_block(message, ("tool_result",)):
                break
            looping = True
    if first is None or not looping:
        return False
    content = first["content"]
    return not content or not isinstance(content, list) or content[0]["type"] not in _THINKING_TYPES


def _place_system(turns: Sequence[Turn], *, system_turns: bool) -> list[Turn]:
    """The turns with the system's words where they may stand: between a user's turn and the
    assistant's. Elsewhere, or where the model knows no such turns, the user's message has them."""
    placed: list[Turn] = []
    for index, turn in enumerate(turns):
        if turn.role in _SYSTEM_ROLES:
            after = next(
                (each.role for each in turns[index:] if each.role not in _SYSTEM_ROLES), None
            )
            legal = system_turns and placed and placed[-1].role is not Role.ASSISTANT
            legal = legal and after is not Role.USER
            legal = legal and all(isinstance(part, Text) for part in turn.parts)
            turn = replace(turn, role=Role.SYSTEM) if legal else _as_reminder(turn)
        placed.append(turn)
    return placed


def _as_reminder(turn: Turn) -> Turn:
    parts = tuple(
        replace(part, text=f"<system-reminder>{part.text}</system-reminder>")
        if isinstance(part, Text) and part.text.strip()
        else part
        for part in turn.parts
    )
    return replace(turn, role=Role.USER, parts=parts)


def _alternate_roles(turns: Sequence[Turn], content: ContentRenderer) -> list[Payload]:
    messages: list[Payload] = []
    for turn in turns:
        role = _ROLES[turn.role]
        blocks = content.render(turn)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks or role == "user":
            messages.append(
                {"role": role, "content": blocks}
                | ProviderData.native_fields(turn.extra, Format.MESSAGES)
            )
    for message in messages:
        message["content"] = message["content"] or [_text_block(_EMPTY_TEXT)]
    return messages


def _add_text_to_documents(messages: Sequence[Payload]) -> None:
    """Some models refuse documents without a word beside them."""
    for message in messages:
        if all(block["type"] == "document" for block in message["content"]):
            message["content"].append(_text_block(_FIRST_USER_TEXT))


def _user_message(text: str) -> Payload:
    return {"role": "user", "content": [_text_block(text)]}


def _text_block(text: str) -> Payload:
    return {"type": "text", "text": text}


def _has_block(message: Payload, kinds: Sequence[str]) -> bool:
    content: Any = message["content"]
    return isinstance(content, list) and any(block["type"] in kinds for block in content)
