"""Prompts to messages requests (Messages, "Create a message").

Upstreams require that the first message is a user's, that roles alternate, that results come first
in the message after their calls, and that nothing is empty (Messages, "Messages", "Tool use").
Where a model enforces no schemas, a forced tool replaces one, or an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Text
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target, ThinkingStyle
from gateway.core.value import replace
from gateway.wire.codec import Rendering
from gateway.wire.json.fields import Payload
from gateway.wire.messages.cache_control import limit_breakpoints
from gateway.wire.messages.content import ContentRenderer
from gateway.wire.messages.reasoning import (
    ThinkingParams,
    is_thinking,
    remove_clear_thinking,
    render_reasoning,
)
from gateway.wire.messages.tools import is_forced, render_tool_choice, render_tools
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.history import (
    PlainDialogue,
    has_tool_calls,
    inline_names,
    pair_tool_results,
    plain_dialogue,
    split_leading_system,
)
from gateway.wire.prompt.json_schema import messages_schema
from gateway.wire.prompt.known_turns import render_known
from gateway.wire.prompt.render_rules import (
    check_supported,
    json_instruction,
    limit_max_tokens,
    render_sampling,
)
from gateway.wire.prompt.server_results import read_results
from gateway.wire.prompt.tool_names import JSON_OUTPUT_TOOL, UpstreamTools, shorten_user

_NUMBERS: Final = (int, float)
_DEFAULT_MAX_TOKENS: Final = 32_000
_DEFAULT_MAX_OUTPUT: Final = 8192
"""Output tokens of a model of unknown limit."""
_SERVICE_TIERS: Final = {"auto": "auto", "default": "standard_only"}
_SYSTEM_ROLES: Final = (Role.SYSTEM, Role.DEVELOPER)
_ROLES: Final = {Role.USER: "user", Role.ASSISTANT: "assistant", Role.SYSTEM: "system"}
_THINKING_TYPES: Final = ("thinking", "redacted_thinking")
_EMPTY_TEXT: Final = "(empty)"
_FIRST_USER_TEXT: Final = "."
_CONTINUE_TEXT: Final = "Continue."


class OutputConstraint(NamedTuple):
    """A constraint of the output, at most one of: an enforced `format`, a `tool` whose input is the
    output, an `instruction` for the system prompt."""

    format: Payload | None = None
    tool: Payload | None = None
    instruction: str | None = None


_UNCONSTRAINED: Final = OutputConstraint()
_NO_THINKING: Final = ThinkingParams(None, None, 0)
"""The parameters for a prompt that does not configure reasoning."""


class Conversation(NamedTuple):
    system: list[Payload]
    messages: list[Payload]


def render_prompt(prompt: Prompt, target: Target) -> Rendering:
    """Raises `UnsupportedField` for what would change the meaning of the reply."""
    check_supported(prompt, Format.MESSAGES)
    dropped = Dropped(Format.MESSAGES)
    same_format = prompt.format is Format.MESSAGES
    native_fields = _native_request_fields(prompt, dropped)
    tools, choice, output = _render_tools_and_output(prompt, target, dropped)
    system, messages = render_messages(prompt, target, dropped)
    if output.instruction:
        system.append(_text_block(output.instruction))
    max_tokens = limit_max_tokens(prompt, target, dropped)
    if max_tokens is None:  # the field is required
        max_tokens = min(target.max_output or _DEFAULT_MAX_OUTPUT, _DEFAULT_MAX_TOKENS)
    params, thinking = _NO_THINKING, target.thinking is ThinkingStyle.ALWAYS
    if prompt.reasoning is not None:
        forced, lacks = is_forced(choice), missing_leading_thinking(messages)
        params = render_reasoning(
            prompt, target, dropped, max_tokens, tool_forced=forced, missing_leading_thinking=lacks
        )
        max_tokens = params.max_tokens
        thinking = is_thinking(params.thinking, target)
    end_with_user(messages, dropped, prefill=same_format or (target.prefill and not thinking))
    config = {"effort": params.effort, "format": output.format}
    fields = {
        "model": target.model,
        "max_tokens": max_tokens,
        "system": system,
        "messages": messages,
        "tools": tools,
        "tool_choice": choice,
        "thinking": params.thinking,
        "output_config": {name: value for name, value in config.items() if value is not None},
        **render_sampling(prompt, Format.MESSAGES, target, dropped, thinking=thinking),
        "stop_sequences": [stop for stop in prompt.stop if stop.strip()],
        "stream": prompt.stream,
        **_identity_fields(prompt, dropped),
    }
    # 0 is significant; other values that are empty or false are defaults
    body = {name: value for name, value in fields.items() if value or type(value) in _NUMBERS}
    _merge_native_fields(body, native_fields, thinking=thinking)
    if limit_breakpoints(body, add_defaults=target.cache_marks and not same_format):
        dropped.drop("cache_marks")
    return Rendering(
        body=body,
        dropped=frozenset(dropped.names),
        stop=tuple([stop for stop in prompt.stop if stop and not stop.strip()]),
        json_tool=JSON_OUTPUT_TOOL if output.tool else None,
        fenced=prompt.output is not None and output.tool is None,
    )


def _native_request_fields(prompt: Prompt, dropped: Dropped) -> Payload:
    """The fields of this format without a counterpart in `Prompt`; drops those of other formats."""
    if prompt.verbosity not in (None, "medium"):  # the default
        dropped.drop("verbosity")
    if prompt.metadata:
        dropped.drop("metadata")
    return dict(dropped.request_fields(prompt))


def _render_tools_and_output(
    prompt: Prompt, target: Target, dropped: Dropped
) -> tuple[list[Payload], Payload | None, OutputConstraint]:
    """The tools, the tool choice and the format of the output, which may be a tool, too."""
    tools: list[Payload] = []
    choice: Payload | None = None
    if prompt.tools or prompt.tool_choice is not None or has_tool_calls(prompt.turns):
        upstream = UpstreamTools(prompt)
        tools = render_tools(upstream, prompt, target, dropped)
        choice = render_tool_choice(upstream, prompt, tools, dropped)
    output = render_output(prompt, target, has_tools=bool(tools))
    if output.tool is not None:
        tools, choice = [output.tool], {"type": "tool", "name": JSON_OUTPUT_TOOL}
    if target.thinking is ThinkingStyle.ALWAYS and choice and is_forced(choice):
        dropped.drop("tool_choice")
        choice = {name: choice[name] for name in choice if name != "name"} | {"type": "auto"}
    return tools, choice, output


def render_output(prompt: Prompt, target: Target, *, has_tools: bool) -> OutputConstraint:
    output = prompt.output
    if output is None:
        return _UNCONSTRAINED
    if output.schema is None:
        return OutputConstraint(instruction=json_instruction(output))
    schema = described = output.schema
    if output.description:  # this format has no other place for it
        described = {"description": output.description, **schema}
    if target.structured:
        is_native = prompt.format is Format.MESSAGES
        enforced = described if is_native else messages_schema(described)
        if enforced is not None:
            return OutputConstraint(format={"type": "json_schema", "schema": enforced})
    can_force = not has_tools and target.thinking is not ThinkingStyle.ALWAYS
    if can_force and schema.get("type") == "object":
        description = output.description or "The answer, and the only way to give it."
        tool = {"name": JSON_OUTPUT_TOOL, "description": description, "input_schema": schema}
        return OutputConstraint(tool=tool)
    return OutputConstraint(instruction=json_instruction(replace(output, schema=described)))


def _identity_fields(prompt: Prompt, dropped: Dropped) -> Payload:
    """`metadata` with the user, and `service_tier`."""
    same_format = prompt.format is Format.MESSAGES
    fields: Payload = {}
    if prompt.user is not None:
        user = prompt.user if same_format else shorten_user(prompt.user)
        fields["metadata"] = {"user_id": user}
    if (tier := prompt.service_tier) is not None:
        known_tier = tier if same_format else _SERVICE_TIERS.get(tier)
        if known_tier is None:
            dropped.drop("service_tier")
        fields["service_tier"] = known_tier or "auto"
    return fields


def _merge_native_fields(body: Payload, native_fields: Payload, *, thinking: bool) -> None:
    """Adds the client's own fields, and those inside of fields that are rendered here."""
    if not native_fields:
        return
    if not thinking or "thinking" not in body:
        native_fields.pop("thinking", None)
    for name, value in native_fields.items():
        rendered: Any = body.get(name)
        body[name] = value | rendered if isinstance(rendered, dict) else value
    if not thinking:
        remove_clear_thinking(body)


def render_messages(prompt: Prompt, target: Target, dropped: Dropped) -> Conversation:
    """The fields `system` and `messages`."""
    plain = plain_dialogue(prompt.turns)
    if plain is not None and plain.messages[0][0] is Role.USER:
        return _render_plain_dialogue(plain)
    content = ContentRenderer(prompt, target, dropped)
    leading, rest = split_leading_system(prompt.turns)
    named = inline_names(leading, dropped)
    system = [block for turn in named for block in content.render(turn)]

    def render(turns: Sequence[Turn], uses: dict[str, int]) -> list[Payload]:
        named = inline_names(turns, dropped)
        paired = pair_tool_results(read_results(named, dropped), uses)
        placed = _place_system(paired, system_turns=target.system_turns)
        return _alternate_roles(placed, content)

    messages = render_known(prompt.turns, rest, target, dropped, render)
    if not messages and system:
        messages = [{"role": "user", "content": [system.pop()]}]
    if not messages or messages[0]["role"] == "assistant":
        messages.insert(0, _user_message(_FIRST_USER_TEXT))
    return Conversation(system, messages)


def _render_plain_dialogue(plain: PlainDialogue) -> Conversation:
    """Renders a dialogue of plain texts in one step: they need no reordering."""
    messages: list[Payload] = []
    previous = None
    for role, text in plain.messages:
        if role is previous:
            messages[-1]["content"].append(_text_block(text))
        else:
            messages.append({"role": _ROLES[role], "content": [_text_block(text)]})
        previous = role
    return Conversation([_text_block(text) for text in plain.system], messages)


def _place_system(turns: Sequence[Turn], *, system_turns: bool) -> list[Turn]:
    """Keeps system turns where upstreams accept them: between a user's turn and the assistant's.
    Elsewhere, and for models without system turns, they become reminders in the user's message."""
    placed: list[Turn] = []
    following: list[Role | None] = []
    next_role: Role | None = None
    for turn in reversed(turns):
        next_role = next_role if turn.role in _SYSTEM_ROLES else turn.role
        following.append(next_role)
    for turn, next_role in zip(turns, reversed(following), strict=True):
        if turn.role in _SYSTEM_ROLES:
            accepted = (
                system_turns
                and placed
                and placed[-1].role is not Role.ASSISTANT
                and next_role is not Role.USER
                and all(isinstance(part, Text) for part in turn.parts)
            )
            turn = replace(turn, role=Role.SYSTEM) if accepted else _as_reminder(turn)
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
        if blocks and all(block["type"] == "document" for block in blocks):
            blocks.append(_text_block(_FIRST_USER_TEXT))  # some models reject them without a text
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
            messages[-1] |= ProviderData.native_fields(turn.extra, Format.MESSAGES)
        elif blocks or role == "user":
            message = {"role": role, "content": blocks}
            messages.append(message | ProviderData.native_fields(turn.extra, Format.MESSAGES))
    for message in messages:
        message["content"] = message["content"] or [_text_block(_EMPTY_TEXT)]
    return messages


def end_with_user(messages: list[Payload], dropped: Dropped, *, prefill: bool) -> None:
    """A last turn of the assistant is for the model to continue; `prefill`: it can do so. One that
    the upstream paused goes back as it came."""
    last = messages[-1]
    if last["role"] != "assistant" or any(
        block["type"] == "server_tool_use" for block in last["content"]
    ):
        return
    block = last["content"][-1]
    if prefill and block["type"] == "text":
        last["content"][-1] = block | {"text": block["text"].rstrip()}
    else:
        dropped.drop("prefill")
        messages.append(_user_message(_CONTINUE_TEXT))


def missing_leading_thinking(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Tells whether a conversation ends within a tool loop that does not begin with thinking, as
    thinking budgets require. Contents may be strings."""
    first: list[Any] | str | None = None
    in_loop = False
    for message in reversed(messages):
        content = message["content"]
        if message["role"] == "assistant":
            first = content
        elif message["role"] == "user":
            if isinstance(content, str) or all(item["type"] != "tool_result" for item in content):
                break
            in_loop = True
    if first is None or not in_loop:
        return False
    return not isinstance(first, list) or not first or first[0]["type"] not in _THINKING_TYPES


def _user_message(text: str) -> Payload:
    return {"role": "user", "content": [_text_block(text)]}


def _text_block(text: str) -> Payload:
    return {"type": "text", "text": text}
