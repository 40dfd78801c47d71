"""Output estimates."""

from __future__ import annotations

from statistics import median_high

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.quota.estimates import DEFAULT_OUTPUT, SAMPLES, OutputEstimates


@pytest.mark.parametrize(
    ("max_tokens", "expected"), [(None, 1024), (16, 16), (1024, 1024), (1025, 1024), (0, 0)]
)
def test_without_replies(max_tokens: int | None, expected: int) -> None:
    assert DEFAULT_OUTPUT == 1024
    assert OutputEstimates().estimate("alpha-1", max_tokens) == expected


def test_the_median_up_to_max_tokens() -> None:
    outputs = OutputEstimates()
    outputs.record("alpha-1", 300)
    assert outputs.estimate("alpha-1", None) == outputs.estimate("alpha-1", 4096) == 300
    assert outputs.estimate("alpha-1", 299) == 299


def test_models_are_separate() -> None:
    outputs = OutputEstimates()
    outputs.record("alpha-1", 300)
    outputs.record("beta-1", 5000)
    assert outputs.estimate("alpha-1", None) == 300
    assert outputs.estimate("beta-1", None) == 5000
    assert outputs.estimate("beta-2", None) == 1024


def test_outliers_change_nothing() -> None:
    outputs = OutputEstimates()
    for tokens in (100, 90_000, 110, 0, 120):
        outputs.record("alpha-1", tokens)
    assert outputs.estimate("alpha-1", None) == 110


def test_of_two_the_longer_one_is_used() -> None:
    outputs = OutputEstimates()
    outputs.record("alpha-1", 400)
    outputs.record("alpha-1", 100)
    assert outputs.estimate("alpha-1", None) == 400


def test_only_the_newest_count() -> None:
    outputs = OutputEstimates()
    for tokens in [10] * 100 + [20] * 32:
        outputs.record("alpha-1", tokens)
    assert outputs.estimate("alpha-1", None) == 20


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=200))
def test_the_median_of_the_newest(tokens: list[int]) -> None:
    outputs = OutputEstimates()
    for each in tokens:
        outputs.record("alpha-1", each)
    assert SAMPLES == 64
    assert outputs.estimate("alpha-1", None) == median_high(tokens[-64:])


def test_the_longest_is_at_least_that_of_an_unknown_model() -> None:
    estimates = OutputEstimates()
    assert estimates.longest("m") == DEFAULT_OUTPUT
    estimates.record("m", 4)
    assert estimates.longest("m") == DEFAULT_OUTPUT
    estimates.record("m", 5000)
    estimates.record("m", 4)
    assert estimates.longest("m") == 5000


def test_a_limit_that_is_ignored_is_not_expected() -> None:
    """Until a reply ends at its limit again."""
    estimates = OutputEstimates()
    estimates.record("m", 75, 1)
    assert estimates.estimate("m", 1) == 75
    estimates.record("m", 5, 10)  # it ended before its limit: that tells nothing
    assert estimates.estimate("m", 1) == 75
    estimates.record("m", 10, 10)
    assert estimates.estimate("m", 1) == 1
