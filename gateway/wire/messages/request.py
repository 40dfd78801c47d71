"""Reads messages requests into prompts. It must not know what any model or upstream allows.

The public format is Messages (Specification, "Messages"); the texts of its errors name the field by
its dotted path. Unknown fields are never refused.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import Opaque, Part
from gateway.core.prompt import (
    ChoiceMode,
    OutputFormat,
    OutputKind,
    Prompt,
    Reasoning,
    Role,
    Sampling,
    Tool,
    ToolChoice,
    ToolKind,
    Turn,
)
from gateway.errors import InvalidRequest
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
from gateway.wire.messages.blocks import parse_cache, parse_content

LEAST_BUDGET: Final = 1024
"""Tokens that a fixed thinking budget must have."""

_KNOWN: Final = {
    "model",
    "max_tokens",
    "messages",
    "system",
    "stream",
    "stop_sequences",
    "temperature",
    "top_p",
    "top_k",
    "thinking",
    "output_config",
    "tools",
    "tool_choice",
    "metadata",
    "service_tier",
}
_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_CHOICES: Final = {
    "auto": ChoiceMode.AUTO,
    "any": ChoiceMode.REQUIRED,
    "none": ChoiceMode.NONE,
    "tool": ChoiceMode.NAMED,
}


def parse_prompt(body: object) -> Prompt:
    """Raises `InvalidRequest` naming the field."""
    body = as_object(body, "")
    model = model_id(body)
    max_tokens = integer(body, "max_tokens", least=0)
    if max_tokens is None:
        raise missing("max_tokens")
    choice, parallel = _tool_choice(body)
    metadata = object_(body, "metadata")
    return Prompt(
        format=Format.MESSAGES,
        model=model,
        turns=(*_system(body), *_messages(body)),
        stream=boolean(body, "stream") or False,
        max_tokens=max_tokens,
        stop=_stop_sequences(body),
        tools=_tools(body),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        reasoning=_reasoning(body, max_tokens),
        output=_output(body),
        sampling=Sampling(
            temperature=number(body, "temperature"),
            top_p=number(body, "top_p"),
            top_k=integer(body, "top_k"),
        ),
        user=string(metadata, "user_id", "metadata") if metadata else None,
        metadata=metadata,
        service_tier=string(body, "service_tier"),
        extra=_extra(body),
    )


def patch_prompt(body: Payload, model: str) -> Payload:
    return body | {"model": model}


def _system(body: Payload) -> tuple[Turn, ...]:
    system = body.get("system")
    parts: tuple[Part, ...] = () if system is None else parse_content(system, "system")
    return (Turn(Role.SYSTEM, parts),) if parts else ()


def _messages(body: Payload) -> list[Turn]:
    messages = as_list(required(body, "messages"), "messages")
    if not messages:
        raise invalid("messages", "at least one message is required")
    return [_turn(message, f"messages.{index}") for index, message in enumerate(messages)]


def _turn(message: Any, path: str) -> Turn:
    message = as_object(message, path)
    role = _ROLES.get(required_str(message, "role", path))
    if role is None:
        raise invalid(join(path, "role"), "Input should be 'user', 'assistant' or 'system'")
    return Turn(role, parse_content(required(message, "content", path), f"{path}.content"))


def _stop_sequences(body: Payload) -> tuple[str, ...]:
    sequences = list_(body, "stop_sequences") or ()
    return tuple(as_str(text, f"stop_sequences.{index}") for index, text in enumerate(sequences))


def _tools(body: Payload) -> tuple[Tool, ...]:
    return tuple(
        _tool(as_object(tool, f"tools.{index}"), f"tools.{index}")
        for index, tool in enumerate(list_(body, "tools") or ())
    )


def _tool(tool: Payload, path: str) -> Tool:
    kind = string(tool, "type", path) or "custom"
    definition = Opaque(Format.MESSAGES, tool)
    if kind != "custom":
        name = string(tool, "name", path) or string(tool, "mcp_server_name", path) or kind
        cache = parse_cache(tool, path)
        return Tool(kind=ToolKind.SERVER, name=name, cache=cache, definition=definition)
    return Tool(
        kind=ToolKind.FUNCTION,
        name=required_str(tool, "name", path),
        description=string(tool, "description", path),
        schema=as_object(required(tool, "input_schema", path), join(path, "input_schema")),
        strict=boolean(tool, "strict", path),
        cache=parse_cache(tool, path),
        definition=definition,
    )


def _tool_choice(body: Payload) -> tuple[ToolChoice | None, bool | None]:
    """The choice, and whether several calls at once are welcome."""
    choice = object_(body, "tool_choice")
    if choice is None:
        return None, None
    mode = _CHOICES.get(required_str(choice, "type", "tool_choice"), ChoiceMode.OPAQUE)
    name = required_str(choice, "name", "tool_choice") if mode is ChoiceMode.NAMED else None
    extra = Opaque(Format.MESSAGES, choice) if mode is ChoiceMode.OPAQUE else None
    single = boolean(choice, "disable_parallel_tool_use", "tool_choice")
    return ToolChoice(mode, name, extra=extra), None if single is None else not single


def _reasoning(body: Payload, max_tokens: int) -> Reasoning | None:
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


def _check_budget(budget: int | None, max_tokens: int) -> None:
    if budget is None:
        raise missing("thinking.budget_tokens")
    if budget < LEAST_BUDGET:
        raise invalid(
            "thinking.budget_tokens", f"Input should be greater than or equal to {LEAST_BUDGET}"
        )
    if budget >= max_tokens:
        raise InvalidRequest(
            "max_tokens must be greater than thinking.budget_tokens", param="max_tokens"
        )


def _output(body: Payload) -> OutputFormat | None:
    config = object_(body, "output_config") or {}
    form = object_(config, "format", "output_config")
    if form is None:
        return None
    path = "output_config.format"
    if required_str(form, "type", path) != "json_schema":
        return None
    schema = as_object(required(form, "schema", path), join(path, "schema"))
    return OutputFormat(kind=OutputKind.JSON_SCHEMA, schema=schema)


def _extra(body: Payload) -> Opaque | None:
    extra = {name: value for name, value in body.items() if name not in _KNOWN}
    config = body.get("output_config")
    if config and config.keys() - {"effort", "format"}:
        extra["output_config"] = config
    return Opaque(Format.MESSAGES, extra) if extra else None
