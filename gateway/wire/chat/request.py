"""Chat request bodies. It must not know which upstream will get them, nor that one's limits.

What the format defines is checked; what it does not know is carried in `extra`, never refused.
Public format: Chat Completions, "Create chat completion"; fields of compatible servers
(`reasoning`, `thinking`, `enable_thinking`, `top_k`) are read where they make sense.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import Opaque
from gateway.core.prompt import AS_USUAL, OutputFormat, OutputKind, Prompt, Reasoning, Sampling
from gateway.core.target import Target
from gateway.wire.chat.reasoning import patch_reasoning
from gateway.wire.chat.tools import SEARCH_FIELD, parse_tool_choice, parse_tools
from gateway.wire.chat.turns import parse_turns
from gateway.wire.fields import (
    Payload,
    as_object,
    as_str,
    boolean,
    integer,
    list_,
    model_id,
    number,
    object_,
    required,
    required_str,
    string,
)

_READ: Final = {
    *("model", "messages", "stream", "stream_options", "max_completion_tokens", "max_tokens"),
    *("stop", "tools", "tool_choice", "functions", "function_call", "parallel_tool_calls"),
    *("response_format", "reasoning_effort", "reasoning", "thinking", "enable_thinking"),
    *("temperature", "top_p", "top_k", "seed", "n", "frequency_penalty", "presence_penalty"),
    *("logprobs", "top_logprobs", "verbosity", "safety_identifier", "user", "metadata"),
    *("service_tier", "prompt_cache_key", "store", SEARCH_FIELD),
}
_COMPATIBLE: Final = ("reasoning", "thinking", "enable_thinking")
_SAMPLED: Final = frozenset(
    {
        *("temperature", "top_p", "top_k", "seed", "n", "frequency_penalty", "presence_penalty"),
        *("logprobs", "top_logprobs"),
    }
)
_REASONED: Final = frozenset({"reasoning_effort", *_COMPATIBLE})
_TOOLS: Final = frozenset({"tools", "functions", "tool_choice", "function_call", SEARCH_FIELD})


def parse_prompt(body: object) -> Prompt:
    """Raises `InvalidRequest` naming the field."""
    body = as_object(body, "")
    named = body.keys()  # most requests name few fields: whole groups of them need no reading
    equipped = not named.isdisjoint(_TOOLS)
    model = model_id(body)
    options = object_(body, "stream_options") or {}
    most = integer(body, "max_completion_tokens", least=0)
    at_most = integer(body, "max_tokens", least=0)
    safety_identifier, user = string(body, "safety_identifier"), string(body, "user")
    output = _output(body)
    return Prompt(
        format=Format.CHAT,
        model=model,
        turns=parse_turns(body),
        stream=boolean(body, "stream") or False,
        include_usage=boolean(options, "include_usage", "stream_options") or False,
        max_tokens=at_most if most is None else most,
        stop=_stop(body),
        tools=parse_tools(body) if equipped else (),
        tool_choice=parse_tool_choice(body) if equipped else None,
        parallel_tool_calls=_parallel(body),
        reasoning=None if named.isdisjoint(_REASONED) else _reasoning(body),
        output=output,
        sampling=AS_USUAL if named.isdisjoint(_SAMPLED) else _sampling(body),
        verbosity=string(body, "verbosity"),
        user=safety_identifier or user,
        metadata=object_(body, "metadata"),
        service_tier=string(body, "service_tier"),
        cache_key=string(body, "prompt_cache_key"),
        store=boolean(body, "store"),
        extra=_extra(body, output),
    )


def patch_prompt(body: Payload, prompt: Prompt, target: Target) -> Payload:
    """A stream is asked for its usage: nothing else tells what a reply has cost."""
    patched = body | {"model": target.model}
    if body.get("stream"):
        patched["stream_options"] = (body.get("stream_options") or {}) | {"include_usage": True}
    patch_reasoning(patched, prompt, target)
    return patched


def _parallel(body: Payload) -> bool | None:
    """Whoever speaks of functions as of old has room for one call alone."""
    parallel = boolean(body, "parallel_tool_calls")
    return False if parallel is None and body.get("functions") else parallel


def _stop(body: Payload) -> tuple[str, ...]:
    value = body.get("stop")
    if isinstance(value, str):
        return (value,)
    stops = list_(body, "stop")
    if not stops:
        return ()
    return tuple(as_str(stop, f"stop.{index}") for index, stop in enumerate(stops))


def _sampling(body: Payload) -> Sampling:
    top_logprobs = integer(body, "top_logprobs", least=0)
    if top_logprobs is None and boolean(body, "logprobs"):
        top_logprobs = 0
    top_k = body.get("top_k")
    return Sampling(
        temperature=number(body, "temperature"),
        top_p=number(body, "top_p"),
        top_k=top_k if type(top_k) is int else None,
        seed=integer(body, "seed"),
        frequency_penalty=number(body, "frequency_penalty"),
        presence_penalty=number(body, "presence_penalty"),
        choices=integer(body, "n", least=1),
        top_logprobs=top_logprobs,
    )


def _reasoning(body: Payload) -> Reasoning | None:
    """The format's own effort first, then what compatible servers call it."""
    said = {name: body[name] for name in _COMPATIBLE if body.get(name) is not None}
    effort = string(body, "reasoning_effort")
    if said and effort is not None:
        said["reasoning_effort"] = effort
    extra = Opaque(Format.CHAT, said) if said else None
    if effort is not None:
        return Reasoning(enabled=False if effort == "none" else None, effort=effort, extra=extra)
    reasoning, thinking = body.get("reasoning"), body.get("thinking")
    if isinstance(reasoning, dict):
        return Reasoning(
            enabled=_typed(reasoning, "enabled", bool),
            effort=_typed(reasoning, "effort", str),
            budget=_typed(reasoning, "max_tokens", int),
            extra=extra,
        )
    if isinstance(thinking, dict) and isinstance(thinking.get("type"), str):
        mode = thinking["type"]
        return Reasoning(
            enabled=mode != "disabled",
            budget=_typed(thinking, "budget_tokens", int),
            mode=None if mode in ("enabled", "disabled") else mode,
            extra=extra,
        )
    enabled = _typed(body, "enable_thinking", bool)
    return None if enabled is None else Reasoning(enabled=enabled, extra=extra)


def _typed(body: Payload, name: str, kind: type) -> Any:
    """A field that the format itself does not define: read where it fits, else ignored."""
    value = body.get(name)
    return value if type(value) is kind else None


def _output(body: Payload) -> OutputFormat | None:
    form = object_(body, "response_format")
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
                schema=object_(said, "schema", path),
                description=string(said, "description", path),
                strict=boolean(said, "strict", path),
            )
        case _:
            return None


def _extra(body: Payload, output: OutputFormat | None) -> Opaque | None:
    if body.keys() <= _READ and "response_format" not in body and "user" not in body:
        return None
    rest = {name: value for name, value in body.items() if name not in _READ}
    if output is None and (form := body.get("response_format")) and form["type"] != "text":
        rest["response_format"] = form
    if body.get("safety_identifier") and body.get("user"):
        rest["user"] = body["user"]
    return Opaque(Format.CHAT, rest) if rest else None
