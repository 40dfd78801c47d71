"""Input estimates converge to the real usage, and stay above it."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.prompt import Prompt, Role, Turn
from gateway.quota.estimates import SAFETY_MARGIN, SAMPLES, InputEstimates

MODEL = "beta-5.4"


def prompt(letters: int) -> Prompt:
    turn = Turn(Role.USER, (Text("x" * letters),))
    return Prompt(format=Format.CHAT, model=MODEL, turns=(turn,))


def letters(prompt: Prompt) -> int:
    """The raw estimate of these tests: one token per character."""
    return sum(
        len(part.text) for turn in prompt.turns for part in turn.parts if isinstance(part, Text)
    )


@dataclass
class World:
    """A model whose requests use `ratio` times the raw estimate."""

    estimates: InputEstimates
    ratio: float

    def finish(self, size: int, ratio: float | None = None) -> None:
        used = round(size * (ratio or self.ratio))
        self.estimates.record(MODEL, prompt(size), used)

    def above(self, size: int = 100_000) -> float:
        """By which share the estimate is above the real usage."""
        return self.estimates.estimate(MODEL, prompt(size)) / (size * self.ratio) - 1


def world(ratio: float = 1.37) -> World:
    return World(InputEstimates(letters), ratio)


def test_without_samples_the_raw_estimate_has_a_margin() -> None:
    assert InputEstimates(letters).estimate(MODEL, prompt(1000)) == 1000 * SAFETY_MARGIN


@given(size=st.integers(0, 5), used=st.lists(st.integers(0, 100)))
def test_never_zero(size: int, used: list[int]) -> None:
    estimates = InputEstimates(letters)
    for tokens in used:
        estimates.record(MODEL, prompt(size), tokens)
    assert estimates.estimate(MODEL, prompt(0)) >= 1


@given(
    ratio=st.floats(0.3, 3.5), sizes=st.lists(st.integers(200, 9000), min_size=200, max_size=200)
)
def test_converges(ratio: float, sizes: list[int]) -> None:
    learning = world(ratio)
    for size in sizes:
        learning.finish(size)
    assert 0 <= learning.above() <= 0.08


def test_two_hundred_requests_are_enough() -> None:
    learning = world()
    for _ in range(200):
        learning.finish(500)
    assert 0 <= learning.above() <= 0.08


def test_a_few_real_requests_are_enough() -> None:
    learning = world()
    for _ in range(4):
        learning.finish(20_000)
    assert 0 <= learning.above() <= 0.08


@pytest.mark.parametrize("odd", [0.01, 0.3, 3.9, 1000])
def test_outliers_change_nothing(odd: float) -> None:
    learning = world()
    chance = random.Random(5)
    for _ in range(200):
        learning.finish(1000, odd if chance.random() < 0.25 else None)
    assert 0 <= learning.above() <= 0.08


def test_one_huge_outlier_changes_nothing() -> None:
    learning = world()
    for _ in range(20):
        learning.finish(3000)
    learning.finish(1_000_000, 3.5)
    assert 0 <= learning.above() <= 0.08


def test_scattered_requests_converge() -> None:
    learning = world()
    chance = random.Random(7)
    for _ in range(300):
        learning.finish(chance.randint(300, 8000), chance.gauss(1.37, 0.1))
    assert -0.01 <= learning.above() <= 0.09


def test_large_requests_have_more_weight() -> None:
    """A short prompt has 50 % overhead; that says nothing about large prompts."""
    learning = world(1.1)
    for _ in range(6):
        for _ in range(9):
            learning.finish(100, 1.6)
        learning.finish(50_000)
    assert 0 <= learning.above() <= 0.08


def test_a_changed_model_is_recalibrated() -> None:
    learning = world(0.8)
    for _ in range(200):
        learning.finish(1000)
    learning.ratio = 1.37
    for _ in range(SAMPLES):
        learning.finish(1000)
    assert 0 <= learning.above() <= 0.08


def test_models_are_separate() -> None:
    learning = world()
    for _ in range(100):
        learning.finish(5000)
    assert learning.estimates.estimate("beta-5.4-mini", prompt(1000)) == 1000 * SAFETY_MARGIN


@given(size=st.integers(0, 10**6), more=st.integers(0, 10**6), used=st.integers(1, 10**5))
def test_a_longer_prompt_never_counts_less(size: int, more: int, used: int) -> None:
    estimates = InputEstimates(letters)
    for _ in range(10):
        estimates.record(MODEL, prompt(10_000), used)
    shorter = estimates.estimate(MODEL, prompt(size))
    assert shorter <= estimates.estimate(MODEL, prompt(size + more))
