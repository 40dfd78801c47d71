"""What each name in a plan does to a request: `SCENARIOS` has them all.

Where a scenario speaks of a stream and none is asked for, it does the like to the body; what is no
request for a reply (models, counts) is refused, broken and held up all the same. It must not know
who asks, nor keep anything from one request to the next.
"""

from __future__ import annotations

from tests.faults import breaking, oddities, refusing, timing
from tests.faults.call import Call
from tests.faults.plan import PlanMistake, Step
from tests.faults.stage import SCENARIOS

ROOMS = (timing, breaking, refusing, oddities)
"""Where they are entered."""


async def play_step(call: Call, step: Step) -> None:
    """Raises `PlanMistake` where the step names nothing or its words do not fit."""
    if step.name not in SCENARIOS:
        raise PlanMistake(f"{step.text}: no such scenario")
    play = SCENARIOS[step.name]
    words, options = step.bound(play)
    await play(call, *words, **options)
