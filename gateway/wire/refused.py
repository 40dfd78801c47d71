"""Leaves out of a request what its upstream refuses: nothing without which the conversation, the
limits of the reply or its form would be others.

Values are named as in `Traits.refuses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gateway.core.formats import Format
from gateway.wire.chat.reasoning import sign_calls
from gateway.wire.json.fields import (
    Payload,
    dump_json,
    lenient_object,
    lenient_objects,
    lenient_str,
)

_BETA: Final = "beta:"
_TOOL: Final = "tool:"
_UNSIGNED_CALLS: Final = "unsigned_calls"
_MAX_DEPTH: Final = 8
_RENAMED: Final = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
"""Names of one field of the chat format, of which an upstream may know only the other."""
_NEEDED: Final = frozenset(
    {
        *("model", "messages", "input", "system", "instructions", "prompt", "tools", "functions"),
        *("tool_choice", "function_call", "max_tokens", "max_completion_tokens", "n", "stream"),
        *("max_output_tokens", "stop", "stop_sequences", "response_format", "output_format"),
        *("text", "output_config.format", "text.format", "previous_response_id", "conversation"),
        *("thread", "mcp_servers", "container", "modalities", "audio", "background", "include"),
        *("thinking", "thinking.type", "thinking.budget_tokens", "reasoning", "prediction"),
    }
)
_HISTORY: Final = ("messages", "input", "system", "instructions")
_OPTIONAL_IN_HISTORY: Final = frozenset(
    {
        *("cache_control", "prompt_cache_breakpoint", "cache_reference", "caller", "citations"),
        *("annotations", "logprobs", "status", "phase", "refusal", "reasoning_content"),
        *("reasoning", "reasoning_details", "extra_content", "scope", "ttl", "detail"),
    }
)
_NEEDED_OF_TOOLS: Final = frozenset(
    {"type", "name", "description", "input_schema", "parameters", "function", "custom", "format"}
)
_PAIRED: Final = {
    "advanced-tool-use": ("tools.defer_loading", "tools.input_examples", "tools.allowed_callers"),
    "context-management": ("context_management",),
    "effort": ("output_config.effort",),
    "extended-cache-ttl": tuple(f"{part}.cache_control.ttl" for part in ("system", "tools")),
    "fast-mode": ("speed",),
    "fine-grained-tool-streaming": ("tools.eager_input_streaming",),
    "prompt-caching-scope": tuple(f"{part}.cache_control.scope" for part in ("system", "tools")),
    "structured-outputs": ("tools.strict",),
    "task-budgets": ("output_config.task_budget",),
    "thinking-binding-controls": ("thinking.block_binding",),
    "tool-examples": ("tools.input_examples",),
    "tool-search-tool": ("tools.defer_loading",),
}
"""The fields that upstreams accept only with a beta, by its name without the date."""


class Remainder(NamedTuple):
    """A request without what was refused; `left_out` are the values that it had, `dropped` the
    names of what is missing now."""

    body: Payload
    headers: Mapping[str, str]
    left_out: tuple[str, ...]
    dropped: frozenset[str]


def leave_out(
    body: Payload, headers: Mapping[str, str], names: Iterable[str], format: Format
) -> Remainder:
    """Body and headers are copied where they change. Linear in their size, for each name."""
    left_out: list[str] = []
    dropped: set[str] = set()
    for name in names:
        before = body, headers
        missing = name
        if name.startswith(_BETA):
            body, headers, paired = _without_beta(body, headers, name.removeprefix(_BETA))
            dropped.update(paired)
        elif name.startswith(_TOOL):
            body = _without_tool(body, name.removeprefix(_TOOL))
        elif name == _UNSIGNED_CALLS:
            missing = "thinking.refused"
            body = sign_calls(body) if format is Format.CHAT else body
        elif name in _RENAMED:
            other, missing = _RENAMED[name], ""
            if format is Format.CHAT and name in body and other not in body:
                body = {other if key == name else key: value for key, value in body.items()}
        else:
            body, name = _without_field(body, name)
            missing = name
        if body is not before[0] or headers is not before[1]:
            left_out.append(name)
            dropped.add(missing)
    return Remainder(body, headers, tuple(left_out), frozenset(dropped - {""}))


def _without_field(body: Payload, name: str) -> tuple[Payload, str]:
    """The body, and the field's path as the body has it."""
    path = name.split(".")
    if len(path) > _MAX_DEPTH:
        return body, name
    without, found = _without(body, path)
    if found is None or not _is_optional(body, found):
        return body, name
    return without, ".".join(found)


def _without(value: Any, path: Sequence[str]) -> tuple[Any, list[str] | None]:
    """The value without the member at `path`, and that path as the value has it: some upstreams
    name the type of an object within it, too. None where there is no such member."""
    if isinstance(value, list):
        pairs = [_without(item, path) for item in value]
        found = next((each for _, each in pairs if each is not None), None)
        return (value, None) if found is None else ([item for item, _ in pairs], found)
    if not isinstance(value, dict):
        return value, None
    name, *rest = path
    if rest and (name == value.get("type") or (name == "custom" and name not in value)):
        inner, found = _without(value, rest)
        if found is not None:
            return inner, found
    if name not in value:
        return value, None
    if not rest:
        return {key: each for key, each in value.items() if key != name}, [name]
    inner, found = _without(value[name], rest)
    if found is None:
        return value, None
    others = {key: each for key, each in value.items() if key != name or inner}
    return others | ({name: inner} if inner else {}), [name, *found]


def _is_optional(body: Payload, path: list[str]) -> bool:
    if ".".join(path) in _NEEDED or (len(path) == 1 and "format" in lenient_object(body[path[0]])):
        return False
    if path[0] == "context_management" and "compact" in dump_json(body[path[0]]):
        return False  # without it the conversation would end at its limit
    if path[0] in _HISTORY:
        return path[-1] in _OPTIONAL_IN_HISTORY
    if path[0] == "tools":
        is_schema = not {"input_schema", "parameters"}.isdisjoint(path)
        return not is_schema and path[-1] not in _NEEDED_OF_TOOLS
    return path[-1] != "type"


def _without_beta(
    body: Payload, headers: Mapping[str, str], beta: str
) -> tuple[Payload, Mapping[str, str], set[str]]:
    """Without the beta and its paired fields, which are named."""
    for header, value in headers.items():
        betas = [each.strip() for each in value.split(",")]
        if not header.endswith("-beta") or beta not in betas:
            continue
        kept = ",".join(each for each in betas if each != beta)
        others = {name: text for name, text in headers.items() if name != header}
        missing: set[str] = set()
        for field in _PAIRED.get(beta[: -len("-2025-01-01")], ()):
            without, name = _without_field(body, field)
            if without is not body:
                body = without
                missing.add(name)
        return body, others | ({header: kept} if kept else {}), missing
    return body, headers, set()


def _without_tool(body: Payload, kind: str) -> Payload:
    """Without the tools of a type, unless the conversation has used one, the client demands one,
    or no other would be left."""
    tools = body.get("tools")
    definitions = lenient_objects(tools)
    refused = [tool for tool in definitions if tool.get("type") == kind]
    kept = [tool for tool in definitions if tool.get("type") != kind]
    if kind in ("function", "custom") or not refused or not kept:
        return body
    names = {lenient_str(tool.get("name")) or kind for tool in refused}
    history = dump_json([body.get("messages"), body.get("input"), body.get("tool_choice")])
    if any(dump_json(name) in history for name in (*names, kind, f"{kind}_call")):
        return body
    return body | {"tools": kept}
