"""What each name in a plan does to a request: `SCENARIOS` has them all.

Where a scenario speaks of a stream and none is asked for, it does the like to the body; what is no
request for a reply (models, counts) is refused, broken and held up all the same. Independent of
who asks, nor keep anything from one request to the next.
"""

from __future__ import annotations

from tests.resilience.faults import (
    disconnect_scenarios,
    error_scenarios,
    odd_successes,
    timing_scenarios,
)
from tests.resilience.faults.fault_dsl import PlanError, Step
from tests.resilience.faults.scenario_registry import SCENARIOS
from tests.support.upstream import ReceivedRequest

ROOMS = (timing_scenarios, disconnect_scenarios, error_scenarios, odd_successes)
"""Where they are entered."""


async def play_step(call: ReceivedRequest, step: Step) -> None:
    """Raises `PlanError` where the step names nothing or its words do not fit."""
    if step.name not in SCENARIOS:
        raise PlanError(f"{step.text}: no such scenario")
    play = SCENARIOS[step.name]
    values, options = step.bound(play)
    await play(call, *values, **options)
