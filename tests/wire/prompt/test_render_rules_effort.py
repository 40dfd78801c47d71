"""Reasoning efforts and their budgets in tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.prompt import Reasoning
from gateway.core.target import EFFORTS
from gateway.wire.prompt.render_rules import MIN_BUDGET, budget_of, effort_of, nearest_effort


@pytest.mark.parametrize(
    ("reasoning", "expected"),
    [
        (None, None),
        (Reasoning(), None),
        (Reasoning(enabled=True), "medium"),
        (Reasoning(enabled=False, budget=2000), "none"),
        (Reasoning(effort="max", budget=1024), "max"),
        (Reasoning(effort="none"), "none"),
        (Reasoning(enabled=True, effort="ludicrous"), "medium"),
        (Reasoning(enabled=True, effort="ludicrous", budget=1), "low"),
        (Reasoning(budget=0), "none"),
        (Reasoning(budget=1024), "low"),
        (Reasoning(budget=1025), "medium"),
        (Reasoning(budget=8192), "medium"),
        (Reasoning(budget=8193), "high"),
        (Reasoning(budget=24576), "high"),
        (Reasoning(budget=24577), "xhigh"),
        (Reasoning(enabled=True, mode="adaptive"), "high"),
        (Reasoning(enabled=True, mode="adaptive", effort="low"), "low"),
        (Reasoning(mode="between_tools"), "medium"),
        (Reasoning(mode="some_day"), None),
    ],
)
def test_effort_of_every_kind_of_request(reasoning: Reasoning | None, expected: str | None) -> None:
    assert effort_of(reasoning) == expected


@pytest.mark.parametrize(
    ("effort", "supported", "expected"),
    [
        ("medium", EFFORTS, "medium"),
        ("xhigh", ("low", "medium", "high"), "high"),
        ("xhigh", ("high", "max"), "high"),
        ("minimal", ("low", "medium"), "low"),
        ("minimal", ("none", "low"), "low"),
        ("minimal", ("none",), "none"),
        ("none", ("none", "minimal"), "none"),
        ("none", ("high", "low"), "low"),
        ("high", (), None),
    ],
)
def test_nearest_effort(effort: str, supported: tuple[str, ...], expected: str | None) -> None:
    assert nearest_effort(effort, supported) == expected


@given(st.sampled_from(EFFORTS), st.sets(st.sampled_from(EFFORTS)))
def test_nearest_effort_exists_where_any_is_supported(effort: str, supported: set[str]) -> None:
    word = nearest_effort(effort, sorted(supported))
    assert (word in supported) if supported else (word is None)
    if effort in supported:
        assert word == effort
    assert word != "none" or effort == "none" or supported == {"none"}


@pytest.mark.parametrize(
    ("reasoning", "maximum", "expected"),
    [
        (Reasoning(budget=5000), 32000, 5000),
        (Reasoning(budget=5000), 4000, 4000),
        (Reasoning(budget=1), 4000, MIN_BUDGET),
        (Reasoning(effort="minimal"), 32000, 1024),
        (Reasoning(effort="low"), 32000, 1024),
        (Reasoning(effort="medium"), 32000, 8192),
        (Reasoning(effort="high"), 32000, 24576),
        (Reasoning(effort="xhigh"), 64000, 32768),
        (Reasoning(effort="max"), 63999, 63999),
        (Reasoning(enabled=True), 32000, 8192),
    ],
)
def test_budgets(reasoning: Reasoning, maximum: int, expected: int) -> None:
    assert budget_of(reasoning, maximum) == expected


@given(
    st.builds(
        Reasoning,
        effort=st.sampled_from(EFFORTS[1:]) | st.none(),
        budget=st.integers(0, 10**6) | st.none(),
        mode=st.sampled_from(["adaptive", "between_tools"]) | st.none(),
    ),
    st.integers(MIN_BUDGET, 10**6),
)
def test_budgets_are_within_limits(reasoning: Reasoning, maximum: int) -> None:
    assert MIN_BUDGET <= budget_of(reasoning, maximum) <= maximum
