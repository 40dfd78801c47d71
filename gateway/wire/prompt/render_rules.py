"""What a format cannot express of a prompt of another one: tables, and the rules that read them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gateway.core.formats import Format
from gateway.core.parts import CacheBreakpoint, ProviderData, Text
from gateway.core.prompt import (
    DEFAULT_SAMPLING,
    ChoiceMode,
    OutputFormat,
    Prompt,
    Reasoning,
    Role,
    Tool,
    ToolChoice,
    Turn,
)
from gateway.core.target import EFFORTS, SamplingStyle, Target
from gateway.core.value import replace
from gateway.errors import ThreadUnsupported, UnsupportedField
from gateway.wire.json.fields import Payload, as_json
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.history import split_leading_system
from gateway.wire.prompt.json_schema import is_strict
from gateway.wire.prompt.tool_names import CUSTOM_TOOL_ARG, UpstreamTools

MIN_BUDGET: Final = 1024
_BUDGETS: Final = {
    "minimal": MIN_BUDGET,
    "low": MIN_BUDGET,
    "medium": 8192,
    "high": 24576,
    "xhigh": 32768,
}
_MODE_EFFORTS: Final = {"adaptive": "high", "between_tools": "medium"}


def effort_of(reasoning: Reasoning | None) -> str | None:
    """The requested effort, in whatever way it is requested; None where it is not."""
    if reasoning is None:
        return None
    if reasoning.enabled is False:
        return "none"
    if reasoning.effort in EFFORTS:
        return reasoning.effort
    if reasoning.budget is not None:
        return _budget_effort(reasoning.budget) if reasoning.budget else "none"
    if reasoning.mode is not None:
        return _MODE_EFFORTS.get(reasoning.mode)
    return "medium" if reasoning.enabled else None


def _budget_effort(budget: int) -> str:
    return next((word for word in ("low", "medium", "high") if budget <= _BUDGETS[word]), "xhigh")


def nearest_effort(effort: str, supported: Sequence[str]) -> str | None:
    """The supported effort closest to `effort`, the lower one of two; None where none is supported.
    `none` only replaces other efforts where it is the only one. All are words of `EFFORTS`."""
    rank = EFFORTS.index(effort)
    words = [word for word in supported if effort == "none" or word != "none"] or list(supported)
    return min(
        words, key=lambda word: (abs(EFFORTS.index(word) - rank), EFFORTS.index(word)), default=None
    )


def budget_of(reasoning: Reasoning, maximum: int) -> int:
    """Tokens for reasoning, between `MIN_BUDGET` and `maximum`: the requested budget, else that of
    the effort; `max` is the maximum. `maximum` is at least `MIN_BUDGET`."""
    budget = reasoning.budget
    if budget is None:
        budget = _BUDGETS.get(effort_of(reasoning) or "medium", maximum)
    return min(max(budget, MIN_BUDGET), maximum)


UNSUPPORTED: Final[Mapping[Format, tuple[str, ...]]] = {
    Format.CHAT: ("prompt", "thread"),
    Format.MESSAGES: ("prompt", "audio"),
    Format.RESPONSES: ("audio",),
}
"""Fields of other formats without which the reply would be another one."""


class SamplingRules(NamedTuple):
    """`fields` are those of `Sampling` that the format has. Where `neutral`, a dropped 1 changes
    nothing and is not named."""

    fields: tuple[str, ...]
    max_temperature: float = math.inf
    neutral: bool = False


SAMPLING: Final[Mapping[Format, SamplingRules]] = {
    Format.CHAT: SamplingRules(("temperature", "top_p")),
    Format.MESSAGES: SamplingRules(("temperature", "top_p", "top_k"), 1, neutral=True),
    Format.RESPONSES: SamplingRules(("temperature", "top_p"), 2),
}
_OTHER_SAMPLING: Final = ("top_k", "seed", "frequency_penalty", "presence_penalty")
_PENALTIES: Final = ("frequency_penalty", "presence_penalty")

CACHE_TTLS: Final = {"5m": "30m", "1h": "12h"}
"""Lifetimes of cache breakpoints in messages, and the corresponding ones of the other formats."""
_JSON_INSTRUCTION: Final = "Answer with one JSON object only, no prose, no code fence."

CUSTOM_TOOL_SCHEMA: Final = {
    "type": "object",
    "properties": {CUSTOM_TOOL_ARG: {"type": "string"}},
    "required": [CUSTOM_TOOL_ARG],
}
"""The parameters of the function that replaces a custom tool."""
_CUSTOM_TOOL_TEXTS: Final = {
    Format.CHAT: (f"Put the whole input, as plain text, into `{CUSTOM_TOOL_ARG}`.", "fit"),
    Format.MESSAGES: (f"'{CUSTOM_TOOL_ARG}' is the tool's whole input, as plain text.", "follow"),
    Format.RESPONSES: (f"'{CUSTOM_TOOL_ARG}' is the tool's whole input, as plain text.", "follow"),
}


def check_stateless(prompt: Prompt) -> None:
    """A translated prompt cannot continue what its own upstream has stored. Raises
    `ThreadUnsupported`."""
    fields = ProviderData.native_fields(prompt.extra, Format.MESSAGES)
    if fields.get("thread") is not None:
        raise ThreadUnsupported


def check_supported(prompt: Prompt, format: Format) -> None:
    """Tells whether a prompt can be rendered in `format` at all. Raises `UnsupportedField`."""
    if (prompt.sampling.choices or 1) > 1:
        raise UnsupportedField("n", "a translated reply has one choice")
    same_format = prompt.format is format
    fields: Payload = prompt.extra.data if prompt.extra is not None else {}
    modalities = fields.get("modalities")
    if isinstance(modalities, list) and "audio" in modalities:
        raise UnsupportedField("modalities", "a translated reply has no audio")
    for name in () if same_format else UNSUPPORTED[format]:
        if fields.get(name):
            raise UnsupportedField(name, "only an upstream of the client's own format supports it")


def limit_max_tokens(
    prompt: Prompt, target: Target, dropped: Dropped, minimum: int = 0
) -> int | None:
    """`max_tokens` within what the target accepts; None where the client sets no limit."""
    requested = prompt.max_tokens
    if requested is None:
        return None
    limit = max(requested, minimum)
    if target.max_output is not None:
        limit = min(limit, max(target.max_output, minimum))
    if limit != requested:
        dropped.drop("max_tokens")
    return limit


def render_sampling(
    prompt: Prompt, format: Format, target: Target, dropped: Dropped, *, thinking: bool = False
) -> Payload:
    """`thinking`: the model thinks, which excludes sampling in some formats."""
    sampling = prompt.sampling
    if sampling is DEFAULT_SAMPLING:
        return {}
    rules = SAMPLING[format]
    fields = _set_fields(sampling, rules.fields)
    removed: Payload = {}
    if thinking or target.sampling is SamplingStyle.NEITHER:
        removed, fields = fields, {}
    elif target.sampling is SamplingStyle.ONE and "temperature" in fields and "top_p" in fields:
        removed = {"top_p": fields.pop("top_p")}
    neutral = {"temperature": 1, "top_p": 1} if rules.neutral else {}
    dropped.names.update(name for name in removed if removed[name] != neutral.get(name))
    if fields.get("temperature", 0) > rules.max_temperature:
        dropped.drop("temperature")
        fields["temperature"] = rules.max_temperature
    if sampling.top_logprobs is not None:
        dropped.drop("logprobs")
    others = _set_fields(sampling, [name for name in _OTHER_SAMPLING if name not in rules.fields])
    if prompt.format is format:
        return fields | others
    dropped.names.update(name for name in others if others[name] or name not in _PENALTIES)
    return fields


def _set_fields(sampling: Any, names: Collection[str]) -> Payload:
    return {name: value for name in names if (value := getattr(sampling, name)) is not None}


def enforces_schema(output: OutputFormat, dropped: Dropped) -> bool:
    """Tells whether a schema from another format is sent as strict: wherever it can be enforced,
    unless the client excludes it."""
    enforced = output.strict is not False and is_strict(output.schema)
    if output.strict and not enforced:
        dropped.drop("output.strict")
    return enforced


def json_instruction(output: OutputFormat) -> str:
    """Describes the format of the output for the system text, if it is not enforced."""
    if output.schema is None:
        return _JSON_INSTRUCTION
    return f"{_JSON_INSTRUCTION} It must fit this JSON Schema:\n{as_json(output.schema, 'schema')}"


def with_output_instruction(prompt: Prompt, target: Target) -> Prompt:
    """The prompt with an instruction instead of a format that the target does not enforce."""
    if prompt.output is None or target.structured:
        return prompt
    leading, rest = split_leading_system(prompt.turns)
    instruction = Turn(Role.SYSTEM, (Text(json_instruction(prompt.output)),))
    return replace(prompt, turns=(*leading, instruction, *rest), output=None)


def describe_custom_tool(
    format: Format, description: str | None, grammar: Mapping[str, Any] | None
) -> str:
    """The description of the function that replaces a custom tool, with its grammar."""
    instruction, verb = _CUSTOM_TOOL_TEXTS[format]
    texts = [description, instruction] if description else [instruction]
    if grammar and grammar.get("definition"):
        kind = f"{grammar.get('syntax') or ''} grammar".strip()
        texts.append(f"It must {verb} this {kind}:\n{grammar['definition']}")
    return "\n\n".join(texts)


def explicit_breakpoint(cache: CacheBreakpoint) -> Payload:
    """The field of a cache breakpoint that chat and responses share."""
    ttl = {} if cache.ttl is None else {"ttl": CACHE_TTLS.get(cache.ttl, cache.ttl)}
    return {"prompt_cache_breakpoint": {"mode": "explicit"} | ttl}


def may_be_called(tool: Tool) -> bool:
    """Tells whether the model itself may call the tool, not only the programs that it runs in its
    own upstream's containers."""
    callers = tool.extra.data.get("allowed_callers") if tool.extra is not None else None
    return not isinstance(callers, list) or "direct" in callers


def check_any_tool(
    tools: UpstreamTools, sent: Collection[Any], *, search_optional: bool = False
) -> None:
    """Raises `UnsupportedField` where tools may be called but none can be sent; `search_optional`:
    a web search is no such loss."""
    may_call = tools.choice is None or tools.choice.mode is not ChoiceMode.NONE
    can_search = search_optional and any(tool.search for tool in tools.tools.values())
    if tools.tools and not sent and may_call and not can_search:
        raise UnsupportedField("tools", "none of them can be sent to this upstream")


def check_choice(choice: ToolChoice, sent: Collection[str], *, same_format: bool = False) -> None:
    """Raises `UnsupportedField` where the choice is not among `sent`, the names of the tools that
    are sent; `same_format`: the upstream has the client's own kinds of choice."""
    if choice.mode is ChoiceMode.PROVIDER_SPECIFIC and not same_format:
        raise UnsupportedField("tool_choice", "this upstream has no such choice")
    if choice.mode is ChoiceMode.NAMED and choice.name not in sent:
        raise UnsupportedField("tool_choice", f"the tool '{choice.name}' cannot be sent")
    if choice.mode is ChoiceMode.REQUIRED and not sent:
        raise UnsupportedField("tool_choice", "none of the tools can be sent")
