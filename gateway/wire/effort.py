"""How hard to think, in words and in tokens. It must not know which format asks.

The words are those of `gateway.core.target.EFFORTS`; a budget is in tokens.
"""

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
    """The word for what was asked, however it was asked; None where nothing was."""
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
    for word in ("low", "medium", "high"):
        if budget <= _BUDGETS[word]:
            return word
    return "xhigh"


def nearest_effort(effort: str, supported: Sequence[str]) -> str | None:
    """The word that comes closest to `effort` among those that are known, and of two as close the
    lesser; None where nothing is known. `none` is only taken for `none` while there are others.
    All are words of `EFFORTS`."""
    rank = EFFORTS.index(effort)
    words = [word for word in supported if effort == "none" or word != "none"] or list(supported)
    return min(
        words, key=lambda word: (abs(EFFORTS.index(word) - rank), EFFORTS.index(word)), default=None
    )


def budget_of(reasoning: Reasoning, maximum: int) -> int:
    """Tokens to think with, between `LEAST_BUDGET` and `most`, which must leave room for it: the
    budget as asked, else the one of the effort; `max` is all there is."""
    asked = reasoning.budget
    if asked is None:
        asked = _BUDGETS.get(effort_of(reasoning) or "medium", maximum)
    return min(max(asked, MIN_BUDGET), maximum)
