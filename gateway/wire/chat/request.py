"""Chat request bodies. It must not know which upstream will get them, nor that one's limits.

What the format defines is checked; what it does not know is carried in `extra`, never refused.
Public format: Chat Completions, "Create chat completion"; fields of compatible servers
(`reasoning`, `thinking`, `enable_thinking`, `top_k`) are read where they make sense.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import DEFAULT_SAMPLING, OutputFormat, OutputKind, Prompt, Reasoning, Sampling
from gateway.core.target import Target
from gateway.wire.chat.reasoning import patch_reasoning
from gateway.wire.chat.tools import SEARCH_FIELD, parse_tool_choice, parse_tools
from gateway.wire.chat.turns import parse_messages
from gateway.wire.fields import (
    Payload,
    as_object,
    as_str,
    optional_bool,
    optional_int,
    optional_list,
    parse_model,
    optional_number,
    optional_object,
    required,
    required_str,
    optional_str,
)

_KNOWN_FIELDS: Final = {
    *("model", "messages", "stream", "stream_options", "max_completion_tokens", "max_tokens"),
    *("stop", "tools", "tool_choice", "functions", "function_call", "parallel_tool_calls"),
    *("response_format", "reasoning_effort", "reasoning", "thinking", "enable_thinking"),
    *("temperature", "top_p", "top_k", "seed", "n", "frequency_penalty", "presence_penalty"),
    *("logprobs", "top_logprobs", "verbosity", "safety_identifier", "user", "metadata"),
    *("service_tier", "prompt_cache_key", "store", SEARCH_FIELD),
}
_COMPATIBLE_FIELDS: Final = ("reasoning", "thinking", "enable_thinking")
_SAMPLING_FIELDS: Final = frozenset(
    {
        *("temperature", "top_p", "top_k", "seed", "n", "frequency_penalty", "presence_penalty"),
        *("logprobs", "top_logprobs"),
    }
)
_REASONING_FIELDS: Final = frozenset({"reasoning_effort", *_COMPATIBLE_FIELDS})
_TOOL_FIELDS: Final = frozenset({"tools", "functions", "tool_choice", "function_call", SEARCH_FIELD})


def parse_prompt(body: object) -> Prompt:
    """Raises `InvalidRequest` naming the field."""
    body = as_object(body, "")
    named = body.keys()  # most requests name few fields: whole groups of them need no reading
    equipped = not named.isdisjoint(_TOOL_FIELDS)
    model = parse_model(body)
    options = optional_object(body, "stream_options") or {}
    most = optional_int(body, "max_completion_tokens", minimum=0)
    at_most = optional_int(body, "max_tokens", minimum=0)
    safety_identifier, user = optional_str(body, "safety_identifier"), optional_str(body, "user")
    output = _parse_output(body)
    return Prompt(
        format=Format.CHAT,
        model=model,
        turns=parse_messages(body),
        stream=optional_bool(body, "stream") or False,
        include_usage=optional_bool(options, "include_usage", "stream_options") or False,
        max_tokens=at_most if most is None else most,
        stop=_parse_stop(body),
        tools=parse_tools(body) if equipped else (),
        tool_choice=parse_tool_choice(body) if equipped else None,
        parallel_tool_calls=_parse_parallel(body),
        reasoning=None if named.isdisjoint(_REASONING_FIELDS) else _parse_effort(body),
        output=output,
        sampling=DEFAULT_SAMPLING if named.isdisjoint(_SAMPLING_FIELDS) else _parse_sampling(body),
        verbosity=optional_str(body, "verbosity"),
        user=safety_identifier or user,
        metadata=optional_object(body, "metadata"),
        service_tier=optional_str(body, "service_tier"),
        cache_key=optional_str(body, "prompt_cache_key"),
        store=optional_bool(body, "store"),
        extra=_parse_extra(body, output),
    )


def patch_prompt(body: Payload, prompt: Prompt, target: Target) -> Payload:
    """A stream is asked for its usage: nothing else tells what a reply has cost."""
    patched = body | {"model": target.model}
    if body.get("stream"):
        patched["stream_options"] = (body.get("stream_options") or {}) | {"include_usage": True}
    patch_reasoning(patched, prompt, target)
    return patched


def _parse_parallel(body: Payload) -> bool | None:
    """Whoever speaks of functions as of old has room for one call alone."""
    parallel = optional_bool(body, "parallel_tool_calls")
    return False if parallel is None and body.get("functions") else parallel


def _parse_stop(body: Payload) -> tuple[str, ...]:
    value = body.get("stop")
    if isinstance(value, str):
        return (value,)
    stops = optional_list(body, "stop")
    if not stops:
        return ()
    return tuple(as_str(stop, f"stop.{index}") for index, stop in enumerate(stops))


def _parse_sampling(body: Payload) -> Sampling:
    top_logprobs = optional_int(body, "top_logprobs", minimum=0)
    if top_logprobs is None and optional_bool(body, "logprobs"):
        top_logprobs = 0
    top_k = body.get("top_k")
    return Sampling(
        temperature=optional_number(body, "temperature"),
        top_p=optional_number(body, "top_p"),
        top_k=top_k if type(top_k) is int else None,
        seed=optional_int(body, "seed"),
        frequency_penalty=optional_number(body, "frequency_penalty"),
        presence_penalty=optional_number(body, "presence_penalty"),
        choices=optional_int(body, "n", minimum=1),
        top_logprobs=top_logprobs,
    )


def _parse_effort(body: Payload) -> Reasoning | None:
    """The format's own effort first, then what compatible servers call it."""
    said = {name: body[name] for name in _COMPATIBLE_FIELDS if body.get(name) is not None}
    effort = optional_str(body, "reasoning_effort")
    if said and effort is not None:
        said["reasoning_effort"] = effort
    extra = ProviderData(Format.CHAT, said) if said else None
    if effort is not None:
        return Reasoning(enabled=False if effort == "none" else None, effort=effort, extra=extra)
    reasoning, thinking = body.get("reasoning"), body.get("thinking")
    if isinstance(reasoning, dict):
        return Reasoning(
            enabled=_typed_field(reasoning, "enabled", bool),
            effort=_typed_field(reasoning, "effort", str),
            budget=_typed_field(reasoning, "max_tokens", int),
            extra=extra,
        )
    if isinstance(thinking, dict) and isinstance(thinking.get("type"), str):
        mode = thinking["type"]
        return Reasoning(
            enabled=mode != "disabled",
            budget=_typed_field(thinking, "budget_tokens", int),
            mode=None if mode in ("enabled", "disabled") else mode,
            extra=extra,
        )
    enabled = _typed_field(body, "enable_thinking", bool)
    return None if enabled is None else Reasoning(enabled=enabled, extra=extra)


def _typed_field(body: Payload, name: str, kind: type) -> Any:
    """A field that the format itself does not define: read where it fits, else ignored."""
    value = body.get(name)
    return value if type(value) is kind else None


def _parse_output(body: Payload) -> OutputFormat | None:
    form = optional_object(body, "response_format")
    if form is None:
        return None
    path = "response_format"
    match required_str(form, "type", path):
        case "json_object":
            return OutputFormat(kind=OutputKind.JSON_OBJECT)
        case "json_schema":
            path = f"{path}.json_schema"
            said = as_object(required(form, "json_schema", "response_format"), path)
            return OutputFormat(
                kind=OutputKind.JSON_SCHEMA,
                name=required_str(said, "name", path),
                schema=optional_object(said, "schema", path),
                description=optional_str(said, "description", path),
                strict=optional_bool(said, "strict", path),
            )
        case _:
            return None


def _parse_extra(body: Payload, output: OutputFormat | None) -> ProviderData | None:
    if body.keys() <= _KNOWN_FIELDS and "response_format" not in body and "user" not in body:
        return None
    rest = {name: value for name, value in body.items() if name not in _KNOWN_FIELDS}
    if output is None and (form := body.get("response_format")) and form["type"] != "text":
        rest["response_format"] = form
    if body.get("safety_identifier") and body.get("user"):
        rest["user"] = body["user"]
    return ProviderData(Format.CHAT, rest) if rest else None
