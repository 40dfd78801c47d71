"""Refused requests beyond a rate: few rows, exact totals."""

from __future__ import annotations

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.log import pages
from gateway.store.log.integrity import check
from gateway.store.log.merged_rejections import OWN_ROWS, Refusals
from gateway.store.log.overview import overview
from gateway.store.log.recorder import Recorder
from gateway.store.records import HOUR_US, ExchangeState, RequestRow
from tests.store.sample_rows import settlement


def refused(number: int, **changes: object) -> RequestRow:
    outcome = {"state": ExchangeState.REJECTED, "status": 429, "error_code": "rate_limit_exceeded"}
    nothing = {"input_tokens": 0, "output_tokens": 0, "first_event_us": None, "channel": None}
    row = settlement(number, **(outcome | nothing | changes))
    return row._replace(id=f"{pages.first_id(row.started_at)}{number:010x}")


def test_rows_of_their_own_up_to_a_number() -> None:
    refusals = Refusals()
    assert not any(refusals.merge(refused(number)) for number in range(OWN_ROWS))
    assert not any(refusals.merge(refused(number, token_id="other")) for number in range(OWN_ROWS))
    assert refusals.end_window() == []
    assert not refusals.merge(refused(0))


def test_later_ones_are_merged_by_what_is_counted() -> None:
    refusals = Refusals()
    for number in range(OWN_ROWS):
        refusals.merge(refused(number))
    changes = [
        {},
        {"endpoint": "/v1/models/1", "model": "invented", "client_address": "10.0.0.1"},
        {"error_code": "insufficient_quota"},
        {"catalog_model": "beta-5.4"},
        {"started_at": 5 * HOUR_US},
    ]
    for number, each in enumerate(changes, OWN_ROWS):
        assert refusals.merge(refused(number, **each))
    assert len(refusals) == 4
    first, *others = refusals.end_window()
    assert (first.requests, first.endpoint, first.id) == (
        2,
        "/v1/models/1",
        refused(OWN_ROWS + 1).id,
    )
    assert [row.requests for row in others] == [1, 1, 1]


async def test_totals_count_every_one(database: Database, recorder: Recorder) -> None:
    for number in range(500):
        recorder.record_settlement(refused(number))
    recorder.record_settlement(settlement(500))
    await recorder.close()
    rows = await pages.page(database, limit=1000)
    assert len(rows) == OWN_ROWS + 2
    merged = next(row for row in rows if row.requests > 1)
    assert (merged.requests, merged.id) == (500 - OWN_ROWS, refused(499).id)
    (token,) = await tokens.all_tokens(database)
    assert token.requests == 501
    report = await check(database, boot_id=recorder.boot_id)
    assert report.ok
    found = await overview(database, rows[-1].started_at, rows[0].started_at + 1)
    assert (found.whole.requests, found.whole.errors) == (501, 500)
    assert [(each.what, each.count) for each in found.failures] == [("rate_limit_exceeded", 500)]


def test_a_merged_row_states_what_all_of_its_requests_state() -> None:
    refusals = Refusals()
    for number in range(OWN_ROWS):
        refusals.merge(refused(number))
    for number, user in enumerate(("alice", "bob", "bob"), OWN_ROWS):
        assert refusals.merge(refused(number, end_user=user, tag="nightly"))
    (row,) = refusals.end_window()
    assert (row.requests, row.end_user, row.tag) == (3, None, "nightly")
