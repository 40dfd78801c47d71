"""The language of faults."""

from __future__ import annotations

import pytest

from tests.resilience.faults.fault_dsl import PlanError, parse_plan
from tests.resilience.faults.sample_replies import Place


def taken(plan: str, turns: int) -> list[str]:
    return [parse_plan(plan).step(turn).text for turn in range(turns)]


@pytest.mark.parametrize(
    ("plan", "steps"),
    [
        ("ok", ["ok", "ok", "ok", "ok"]),
        ("refuse:429:seconds=2,ok", ["refuse:429:seconds=2", "ok", "ok", "ok"]),
        ("2*refuse:500,ok", ["refuse:500", "refuse:500", "ok", "ok"]),
        ("fail:2,then:ok", ["refuse:503", "refuse:503", "ok", "ok"]),
        ("fail:1:529:overloaded,then:cut:end", ["refuse:529:overloaded", *["cut:end"] * 3]),
        ("refuse:500,ok,again", ["refuse:500", "ok", "refuse:500", "ok"]),
    ],
)
def test_a_plan_is_a_sequence(plan: str, steps: list[str]) -> None:
    assert taken(plan, 4) == steps


def test_values_and_options_are_converted_to_parameter_types() -> None:
    def play(
        call: None, place: Place, times: int = 1, *, pause: float | None = None, text: str = ""
    ) -> None: ...

    (step,) = parse_plan("name:end:3:pause=0.5:text=a=b").steps
    assert step.bound(play) == ([Place.END, 3], {"pause": 0.5, "text": "a=b"})


@pytest.mark.parametrize("plan", ["", ":500", "x*ok", "ok,,ok", "again"])
def test_invalid_plans_are_refused(plan: str) -> None:
    with pytest.raises(PlanError):
        parse_plan(plan)


@pytest.mark.parametrize("plan", ["f:nowhere", "f:end:three", "f:end:3:4", "f:end:pause=1"])
def test_invalid_parameters_are_refused(plan: str) -> None:
    def play(call: None, place: Place, times: int = 1) -> None: ...

    with pytest.raises(PlanError, match=plan):
        parse_plan(plan).steps[0].bound(play)
