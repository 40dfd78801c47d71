"""The reasoning settings of a messages request: `thinking`, its budget, and an effort.

A model's `ThinkingStyle` decides which of them it accepts; one without gets the format's basic
form, a budget (Specification, "Thinking"), or what a client of this format sends. A budget is
always below `max_tokens` (Messages, "Extended thinking", "Effort").
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.core.formats import Format
from gateway.core.prompt import Prompt, Reasoning
from gateway.core.target import EFFORTS, Target, ThinkingStyle
from gateway.wire.json.fields import Payload, lenient_object, lenient_objects, lenient_str
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.render_rules import MIN_BUDGET, budget_of, effort_of, nearest_effort

_EFFORT_NAMES: Final = ("low", "medium", "high", "xhigh", "max")
_CLEAR_THINKING: Final = "clear_thinking"
_DISABLED: Final[Payload] = {"type": "disabled"}
_MAX_BUDGET: Final = 32768
"""Thinking tokens for a model of unknown output limit."""


class ThinkingParams(NamedTuple):
    """`thinking` and `effort` for the body, and the `max_tokens` that include the budget."""

    thinking: Payload | None
    effort: str | None
    max_tokens: int


def render_reasoning(
    prompt: Prompt,
    target: Target,
    dropped: Dropped,
    max_tokens: int,
    *,
    tool_forced: bool,
    missing_leading_thinking: bool,
) -> ThinkingParams:
    """`tool_forced`: thinking is not allowed; `missing_leading_thinking`: a thinking budget is not
    allowed."""
    reasoning = prompt.reasoning
    if reasoning is None:
        return ThinkingParams(None, None, max_tokens)
    same_format = prompt.format is Format.MESSAGES
    effort = _render_effort(reasoning, target, dropped, same_format=same_format)
    if not _configures_thinking(reasoning, same_format=same_format):
        return ThinkingParams(None, effort, max_tokens)
    if effort_of(reasoning) == "none":
        return ThinkingParams(_disabled(target, dropped), effort, max_tokens)
    if target.thinking is ThinkingStyle.NONE:
        dropped.drop("reasoning_effort")
        return ThinkingParams(None, None, max_tokens)
    if tool_forced and target.thinking is not ThinkingStyle.ALWAYS:
        dropped.drop("reasoning_effort")
        return ThinkingParams(dict(_DISABLED), effort, max_tokens)
    if not _takes_budget(reasoning, target, same_format=same_format):
        return ThinkingParams(_adaptive(reasoning, same_format=same_format), effort, max_tokens)
    if missing_leading_thinking:
        dropped.drop("reasoning_effort")
        return ThinkingParams(dict(_DISABLED), None, max_tokens)
    return _budgeted(prompt, reasoning, target, dropped, max_tokens)


def patch_reasoning(body: Payload, prompt: Prompt, target: Target) -> None:
    """The native lane: a form of thinking and an effort that the model accepts, in `body`."""
    reasoning = prompt.reasoning
    if reasoning is None or target.thinking is None:
        return
    params = render_reasoning(
        prompt,
        target,
        Dropped(Format.MESSAGES),
        prompt.max_tokens or target.max_output or _MAX_BUDGET,
        tool_forced=False,
        missing_leading_thinking=False,
    )
    thinking, rendered = lenient_object(body.get("thinking")), params.thinking or {}
    if thinking.get("type") != rendered.get("type"):
        _replace_field(body, "thinking", rendered)
        if not is_thinking(params.thinking, target):
            remove_clear_thinking(body)
    if params.effort != reasoning.effort:
        config = lenient_object(body.get("output_config")) | {"effort": params.effort}
        config = {name: value for name, value in config.items() if value is not None}
        _replace_field(body, "output_config", config)


def _replace_field(body: Payload, name: str, value: Payload) -> None:
    body.pop(name, None)
    if value:
        body[name] = value


def is_thinking(thinking: Payload | None, target: Target) -> bool:
    """Tells whether the model will think, which excludes some other settings."""
    if thinking is None:
        return target.thinking is ThinkingStyle.ALWAYS
    return thinking != _DISABLED


def remove_clear_thinking(body: Payload) -> None:
    """Removes a request to clear thinking from the history, which upstreams reject without
    thinking."""
    management = lenient_object(body.get("context_management"))
    edits = lenient_objects(management.get("edits"))
    kept = [edit for edit in edits if not lenient_str(edit.get("type")).startswith(_CLEAR_THINKING)]
    if kept:
        body["context_management"] = management | {"edits": kept}
    elif edits:
        del body["context_management"]


def _configures_thinking(reasoning: Reasoning, *, same_format: bool) -> bool:
    """Tells whether a prompt configures thinking; in this format an effort alone shapes the reply
    and does not configure thinking."""
    if reasoning.enabled is not None:
        return True
    return not same_format and effort_of(reasoning) is not None


def _takes_budget(reasoning: Reasoning, target: Target, *, same_format: bool) -> bool:
    if target.thinking is None:
        return not (same_format and reasoning.mode)
    return target.thinking is ThinkingStyle.BUDGET


def _render_effort(
    reasoning: Reasoning, target: Target, dropped: Dropped, *, same_format: bool
) -> str | None:
    """The effort to send: the client's own, else the one for its budget."""
    effort = reasoning.effort
    if target.thinking is None:
        return effort if same_format else None
    if target.thinking in (ThinkingStyle.BUDGET, ThinkingStyle.NONE):
        if same_format and effort is not None:
            dropped.drop("reasoning_effort")
        return None
    if effort is None and reasoning.budget is not None and reasoning.enabled is not False:
        effort = effort_of(reasoning)
    if effort is None or effort == "none":
        return None
    if effort not in EFFORTS:
        if same_format:
            return effort
        dropped.drop("reasoning_effort")
        return None
    nearest = nearest_effort(effort, [name for name in target.efforts if name in _EFFORT_NAMES])
    if nearest != effort:
        dropped.drop("reasoning_effort")
    return nearest


def _disabled(target: Target, dropped: Dropped) -> Payload | None:
    if target.thinking is ThinkingStyle.ALWAYS:
        dropped.drop("reasoning_effort")
        return None
    return None if target.thinking is ThinkingStyle.NONE else dict(_DISABLED)


def _adaptive(reasoning: Reasoning, *, same_format: bool) -> Payload:
    """Adaptive models may hide their reasoning unless it is requested; clients of other formats
    expect a summary."""
    thinking: Payload = {"type": (reasoning.mode if same_format else None) or "adaptive"}
    if display := reasoning.summary if same_format else "summarized":
        thinking["display"] = display
    return thinking


def _budgeted(
    prompt: Prompt, reasoning: Reasoning, target: Target, dropped: Dropped, max_tokens: int
) -> ThinkingParams:
    """Sets a budget of thinking. Without a `max_tokens` of the client it is added to the default,
    else limited by it; below the minimum budget thinking is disabled. Only a client with a budget
    in tokens may leave less than that minimum for the reply."""
    reply = MIN_BUDGET if reasoning.budget is None else 1
    ceiling = target.max_output
    budget = budget_of(reasoning, max(max_tokens, ceiling or _MAX_BUDGET + reply) - reply)
    if prompt.max_tokens is None:
        max_tokens = min(budget + max_tokens, ceiling or budget + max_tokens)
    if budget > max_tokens - reply:
        budget = max_tokens - MIN_BUDGET
        dropped.drop("reasoning_effort")
    if budget < MIN_BUDGET:
        return ThinkingParams(dict(_DISABLED), None, max_tokens)
    thinking: Payload = {"type": "enabled", "budget_tokens": budget}
    if reasoning.summary and prompt.format is Format.MESSAGES:
        thinking["display"] = reasoning.summary
    return ThinkingParams(thinking, None, max_tokens)
