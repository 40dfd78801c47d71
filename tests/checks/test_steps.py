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
    """What one step leaves out by its marks another step runs."""
    (tests, fleet, alone) = (
        next(step for step in all_steps(full=True) if step.name == name)
        for name in ("tests", "fleet", "alone")
    )
    assert tests.command[-1] == f"not ({alone.command[-1]} or {fleet.command[-1]})"
    assert "--change" not in tests.command + fleet.command + alone.command


def test_a_repetition_has_the_options_of_its_step_and_one_process() -> None:
    (step,) = (step for step in all_steps(full=False) if step.name == "tests")
    again = repetition(step).command
    assert {"--change", "--last-failed"} <= set(again)
    assert not any(word.startswith(("-n", "--dist", "--junitxml")) for word in again)
