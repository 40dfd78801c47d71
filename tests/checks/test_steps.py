from __future__ import annotations

from itertools import chain

import pytest

from tests.checks.steps import Step, repetition, stages
from tests.support.paths import ROOT


def all_steps(*, full: bool) -> list[Step]:
    return [*chain.from_iterable(chain.from_iterable(stages(full=full)))]


@pytest.mark.parametrize("full", [False, True])
def test_steps_have_reports_and_caches_of_their_own(full: bool) -> None:
    steps = all_steps(full=full)
    assert len({step.output for step in steps}) == len({step.cache for step in steps}) == len(steps)
    named = {word for step in steps for word in step.command if word.startswith("tests/")}
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_kind_runs_in_a_full_check() -> None:
    """What one step leaves out by its marks, or does not import, another step runs."""
    steps = {step.name: step.command for step in all_steps(full=True)}
    assert steps["tests"][-1] == f"not ({steps['fleet'][-1]})"
    ignored = {word.removeprefix("--ignore=") for word in steps["tests"] if "--ignore=" in word}
    assert ignored == {steps["alone"][-1], steps["model"][-1]}
    assert not any("--change" in command for command in steps.values())


def test_a_repetition_has_the_options_of_its_step_and_one_process() -> None:
    (step,) = (step for step in all_steps(full=False) if step.name == "tests")
    again = repetition(step).command
    assert {"--change", "--last-failed"} <= set(again)
    assert not any(word.startswith(("-n", "--dist", "--junitxml")) for word in again)
