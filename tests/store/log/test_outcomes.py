"""The outcome of a row and the condition of it agree, for every state and code."""

from __future__ import annotations

import pytest

from gateway.store.database import Database
from gateway.store.log import pages
from gateway.store.log.outcomes import Outcome, outcome_of
from gateway.store.log.pages import LogFilter
from gateway.store.log.recorder import Recorder
from gateway.store.records import ExchangeState
from tests.store.sample_rows import settlement
from tests.support.databases import all_written


async def test_rows_of_each_outcome(database: Database, recorder: Recorder) -> None:
    """Every row has one outcome, and is found by it alone."""
    codes = (None, "rate_limit_exceeded", "permission_denied", "model_not_found")
    ended = [state for state in ExchangeState if state is not ExchangeState.RUNNING]
    kinds = [(state, code) for state in ended for code in codes]
    for number, (state, code) in enumerate(kinds):
        recorder.record_settlement(settlement(number, state=state, error_code=code))
    await all_written(recorder)
    found: list[tuple[str, Outcome]] = []
    for outcome in Outcome:
        rows = await pages.page(database, LogFilter(outcome=outcome), limit=100)
        assert rows
        assert {outcome_of(row.state, row.error_code) for row in rows} == {outcome}
        found += [(row.id, outcome) for row in rows]
    assert len(found) == len(dict(found)) == len(kinds)


@pytest.mark.parametrize(
    ("state", "code", "outcome"),
    [
        (ExchangeState.RUNNING, None, None),
        (ExchangeState.OK, None, Outcome.SUCCESS),
        (ExchangeState.INTERRUPTED, None, Outcome.UPSTREAM_ERROR),
        (ExchangeState.REJECTED, "model_not_found", Outcome.PERMISSION),
        (ExchangeState.REJECTED, "rate_limit_exceeded", Outcome.REJECTED),
        (ExchangeState.CLIENT_SLOW, None, Outcome.CLIENT_LEFT),
    ],
)
def test_outcomes(state: ExchangeState, code: str | None, outcome: Outcome | None) -> None:
    assert outcome_of(state, code) is outcome
