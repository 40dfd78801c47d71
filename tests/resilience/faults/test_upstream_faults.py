"""Every row of docs/faults.md about upstreams, in every format: who replies, or what is told, and
what the account and the ledger make of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
import pytest_asyncio

from gateway.core.formats import Format
from gateway.routing.circuit_breaker import HealthState
from gateway.routing.failure_policy import AccountPenalty
from gateway.store.records import ExchangeState
from tests.resilience.faults.billing_checks import assert_billed
from tests.resilience.faults.client_readers import assert_error, assert_error_in_stream, text_of
from tests.resilience.faults.outcomes import INVALID, Bill, ClientError
from tests.resilience.faults.two_accounts import (
    ALONE,
    FAULTY,
    SOUND,
    Outcome,
    Pool,
    arranged,
    ask_both,
)
from tests.resilience.faults.upstream import FaultUpstream, fault_upstream
from tests.resilience.faults.upstream_faults import FAULTS, By, Fault
from tests.support.gateway import RunningGateway, run_gateway
from tests.support.paths import STREAMS

SOUND_TEXT = orjson.loads((STREAMS / "text_unicode" / "messages.json").read_bytes())["content"][0][
    "text"
]
STATES = {
    AccountPenalty.NONE: HealthState.HEALTHY,
    AccountPenalty.FAILURE: HealthState.HEALTHY,
    AccountPenalty.RATE_LIMITED: HealthState.RATE_LIMITED,
    AccountPenalty.CIRCUIT_OPEN: HealthState.CIRCUIT_OPEN,
    AccountPenalty.AUTH_FAILED: HealthState.AUTH_FAILED,
}

pytestmark = [pytest.mark.timeout(60), pytest.mark.asyncio(loop_scope="module")]


@dataclass(frozen=True, slots=True)
class Place:
    gateway: RunningGateway
    upstream: FaultUpstream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with (
        fault_upstream() as upstream,
        run_gateway(tmp_path_factory.mktemp("faults"), []) as gateway,
    ):
        yield Place(gateway, upstream)


def cases() -> Iterator[Any]:
    for fault in FAULTS:
        for format in fault.formats:
            for streamed in fault.mode.streamed:
                name = f"{fault.what}-{format}-{'stream' if streamed else 'whole'}"
                yield pytest.param(fault, format, streamed, id=name.replace("`", ""))


@pytest.mark.parametrize(("fault", "format", "streamed"), [*cases()])
async def test_fault(place: Place, fault: Fault, format: Format, streamed: bool) -> None:
    gateway, upstream = place.gateway, place.upstream
    async with arranged(
        gateway,
        upstream,
        format,
        plan=fault.plan or "ok",
        on=fault.line,
        timeouts=fault.timeouts,
    ):
        pool = await ask_both(gateway, upstream, format, stream=streamed, warm=fault.warm)
    await check_client(fault, format, streamed, pool)
    check_attempts(fault, pool)
    check_account(fault, pool)
    check_row(fault, format, pool.with_another, FAULTY, fault.by)
    check_row(fault, format, pool.alone, ALONE, _alone_by(fault))


def _alone_by(fault: Fault) -> By:
    return By.SAME if fault.alone_tries[-1] == "ok" else By.NONE


async def check_client(fault: Fault, format: Format, streamed: bool, pool: Pool) -> None:
    for outcome, by in ((pool.with_another, fault.by), (pool.alone, _alone_by(fault))):
        answer = outcome.answer
        if by is By.NONE:
            assert fault.error is not None
            if fault.in_band:
                events = await assert_error_in_stream(answer, format, fault.error, fault.passed_on)
                assert SOUND_TEXT[:3] not in events, "two replies in one"
            else:
                await assert_error(answer, format, fault.error, vague=fault.vague)
        else:
            text = await text_of(answer, format, streamed=streamed)
            if by is By.OTHER:
                assert text == SOUND_TEXT
            elif fault.text is not None:
                assert text == fault.text
        assert answer.headers["x-gateway-attempts"] == _made(fault, outcome)


def _made(fault: Fault, outcome: Outcome) -> str:
    """An answer tells how many attempts were made before its head left."""
    return str(len(outcome.attempts))


def check_attempts(fault: Fault, pool: Pool) -> None:
    on_other = ("ok",) if fault.by is By.OTHER else ()
    assert pool.with_another.verdicts == fault.tries + on_other
    assert pool.alone.verdicts == fault.alone_tries
    made = pool.with_another.attempts
    assert [attempt.account for attempt in made] == [
        *[FAULTY] * len(fault.tries),
        *[SOUND] * len(on_other),
    ]
    steps = [attempt.next for attempt in made]
    here = ["same account"] * (len(fault.tries) - 1)
    last = {By.OTHER: ["other account", None], By.SAME: [None], By.NONE: ["told the client"]}
    assert steps == here + last[fault.by]
    assert len(pool.sound_calls) == len(on_other)
    if not fault.line:
        assert len(pool.with_another.calls) == (fault.calls or len(fault.tries))
        assert len(pool.alone.calls) == (fault.calls or len(fault.alone_tries))


def check_account(fault: Fault, pool: Pool) -> None:
    """Both accounts, unless a later try has put it right."""
    failed = sum(word not in ("ok", "answers streams alone") for word in fault.tries)
    report = pool.with_another.report
    assert report.status.state is STATES[fault.effect]
    assert report.failed == (0 if fault.effect is AccountPenalty.NONE else failed)
    if fault.closed is not None:
        until = report.status.until - fault.closed
        assert pool.before - fault.vague <= until <= pool.after + fault.vague
    if _alone_by(fault) is By.NONE:
        assert pool.alone.report.status.state is STATES[fault.effect]
    else:
        assert pool.alone.report.status.state is HealthState.HEALTHY


def _codes(error: ClientError, format: Format) -> tuple[str | None, ...]:
    """An upstream of messages has no codes; what it refuses is passed on as it says it."""
    nameless = format is Format.MESSAGES and error.type == INVALID
    return (error.code, None) if nameless else (error.code,)


def check_row(fault: Fault, format: Format, outcome: Outcome, failing: str, by: By) -> None:
    row = outcome.row
    if by is By.NONE:
        assert fault.error is not None
        cut = fault.in_band and fault.tries == ("broken off",)
        assert row.state is (ExchangeState.UPSTREAM_CUT if cut else ExchangeState.ERROR)
        assert row.status == (200 if fault.in_band else fault.error.status)
        assert row.error_code in _codes(fault.error, format)
        assert row.account == failing
    else:
        assert (row.state, row.status) == (ExchangeState.OK, 200)
        assert (row.error_code, row.end_reason) == (None, "complete")
        assert row.account == (SOUND if by is By.OTHER else failing)
    bill = Bill.COUNTED if by is By.OTHER else fault.bill
    assert_billed(row, bill, broken_off=fault.in_band)
    assert row.attempts == len(outcome.attempts)
    assert "key-of-the" not in f"{row} {outcome.attempts}"
