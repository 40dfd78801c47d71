"""What an exchange comes to, by what was expected, heard and counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.admission.access import Permit
from gateway.config.load import parse_config
from gateway.core.events import Usage
from gateway.core.limits import FREE, Cost
from gateway.runtime import Snapshot
from gateway.server.record.billing import Bill, UsageMeter
from gateway.store.records import Group
from tests.store.sample_rows import START, token

MODEL = "beta-one"
EXPECTED = Usage(input_tokens=50, output_tokens=1_000)
PARTIAL = Usage(input_tokens=40, cache_read_tokens=30, output_tokens=1)
COUNTED = Usage(input_tokens=40, cache_read_tokens=30, output_tokens=6)
NOTHING = Bill(Usage(), "none", FREE, 0)

CONFIG = """
models: [{id: beta-one, family: beta, multiplier: 2, rates: {completion: 3, cache_read: 0.5}}]
channels: []
"""


class Stage:
    """A meter of an exchange that was let in, or would be."""

    def __init__(self, snapshot: Snapshot) -> None:
        group = Group("default", ("*",), START, multiplier="10")
        agents = snapshot.config.user_agents
        self.permit = Permit.for_token(
            token(), group, snapshot.router, snapshot.gateway_holder, agents
        )
        self.meter = UsageMeter(snapshot, START)

    def ask(self) -> UsageMeter:
        self.meter.demand(self.permit, MODEL, EXPECTED)
        self.meter.start_attempt()
        return self.meter


@asynccontextmanager
async def staged(money: str = "{}") -> AsyncIterator[Stage]:
    snapshot = Snapshot(parse_config(f"{CONFIG}money: {money}\n"))
    try:
        yield Stage(snapshot)
    finally:
        await snapshot.upstream.close()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


@pytest.fixture
async def strict() -> AsyncIterator[Stage]:
    """Of a gateway that bills nothing but what upstreams say."""
    async with staged("{bill_estimates: false}") as stage:
        yield stage


def spent(usage: Usage) -> int:
    """By hand: times 2 for the model and 10 for the group."""
    dear = 3 * usage.output_tokens + usage.fresh_input_tokens
    return int((dear + 0.5 * usage.cache_read_tokens) * 2 * 10 * 1_000_000)


async def test_the_demand_of_a_request(stage: Stage) -> None:
    demand = stage.meter.demand(stage.permit, MODEL, EXPECTED)
    assert demand.holders == stage.permit.holders
    assert (demand.started_at, demand.tokens) == (START, 1_050)
    assert demand.cost.units == spent(EXPECTED) == 61_000_000_000
    assert stage.meter.model == MODEL
    assert stage.meter.estimated_tokens == 50
    assert stage.meter.price is not None
    assert stage.meter.price.description == "model 2, group 10, completion 3, cache read 0.5"


async def test_free_requests_need_only_a_place(stage: Stage) -> None:
    demand = stage.meter.free_demand(stage.permit, MODEL)
    assert (demand.started_at, demand.tokens, demand.cost) == (START, 0, FREE)
    assert (stage.meter.model, stage.meter.price, stage.meter.estimated_tokens) == (MODEL, None, 0)
    stage.meter.start_attempt()
    stage.meter.mark_sent()
    for counted in (False, True):
        for committed in (False, True):
            bill = stage.meter.final_bill(committed=committed, failed=False)
            assert bill == NOTHING
        stage.meter.record_usage(None, 100, is_final=counted)


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("committed", [False, True])
async def test_the_upstreams_usage_is_billed(
    stage: Stage, strict: Stage, committed: bool, failed: bool
) -> None:
    for meter in (stage.ask(), strict.ask()):
        meter.record_usage(COUNTED, 9_999, is_final=True)
        bill = meter.final_bill(committed=committed, failed=failed)
        assert bill == Bill(COUNTED, "upstream", Cost(spent(COUNTED)), COUNTED.total_tokens)
        assert meter.final_usage == COUNTED


CASES = [
    # reported usage, characters of output, accepted, committed, failed, then what is billed
    (None, 0, False, False, False, None),
    (None, 0, False, False, True, None),
    (None, 0, True, False, True, None),
    (PARTIAL, 0, True, False, True, None),
    (None, 0, True, False, False, Usage(input_tokens=50)),
    (PARTIAL, 0, True, False, False, PARTIAL),
    (None, 43, True, False, False, Usage(input_tokens=50, output_tokens=10)),
    (None, 0, True, True, False, Usage(input_tokens=50, output_tokens=1)),
    (None, 3, True, True, False, Usage(input_tokens=50, output_tokens=1)),
    (None, 43, True, True, False, Usage(input_tokens=50, output_tokens=10)),
    (None, 43, True, True, True, Usage(input_tokens=50, output_tokens=10)),
    (PARTIAL, 3, True, True, False, PARTIAL),
    (PARTIAL, 24, True, True, True, COUNTED),
    (Usage(output_tokens=9), 43, True, True, False, Usage(input_tokens=50, output_tokens=10)),
]


@pytest.mark.parametrize(
    ("reported", "output_chars", "accepted", "committed", "failed", "used"), CASES
)
async def test_missing_usage_is_estimated(
    stage: Stage,
    reported: Usage | None,
    output_chars: int,
    accepted: bool,
    committed: bool,
    failed: bool,
    used: Usage | None,
) -> None:
    meter = stage.ask()
    if accepted:
        meter.mark_sent()
    meter.record_usage(reported, output_chars, is_final=False)
    bill = meter.final_bill(committed=committed, failed=failed)
    if used is None:
        assert bill == NOTHING
    else:
        assert bill == Bill(used, "estimated", Cost(spent(used)), used.total_tokens)
    assert meter.final_usage is None


@pytest.mark.parametrize(
    ("reported", "output_chars", "accepted", "committed", "failed", "used"), CASES
)
async def test_without_estimates_the_reported_usage_is_billed(
    strict: Stage,
    reported: Usage | None,
    output_chars: int,
    accepted: bool,
    committed: bool,
    failed: bool,
    used: Usage | None,
) -> None:
    meter = strict.ask()
    assert meter.estimated_tokens == 0
    if accepted:
        meter.mark_sent()
    meter.record_usage(reported, output_chars, is_final=False)
    bill = meter.final_bill(committed=committed, failed=failed)
    tokens = used.total_tokens if used is not None else 0
    if used is None or reported is None:
        assert bill == NOTHING._replace(tokens=tokens)
    else:
        assert bill == Bill(reported, "upstream", Cost(spent(reported)), tokens)


async def test_usage_of_an_earlier_attempt_does_not_count(stage: Stage) -> None:
    meter = stage.ask()
    meter.mark_sent()
    meter.record_usage(COUNTED, 400, is_final=True)
    meter.start_attempt()
    assert meter.final_usage is None
    assert meter.final_bill(committed=False, failed=False) == NOTHING
    meter.mark_sent()
    assert meter.final_bill(committed=False, failed=False).usage == Usage(input_tokens=50)


async def test_nothing_is_billed_before_the_upstream_accepts(stage: Stage) -> None:
    assert stage.meter.final_bill(committed=False, failed=True) == NOTHING
    assert stage.meter.final_bill(committed=True, failed=False).cost == FREE
