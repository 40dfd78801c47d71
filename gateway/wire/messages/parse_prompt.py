"""Messages requests to prompts (Specification, "Messages"). Unknown fields are accepted."""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import Part, ProviderData, Text
from gateway.core.prompt import (
    DEFAULT_SAMPLING,
    OutputFormat,
    OutputKind,
    Prompt,
    Reasoning,
    Role,
    Sampling,
    Turn,
)
from gateway.errors import InvalidRequest
from gateway.wire.json.fields import (
    Payload,
    as_list,
    as_object,
    as_strs,
    invalid_field,
    lenient_object,
    lenient_str,
    missing_field,
    optional_bool,
    optional_int,
    optional_number,
    optional_object,
    optional_str,
    parse_model,
    required,
    required_object,
    required_str,
)
from gateway.wire.messages.content import parse_content
from gateway.wire.messages.tools import offered_tools, parse_tool_choice, parse_tools
from gateway.wire.prompt.known_turns import keep_turns, known_turns

_KNOWN_FIELDS: Final = {
    *("model", "max_tokens", "messages", "system", "stream", "stop_sequences", "temperature"),
    *("top_p", "top_k", "thinking", "output_config", "output_format", "tools", "tool_choice"),
    *("metadata", "service_tier"),
}
_KNOWN_SUBFIELDS: Final = {
    "thinking": {"type", "budget_tokens", "display"},
    "output_config": {"effort", "format"},
    "metadata": {"user_id"},
}
_FLAT_FIELDS: Final = _KNOWN_FIELDS - _KNOWN_SUBFIELDS.keys()
_SAMPLING_FIELDS: Final = frozenset({"temperature", "top_p", "top_k"})
_MESSAGE_FIELDS: Final = frozenset({"role", "content"})
_UNTIL_USER: Final = "next_user_message"
"""The value of `clear_at` that ends the time for which a system message is shown to the model."""
_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}


def parse_prompt(body: object) -> Prompt:
    """Raises `InvalidRequest` with the dotted path of the field."""
    prompt = parse_count_tokens(body)
    if prompt.max_tokens is None:
        raise missing_field("max_tokens")
    return prompt


def parse_count_tokens(body: object) -> Prompt:
    """Parses a request that only counts tokens, like `parse_prompt`: `max_tokens` is optional."""
    body = as_object(body, "")
    model = parse_model(body)
    max_tokens = optional_int(body, "max_tokens", minimum=0)
    choice, parallel = parse_tool_choice(body)
    metadata = optional_object(body, "metadata") or {}
    turns = _parse_messages(body, _parse_system(body))
    return Prompt(
        format=Format.MESSAGES,
        model=model,
        turns=turns,
        stream=optional_bool(body, "stream") or False,
        max_tokens=max_tokens,
        stop=as_strs(body.get("stop_sequences"), "stop_sequences"),
        tools=offered_tools(parse_tools(body), turns),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        reasoning=_parse_reasoning(body, max_tokens),
        output=_parse_output_format(body),
        sampling=DEFAULT_SAMPLING
        if body.keys().isdisjoint(_SAMPLING_FIELDS)
        else _parse_sampling(body),
        user=optional_str(metadata, "user_id", "metadata"),
        service_tier=optional_str(body, "service_tier"),
        extra=_unknown_fields(body),
    )


def _parse_sampling(body: Payload) -> Sampling:
    return Sampling(
        temperature=optional_number(body, "temperature"),
        top_p=optional_number(body, "top_p"),
        top_k=optional_int(body, "top_k"),
    )


def _parse_system(body: Payload) -> tuple[Turn, ...]:
    system = body.get("system")
    parts: tuple[Part, ...] = () if system is None else parse_content(system, "system")
    return (Turn(Role.SYSTEM, parts),) if parts else ()


def _parse_messages(body: Payload, system: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """All turns of the prompt."""
    messages = as_list(required(body, "messages"), "messages")
    if not messages and not body.get("thread"):  # a thread goes on with an unfinished turn
        raise invalid_field("messages", "at least one message is required")
    known = known_turns(messages, Format.MESSAGES)
    new = enumerate(messages[len(known) :], len(known))
    turns = [*known, *[_parse_message(message, index) for index, message in new]]
    if marked := [at for at, each in enumerate(messages) if each.get("clear_at") == _UNTIL_USER]:
        last_user = max((at for at, turn in enumerate(turns) if turn.role is Role.USER), default=0)
        for at in marked:
            if at < last_user and turns[at].role is Role.SYSTEM:
                turns[at] = Turn(Role.SYSTEM, ())
        return (*system, *turns)
    return keep_turns(messages, Format.MESSAGES, system, turns)


def _parse_message(message: Any, index: int) -> Turn:
    if type(message) is dict and len(message) == 2:  # most messages are a role and a text
        role, text = message.get("role"), message.get("content")
        if type(text) is str and type(role) is str and role in _ROLES:
            return Turn(_ROLES[role], (Text(text),))
    path = f"messages.{index}"
    message = as_object(message, path)
    role = _ROLES.get(required_str(message, "role", path))
    if role is None:
        raise invalid_field(f"{path}.role", "Input should be 'user', 'assistant' or 'system'")
    parts: tuple[Part, ...] = ()
    if role is not Role.SYSTEM or not message.get("output_config") or "content" in message:
        parts = parse_content(required(message, "content", path), f"{path}.content")
    if len(message) == 2 and "content" in message:
        return Turn(role, parts)
    extra = ProviderData.unknown_fields(Format.MESSAGES, message, _MESSAGE_FIELDS)
    return Turn(role, parts, extra=extra)


def _parse_reasoning(body: Payload, max_tokens: int | None) -> Reasoning | None:
    update = _effort_update(body.get("messages"))
    if update is None and "thinking" not in body and "output_config" not in body:
        return None
    thinking = optional_object(body, "thinking")
    effort = optional_str(optional_object(body, "output_config") or {}, "effort", "output_config")
    effort = update or effort
    if thinking is None:
        return Reasoning(effort=effort) if effort else None
    kind = required_str(thinking, "type", "thinking")
    budget = optional_int(thinking, "budget_tokens", "thinking")
    if kind == "enabled":
        _check_budget(budget, max_tokens)
    return Reasoning(
        enabled=kind != "disabled",
        effort=effort,
        budget=budget,
        mode=None if kind in ("enabled", "disabled") else kind,
        summary=optional_str(thinking, "display", "thinking"),
    )


def _effort_update(messages: Any) -> str | None:
    """The effort that a system message sets for the next reply (Messages, "System messages")."""
    for message in map(lenient_object, reversed(messages if isinstance(messages, list) else ())):
        if message.get("role") == "assistant":
            break
        config = lenient_object(message.get("output_config"))
        if effort := lenient_str(config.get("effort")):
            return effort
    return None


def _check_budget(budget: int | None, max_tokens: int | None) -> None:
    path = "thinking.budget_tokens"
    if budget is None:
        raise missing_field(path)
    if max_tokens is not None and budget >= max_tokens:
        raise InvalidRequest(f"max_tokens must be greater than {path}", param="max_tokens")


def _parse_output_format(body: Payload) -> OutputFormat | None:
    """`output_config.format`, else the deprecated `output_format`."""
    if "output_config" not in body and "output_format" not in body:
        return None
    form = optional_object(optional_object(body, "output_config") or {}, "format", "output_config")
    path = "output_config.format"
    if form is None:
        form, path = optional_object(body, "output_format"), "output_format"
    if form is None or required_str(form, "type", path) != "json_schema":
        return None
    return OutputFormat(kind=OutputKind.JSON_SCHEMA, schema=required_object(form, "schema", path))


def _unknown_fields(body: Payload) -> ProviderData | None:
    if body.keys() <= _FLAT_FIELDS:
        return None
    extra = {name: value for name, value in body.items() if name not in _KNOWN_FIELDS}
    for name, known in _KNOWN_SUBFIELDS.items():
        inside = body.get(name) or {}
        if unknown := {field: inside[field] for field in inside if field not in known}:
            extra[name] = unknown
    return ProviderData(Format.MESSAGES, extra) if extra else None
