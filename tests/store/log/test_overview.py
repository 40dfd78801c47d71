"""The overview adds up what the hours and the failures say, and tells every hour or day."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.store.database import Database
from gateway.store.log import pages
from gateway.store.log.overview import DAY_US, FailureGroup, align_span, overview
from gateway.store.log.recorder import Recorder
from gateway.store.log.usage import Metrics, Totals
from gateway.store.records import HOUR_US, ExchangeState
from tests.store.sample_rows import intent, settled

MONDAY = 20_700 * DAY_US


def record(recorder: Recorder, at: int, token_id: str = "tok_0", **changes: Any) -> None:
    """A whole exchange that began at a moment (Unix µs)."""
    model = changes.pop("catalog_model", "alpha-5")
    request_id = f"{pages.first_id(at)}{recorder.backlog:010x}"
    row = intent(0, token_id, id=request_id, started_at=at, catalog_model=model)
    recorder.record_settlement(settled(row, **changes))


@pytest.fixture
async def filled(database: Database, recorder: Recorder) -> Database:
    """Hour 1: two that went well, of 100 input tokens each. Hour 3: failures of three kinds."""
    record(recorder, MONDAY + HOUR_US, cost_micro=5)
    record(recorder, MONDAY + 2 * HOUR_US - 1, "tok_1", cost_micro=9, first_event_us=50_000)
    failed: dict[str, Any] = {
        "input_tokens": 0,
        "cache_read_tokens": 0,
        "first_event_us": None,
        "state": ExchangeState.ERROR,
        "catalog_model": None,
    }
    for number in range(3):
        at = MONDAY + 3 * HOUR_US + number
        record(recorder, at, error_code="server_is_overloaded", upstream_status=529, **failed)
    record(recorder, MONDAY + 4 * HOUR_US - 1, **failed | {"state": ExchangeState.CLIENT_GONE})
    record(
        recorder, MONDAY + 4 * HOUR_US, error_code="rate_limited", upstream_status=None, **failed
    )
    await recorder.close()
    return database


async def test_empty_hours_are_included(filled: Database) -> None:
    seen = await overview(filled, MONDAY + HOUR_US + 5, MONDAY + 4 * HOUR_US)
    assert (seen.since, seen.until, seen.step) == (MONDAY + HOUR_US, MONDAY + 4 * HOUR_US, HOUR_US)
    assert [(each.at, each.requests, each.errors) for each in seen.series] == [
        (MONDAY + HOUR_US, 2, 0),
        (MONDAY + 2 * HOUR_US, 0, 0),
        (MONDAY + 3 * HOUR_US, 4, 4),
    ]
    first = seen.series[0]
    assert (first.input_tokens, first.cached_share) == (200, 0.4)
    assert (first.mean_first_event_us, first.mean_total_us) == (200_000, 1_200_000)
    assert seen.whole == Metrics(
        requests=6,
        errors=4,
        input_tokens=200,
        cache_read_tokens=80,
        output_tokens=6 * 7,
        cost_micro=14,
        first_events=2,
        first_event_us=400_000,
        total_us=2_400_000,
    )


async def test_the_highest_usage_is_first(filled: Database) -> None:
    seen = await overview(filled, MONDAY, MONDAY + DAY_US)
    assert [(part.name, part.cost_micro, part.requests) for part in seen.keys] == [
        ("tok_1", 9, 1),
        ("tok_0", 5, 6),
    ]
    assert [(part.name, part.requests) for part in seen.models] == [("alpha-5", 2), ("", 5)]


async def test_failures_by_client_error(filled: Database) -> None:
    seen = await overview(filled, MONDAY, MONDAY + 4 * HOUR_US)
    last = [each for each in await pages.page(filled) if each.started_at < MONDAY + 4 * HOUR_US]
    assert seen.failures == (
        FailureGroup(what="server_is_overloaded", upstream_status=529, count=3, last=last[1].id),
        FailureGroup(what="client_gone", upstream_status=200, count=1, last=last[0].id),
    )
    later = await overview(filled, MONDAY + 4 * HOUR_US, MONDAY + 5 * HOUR_US)
    assert [(each.what, each.upstream_status) for each in later.failures] == [
        ("rate_limited", None)
    ]


async def test_long_spans_are_by_day(filled: Database) -> None:
    seen = await overview(filled, MONDAY - 3 * DAY_US, MONDAY + 5 * HOUR_US)
    assert [(each.at, each.requests) for each in seen.series] == [
        (MONDAY - 3 * DAY_US, 0),
        (MONDAY - 2 * DAY_US, 0),
        (MONDAY - DAY_US, 0),
        (MONDAY, 7),
    ]


async def test_an_empty_database(database: Database) -> None:
    seen = await overview(database, MONDAY, MONDAY)
    assert seen.whole == Metrics()
    assert (len(seen.series), seen.keys, seen.models, seen.failures) == (1, (), (), ())
    assert seen.whole.cached_share is seen.whole.mean_total_us is None
    assert Totals(requests=1).cached_share is None


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (1, 2, (0, HOUR_US, HOUR_US)),
        (HOUR_US, HOUR_US, (HOUR_US, 2 * HOUR_US, HOUR_US)),
        (HOUR_US, HOUR_US - 5, (HOUR_US, 2 * HOUR_US, HOUR_US)),
        (5, 3 * DAY_US + 5, (0, 3 * DAY_US + HOUR_US, HOUR_US)),
        (5, 3 * DAY_US + 6, (0, 4 * DAY_US, DAY_US)),
        (HOUR_US, 30 * DAY_US, (0, 30 * DAY_US, DAY_US)),
    ],
)
def test_widening(since: int, until: int, expected: tuple[int, int, int]) -> None:
    assert align_span(since, until) == expected
