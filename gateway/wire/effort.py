"""Reasoning effort as a word of `gateway.core.target.EFFORTS`, and as a budget in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.core.prompt import Reasoning
from gateway.core.target import EFFORTS

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
