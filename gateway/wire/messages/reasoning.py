"""How hard to think, as messages models are told: `thinking`, its budget, and an effort.

Which of them a model takes is its `ThinkingStyle`; a budget is always below `max_tokens` (Messages,
"Extended thinking", "Effort"). It must not know what there is to think about.
"""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.core.prompt import Prompt, Reasoning
from gateway.core.target import EFFORTS, Target, ThinkingStyle
from gateway.core.value import value
from gateway.wire.dropped import Dropped
from gateway.wire.effort import MIN_BUDGET, budget_of, effort_of, nearest_effort
from gateway.wire.json_fields import Payload, lenient_object, lenient_objects, lenient_str

_EFFORT_NAMES: Final = ("low", "medium", "high", "xhigh", "max")
_CLEAR_THINKING: Final = "clear_thinking"
_DISABLED: Final[Payload] = {"type": "disabled"}
_MAX_BUDGET: Final = 32768
"""Tokens to think with at most, where nobody says what a model can put out."""


@value
class ThinkingParams:
    """`thinking` and `effort` as they go into the body, with the `max_tokens` that leave room."""

    thinking: Payload | None
    effort: str | None
    max_tokens: int


def render_reasoning(
    prompt: Prompt,
    target: Target,
    losses: Dropped,
    max_tokens: int,
    *,
    tool_forced: bool,
    missing_leading_thinking: bool,
) -> ThinkingParams:
    """`off`: nothing may be thought here, whatever is wished; `unled`: the conversation is one that
    a fixed budget would be refused for."""
    wish = prompt.reasoning
    if wish is None:
        return ThinkingParams(None, None, max_tokens)
    own = prompt.format is Format.MESSAGES
    effort = _render_effort(wish, target, losses, same_format=own)
    if not _configures_thinking(wish, same_format=own):
        return ThinkingParams(None, effort, max_tokens)
    if effort_of(wish) == "none":
        return ThinkingParams(_disabled(target, losses), effort, max_tokens)
    if target.thinking is ThinkingStyle.NONE:
        losses.drop("reasoning_effort")
        return ThinkingParams(None, None, max_tokens)
    if tool_forced and target.thinking is not ThinkingStyle.ALWAYS:
        losses.drop("reasoning_effort")
        return ThinkingParams(dict(_DISABLED), effort, max_tokens)
    if target.thinking is not ThinkingStyle.BUDGET:
        return ThinkingParams(_adaptive(wish, same_format=own), effort, max_tokens)
    if missing_leading_thinking:
        losses.drop("reasoning_effort")
        return ThinkingParams(dict(_DISABLED), None, max_tokens)
    return _budgeted(prompt, wish, target, losses, max_tokens)


def is_thinking(thinking: Payload | None, target: Target) -> bool:
    """Whether the model will think: that rules out other wishes."""
    if thinking is None:
        return target.thinking is ThinkingStyle.ALWAYS
    return thinking != _DISABLED


def remove_clear_thinking(body: Payload) -> None:
    """Without thinking there is none to clear from the history, and asking for it is refused."""
    asked = lenient_object(body.get("context_management"))
    edits = lenient_objects(asked.get("edits"))
    kept = [edit for edit in edits if not lenient_str(edit.get("type")).startswith(_CLEAR_THINKING)]
    if kept:
        body["context_management"] = asked | {"edits": kept}
    elif edits:
        del body["context_management"]


def _configures_thinking(wish: Reasoning, *, same_format: bool) -> bool:
    """In this format an effort alone shapes the answer and leaves thinking as it is."""
    if wish.enabled is not None:
        return True
    return not same_format and effort_of(wish) is not None


def _render_effort(
    wish: Reasoning, target: Target, losses: Dropped, *, same_format: bool
) -> str | None:
    """The word to send: the client's own, or where there is none the one for its budget."""
    if target.thinking in (ThinkingStyle.BUDGET, ThinkingStyle.NONE):
        if same_format and wish.effort is not None:
            losses.drop("reasoning_effort")
        return None
    asked = wish.effort
    if asked is None and wish.budget is not None and wish.enabled is not False:
        asked = effort_of(wish)
    if asked is None or asked == "none":
        return None
    if asked not in EFFORTS:
        if same_format:
            return asked
        losses.drop("reasoning_effort")
        return None
    word = nearest_effort(asked, [word for word in target.efforts if word in _EFFORT_NAMES])
    if word != asked:
        losses.drop("reasoning_effort")
    return word


def _disabled(target: Target, losses: Dropped) -> Payload | None:
    if target.thinking is ThinkingStyle.ALWAYS:
        losses.drop("reasoning_effort")
        return None
    return None if target.thinking is ThinkingStyle.NONE else dict(_DISABLED)


def _adaptive(wish: Reasoning, *, same_format: bool) -> Payload:
    """Models that think at will may keep their thoughts to themselves unless they are asked; for
    clients of other formats a summary is what they know as reasoning."""
    thinking: Payload = {"type": (wish.mode if same_format else None) or "adaptive"}
    if display := wish.summary if same_format else "summarized":
        thinking["display"] = display
    return thinking


def _budgeted(
    prompt: Prompt, wish: Reasoning, target: Target, losses: Dropped, max_tokens: int
) -> ThinkingParams:
    """Where the client named no `max_tokens` the budget comes on top of the usual ones, else it has
    to make do with what they leave; below the least budget there is no thinking at all. Only who
    names a budget in tokens may leave less than that for the answer."""
    answer = MIN_BUDGET if wish.budget is None else 1
    ceiling = target.max_output
    budget = budget_of(wish, max(max_tokens, ceiling or _MAX_BUDGET + answer) - answer)
    if prompt.max_tokens is None:
        max_tokens = min(budget + max_tokens, ceiling or budget + max_tokens)
    if budget > max_tokens - answer:
        budget = max_tokens - MIN_BUDGET
        losses.drop("reasoning_effort")
    if budget < MIN_BUDGET:
        return ThinkingParams(dict(_DISABLED), None, max_tokens)
    thinking: Payload = {"type": "enabled", "budget_tokens": budget}
    if wish.summary and prompt.format is Format.MESSAGES:
        thinking["display"] = wish.summary
    return ThinkingParams(thinking, None, max_tokens)
