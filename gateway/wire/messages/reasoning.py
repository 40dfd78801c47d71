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
from gateway.wire.crossing import Losses
from gateway.wire.effort import LEAST_BUDGET, budget_of, effort_of, nearest
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_object, read_objects, read_text

_WORDS: Final = ("low", "medium", "high", "xhigh", "max")
_CLEARING: Final = "clear_thinking"
_OFF: Final[Payload] = {"type": "disabled"}
_HIGHEST_BUDGET: Final = 32768
"""Tokens to think with at most, where nobody says what a model can put out."""


@value
class Thoughts:
    """`thinking` and `effort` as they go into the body, with the `max_tokens` that leave room."""

    thinking: Payload | None
    effort: str | None
    max_tokens: int


def render_reasoning(
    prompt: Prompt, target: Target, losses: Losses, max_tokens: int, *, off: bool, unled: bool
) -> Thoughts:
    """`off`: nothing may be thought here, whatever is wished; `unled`: the conversation is one that
    a fixed budget would be refused for."""
    wish = prompt.reasoning
    if wish is None:
        return Thoughts(None, None, max_tokens)
    own = prompt.format is Format.MESSAGES
    effort = _effort(wish, target, losses, own=own)
    if not _is_about_thinking(wish, own=own):
        return Thoughts(None, effort, max_tokens)
    if effort_of(wish) == "none":
        return Thoughts(_switched_off(target, losses), effort, max_tokens)
    if target.thinking is ThinkingStyle.NONE:
        losses.lose("reasoning_effort")
        return Thoughts(None, None, max_tokens)
    if off and target.thinking is not ThinkingStyle.ALWAYS:
        losses.lose("reasoning_effort")
        return Thoughts(dict(_OFF), effort, max_tokens)
    if target.thinking is not ThinkingStyle.BUDGET:
        return Thoughts(_at_will(wish, own=own), effort, max_tokens)
    if unled:
        losses.lose("reasoning_effort")
        return Thoughts(dict(_OFF), None, max_tokens)
    return _within_budget(prompt, wish, target, losses, max_tokens)


def is_on(thinking: Payload | None, target: Target) -> bool:
    """Whether the model will think: that rules out other wishes."""
    if thinking is None:
        return target.thinking is ThinkingStyle.ALWAYS
    return thinking != _OFF


def forget_clearing(body: Payload) -> None:
    """Without thinking there is none to clear from the history, and asking for it is refused."""
    asked = read_object(body.get("context_management"))
    edits = read_objects(asked.get("edits"))
    kept = [edit for edit in edits if not read_text(edit.get("type")).startswith(_CLEARING)]
    if kept:
        body["context_management"] = asked | {"edits": kept}
    elif edits:
        del body["context_management"]


def _is_about_thinking(wish: Reasoning, *, own: bool) -> bool:
    """In this format an effort alone shapes the answer and leaves thinking as it is."""
    if wish.enabled is not None:
        return True
    return not own and effort_of(wish) is not None


def _effort(wish: Reasoning, target: Target, losses: Losses, *, own: bool) -> str | None:
    """The word to send: the client's own, or where there is none the one for its budget."""
    if target.thinking in (ThinkingStyle.BUDGET, ThinkingStyle.NONE):
        if own and wish.effort is not None:
            losses.lose("reasoning_effort")
        return None
    asked = wish.effort
    if asked is None and wish.budget is not None and wish.enabled is not False:
        asked = effort_of(wish)
    if asked is None or asked == "none":
        return None
    if asked not in EFFORTS:
        if own:
            return asked
        losses.lose("reasoning_effort")
        return None
    word = nearest(asked, [word for word in target.efforts if word in _WORDS])
    if word != asked:
        losses.lose("reasoning_effort")
    return word


def _switched_off(target: Target, losses: Losses) -> Payload | None:
    if target.thinking is ThinkingStyle.ALWAYS:
        losses.lose("reasoning_effort")
        return None
    return None if target.thinking is ThinkingStyle.NONE else dict(_OFF)


def _at_will(wish: Reasoning, *, own: bool) -> Payload:
    """Models that think at will may keep their thoughts to themselves unless they are asked; for
    clients of other formats a summary is what they know as reasoning."""
    thinking: Payload = {"type": (wish.mode if own else None) or "adaptive"}
    if display := wish.summary if own else "summarized":
        thinking["display"] = display
    return thinking


def _within_budget(
    prompt: Prompt, wish: Reasoning, target: Target, losses: Losses, max_tokens: int
) -> Thoughts:
    """Where the client named no `max_tokens` the budget comes on top of the usual ones, else it has
    to make do with what they leave; below the least budget there is no thinking at all. Only who
    names a budget in tokens may leave less than that for the answer."""
    answer = LEAST_BUDGET if wish.budget is None else 1
    ceiling = target.max_output
    budget = budget_of(wish, max(max_tokens, ceiling or _HIGHEST_BUDGET + answer) - answer)
    if prompt.max_tokens is None:
        max_tokens = min(budget + max_tokens, ceiling or budget + max_tokens)
    if budget > max_tokens - answer:
        budget = max_tokens - LEAST_BUDGET
        losses.lose("reasoning_effort")
    if budget < LEAST_BUDGET:
        return Thoughts(dict(_OFF), None, max_tokens)
    thinking: Payload = {"type": "enabled", "budget_tokens": budget}
    if wish.summary and prompt.format is Format.MESSAGES:
        thinking["display"] = wish.summary
    return Thoughts(thinking, None, max_tokens)
