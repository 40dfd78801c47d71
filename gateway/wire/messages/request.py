"""Reads messages requests into prompts. It must not know what any model or upstream allows.

The public format is Messages (Specification, "Messages"); the texts of its errors name the field by
its dotted path. Unknown fields are never refused.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import Opaque, Part, Text
from gateway.core.prompt import (
    AS_USUAL,
    OutputFormat,
    OutputKind,
    Prompt,
    Reasoning,
    Role,
    Sampling,
    Turn,
)
from gateway.errors import InvalidRequest
from gateway.wire.effort import LEAST_BUDGET
from gateway.wire.fields import (
    Payload,
    as_list,
    as_object,
    as_str,
    boolean,
    integer,
    invalid,
    join,
    list_,
    missing,
    model_id,
    number,
    object_,
    required,
    required_str,
    string,
)
from gateway.wire.messages.blocks import beyond, parse_content
from gateway.wire.messages.tools import parse_tool_choice, parse_tools

_KNOWN: Final = {
    *("model", "max_tokens", "messages", "system", "stream", "stop_sequences", "temperature"),
    *("top_p", "top_k", "thinking", "output_config", "output_format", "tools", "tool_choice"),
    *("metadata", "service_tier"),
}
_KNOWN_INSIDE: Final = {
    "thinking": {"type", "budget_tokens", "display"},
    "output_config": {"effort", "format"},
    "metadata": {"user_id"},
}
_PLAIN: Final = _KNOWN - _KNOWN_INSIDE.keys()
_SAMPLED: Final = frozenset({"temperature", "top_p", "top_k"})
_MESSAGE: Final = frozenset({"role", "content"})
_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}


def parse_prompt(body: object) -> Prompt:
    """Raises `InvalidRequest` naming the field."""
    prompt = parse_count(body)
    if prompt.max_tokens is None:
        raise missing("max_tokens")
    return prompt


def parse_count(body: object) -> Prompt:
    """The same for a request that only wants its tokens counted: `max_tokens` may be absent."""
    body = as_object(body, "")
    model = model_id(body)
    max_tokens = integer(body, "max_tokens", least=0)
    choice, parallel = parse_tool_choice(body)
    metadata = object_(body, "metadata") or {}
    return Prompt(
        format=Format.MESSAGES,
        model=model,
        turns=(*_system(body), *_messages(body)),
        stream=boolean(body, "stream") or False,
        max_tokens=max_tokens,
        stop=_stop_sequences(body),
        tools=parse_tools(body),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        reasoning=_reasoning(body, max_tokens),
        output=_output(body),
        sampling=AS_USUAL if body.keys().isdisjoint(_SAMPLED) else _sampling(body),
        user=string(metadata, "user_id", "metadata"),
        service_tier=string(body, "service_tier"),
        extra=_extra(body),
    )


def _sampling(body: Payload) -> Sampling:
    return Sampling(
        temperature=number(body, "temperature"),
        top_p=number(body, "top_p"),
        top_k=integer(body, "top_k"),
    )


def _system(body: Payload) -> tuple[Turn, ...]:
    system = body.get("system")
    parts: tuple[Part, ...] = () if system is None else parse_content(system, "system")
    return (Turn(Role.SYSTEM, parts),) if parts else ()


def _messages(body: Payload) -> list[Turn]:
    messages = as_list(required(body, "messages"), "messages")
    if not messages:
        raise invalid("messages", "at least one message is required")
    return [_turn(message, index) for index, message in enumerate(messages)]


def _turn(message: Any, index: int) -> Turn:
    if type(message) is dict and len(message) == 2:  # role and text: most are nothing else
        role, said = message.get("role"), message.get("content")
        if type(said) is str and type(role) is str and role in _ROLES:
            return Turn(_ROLES[role], (Text(said),))
    path = f"messages.{index}"
    message = as_object(message, path)
    role = _ROLES.get(required_str(message, "role", path))
    if role is None:
        raise invalid(join(path, "role"), "Input should be 'user', 'assistant' or 'system'")
    parts = parse_content(required(message, "content", path), f"{path}.content")
    return Turn(role, parts, extra=beyond(message, _MESSAGE))


def _stop_sequences(body: Payload) -> tuple[str, ...]:
    sequences = list_(body, "stop_sequences")
    if not sequences:
        return ()
    return tuple(as_str(text, f"stop_sequences.{index}") for index, text in enumerate(sequences))


def _reasoning(body: Payload, max_tokens: int | None) -> Reasoning | None:
    if "thinking" not in body and "output_config" not in body:
        return None
    thinking = object_(body, "thinking")
    effort = string(object_(body, "output_config") or {}, "effort", "output_config")
    if thinking is None:
        return Reasoning(effort=effort) if effort else None
    kind = required_str(thinking, "type", "thinking")
    budget = integer(thinking, "budget_tokens", "thinking")
    if kind == "enabled":
        _check_budget(budget, max_tokens)
    return Reasoning(
        enabled=kind != "disabled",
        effort=effort,
        budget=budget,
        mode=None if kind in ("enabled", "disabled") else kind,
        summary=string(thinking, "display", "thinking"),
    )


def _check_budget(budget: int | None, max_tokens: int | None) -> None:
    if budget is None:
        raise missing("thinking.budget_tokens")
    if budget < LEAST_BUDGET:
        raise invalid(
            "thinking.budget_tokens", f"Input should be greater than or equal to {LEAST_BUDGET}"
        )
    if max_tokens is not None and budget >= max_tokens:
        raise InvalidRequest(
            "max_tokens must be greater than thinking.budget_tokens", param="max_tokens"
        )


def _output(body: Payload) -> OutputFormat | None:
    """`output_format` is what `output_config.format` was called at first."""
    if "output_config" not in body and "output_format" not in body:
        return None
    form = object_(object_(body, "output_config") or {}, "format", "output_config")
    path = "output_config.format"
    if form is None:
        form, path = object_(body, "output_format"), "output_format"
    if form is None or required_str(form, "type", path) != "json_schema":
        return None
    schema = as_object(required(form, "schema", path), join(path, "schema"))
    return OutputFormat(kind=OutputKind.JSON_SCHEMA, schema=schema)


def _extra(body: Payload) -> Opaque | None:
    if body.keys() <= _PLAIN:
        return None
    extra = {name: value for name, value in body.items() if name not in _KNOWN}
    for name, known in _KNOWN_INSIDE.items():
        inside = body.get(name) or {}
        if rest := {inner: inside[inner] for inner in inside if inner not in known}:
            extra[name] = rest
    return Opaque(Format.MESSAGES, extra) if extra else None
