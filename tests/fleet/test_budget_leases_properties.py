"""Replicas, requests, limits, the clock and the network in any order: no budget is exceeded, every
sum is that of the rows, and what was leased comes back.

A plan is drawn as a whole, as what a step finds depends on the time that servers take.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, note
from hypothesis import strategies as st

from gateway.core.limits import Cost, Limits
from gateway.fleet import budget_leases
from gateway.store.log import recorder
from gateway.store.postgresql import writer
from tests.fleet.broken_connections import Fault
from tests.fleet.lease_fleet import HOLDERS, KEYS, lease_fleet
from tests.fleet.lease_steps import DAY, HOUR, SECOND, STEP, Asked, Steps
from tests.support.hypothesis_profiles import examples

pytestmark = [pytest.mark.timeout(900), pytest.mark.servers]

MONTH_END = 1_796_083_200_000_000
"""2026-12-01T00:00:00Z."""

BUDGET = st.sampled_from(
    ["budget", "budget", "budget_5h", "budget_day", "budget_month", "budget_usd", "budget_usd_day"]
)
LIMITS = st.dictionaries(BUDGET, st.sampled_from([250, 250, 1_000, 3_000, 60, 0]), max_size=3).map(
    lambda limits: Limits(**limits)
)
COSTS = st.builds(Cost, st.sampled_from([0, 1, 7, 25, 40, 100]), st.sampled_from([0, 0, 1, 30]))
NUMBER = st.integers(0, 99)
"""Chooses among what there is."""
PART = st.sampled_from([0.0, 0.3, 1.0, 1.0])
ASKED = st.lists(
    st.builds(
        Asked,
        replica=NUMBER,
        key=st.sampled_from(KEYS),
        cost=COSTS,
        longest=st.integers(1, 3),
        ago=st.sampled_from([0, 0, 0, SECOND, 100 * SECOND]),
        part=PART | st.none(),
    ),
    min_size=4,
    max_size=20,
)
MESSAGES = st.sampled_from(
    [
        (True, b"BEGIN"),
        (True, b"replicas WHERE epoch"),
        (True, b"COMMIT"),
        (True, b"COMMIT"),
        (False, b"record_entries"),
        (False, b"req_"),
        (False, b"req_"),
        (False, b"COMMIT"),
    ]
)
"""Of leases, else of rows."""

STEPS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "requests": {"asked": ASKED, "seconds": st.sampled_from([0.0, 0.0, 0.06])},
    "requests_at_one": {"number": NUMBER, "asked": ASKED},
    "connections_break": {
        "breaks": st.dictionaries(
            NUMBER, st.tuples(MESSAGES, st.sampled_from(Fault)), min_size=1, max_size=4
        ),
        "asked": ASKED,
        "ended": st.lists(st.tuples(NUMBER, PART), max_size=4),
    },
    "replies_grow": {
        "chosen": st.lists(st.tuples(NUMBER, st.integers(1, 120)), min_size=1, max_size=4)
    },
    "requests_end": {"chosen": st.lists(st.tuples(NUMBER, PART), min_size=1, max_size=8)},
    "one_costs_more": {"number": NUMBER, "beyond": st.integers(1, 60)},
    "rounds": {"seconds": st.sampled_from([0.03, 0.2])},
    "limits_change": {
        "holder": st.sampled_from(HOLDERS),
        "limits": LIMITS,
        "known_to": st.sets(NUMBER, max_size=3),
    },
    "all_know_the_limits": {},
    "a_key_moves": {"key": st.sampled_from(KEYS), "group": st.sampled_from(["default", "other"])},
    "time_passes": {
        "unit": st.sampled_from([STEP, HOUR, 5 * HOUR + STEP, DAY]),
        "before": st.booleans(),
    },
    "network_hangs_or_is_mended": {
        "number": NUMBER,
        "leases": st.booleans(),
        "rows": st.booleans(),
    },
    "a_replica_fails": {
        "number": NUMBER,
        "is_killed": st.booleans(),
        "is_removed": st.booleans(),
    },
    "a_replica_expires": {"number": NUMBER, "is_killed": st.booleans()},
    "a_replica_comes_back": {"number": NUMBER, "is_removed": st.booleans()},
}
PLAN = st.lists(
    st.one_of(
        [
            st.tuples(st.just(name), st.fixed_dictionaries(arguments))
            for name, arguments in STEPS.items()
        ]
    ),
    min_size=10,
    max_size=25,
)


@pytest.fixture(autouse=True, scope="module")
def faster() -> Iterator[None]:
    """Everything that waits does so for a tenth of the time, or less."""
    with pytest.MonkeyPatch.context() as patch:
        for name, seconds in (
            ("TICK", 0.05),
            ("_AHEAD", 18.0),
            ("_HOLD", 3.0),
            ("_CONTENDED", 0.1),
            ("_REFRESH", 0.2),
            ("_IN_USE", 0.5),
            ("_MAX_OUTAGE", 0.3),
        ):
            patch.setattr(budget_leases, name, seconds)
        patch.setattr(writer, "_TIMEOUT", 0.5)
        patch.setattr(recorder, "_RETRY_DELAYS", (0.02, 0.05, 0.1))
        for name in ("gateway.fleet.budget_leases", "gateway.store.log.recorder"):
            patch.setattr(logging.getLogger(name), "disabled", True)
        yield


@pytest.mark.slow("tries plans of several replicas on a real server")
@examples(0.2, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    replicas=st.integers(2, 4),
    before=st.sampled_from([SECOND, 20 * SECOND, 2 * HOUR, 40 * HOUR]),
    limits=st.lists(LIMITS, min_size=len(HOLDERS), max_size=len(HOLDERS)),
    may_exceed=st.booleans(),
    plan=PLAN,
)
def test_no_budget_is_exceeded_and_nothing_is_lost(
    replicas: int,
    before: int,
    limits: list[Limits],
    may_exceed: bool,
    plan: list[tuple[str, dict[str, Any]]],
) -> None:
    """It begins `before` the end of a month. `may_exceed`: requests may cost more than they have
    reserved."""

    async def live() -> None:
        async with asyncio.timeout(120), lease_fleet(MONTH_END - before) as fleet:
            steps = Steps(fleet, dict(zip(HOLDERS, limits, strict=True)))
            for number in range(replicas):
                await fleet.start("abcd"[number], steps.limits)
            for name, arguments in plan:
                note(f"{name} {arguments}")
                if name == "one_costs_more" and not may_exceed:
                    continue
                await getattr(steps, name)(**arguments)
                for line in await steps.check():
                    note(line)
            await steps.rest()

    asyncio.run(live())
