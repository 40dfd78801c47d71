"""Days and months in UTC, compared with the standard library."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.quota.budgets import Period, day_of, format_utc, month_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2400, 1, 1), timezones=st.just(UTC))


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def at(text: str) -> int:
    return micros(datetime.fromisoformat(text))


@pytest.mark.parametrize(
    "moment",
    ["2026-11-21T00:00:00Z", "2026-11-21T00:00:00.000001Z", "2026-11-21T23:59:59.999999Z"],
)
def test_a_day_is_from_midnight_to_midnight(moment: str) -> None:
    assert day_of(at(moment)) == Period(at("2026-11-21T00:00Z"), at("2026-11-22T00:00Z"))


@pytest.mark.parametrize(
    ("moment", "begins", "ends"),
    [
        ("2026-11-01T00:00Z", "2026-11-01T00:00Z", "2026-12-01T00:00Z"),
        ("2026-12-31T23:59:59.999999Z", "2026-12-01T00:00Z", "2027-01-01T00:00Z"),
        ("2027-01-01T00:00Z", "2027-01-01T00:00Z", "2027-02-01T00:00Z"),
        ("2028-02-29T12:00Z", "2028-02-01T00:00Z", "2028-03-01T00:00Z"),
        ("2100-02-28T12:00Z", "2100-02-01T00:00Z", "2100-03-01T00:00Z"),
    ],
)
def test_a_month_is_a_calendar_month(moment: str, begins: str, ends: str) -> None:
    assert month_of(at(moment)) == Period(at(begins), at(ends))


@given(MOMENTS)
def test_periods_are_those_of_the_calendar(moment: datetime) -> None:
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight.replace(day=1)
    following = (first + timedelta(days=31)).replace(day=1)
    assert day_of(micros(moment)) == Period(micros(midnight), micros(midnight + timedelta(days=1)))
    assert month_of(micros(moment)) == Period(micros(first), micros(following))


def test_times_are_formatted_in_utc() -> None:
    assert format_utc(at("2026-11-22T00:00:00Z")) == "2026-11-22T00:00:00Z"
    assert format_utc(at("2026-01-02T03:04:05.999999Z")) == "2026-01-02T03:04:05Z"


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "XXX-13")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_the_local_time_zone_has_no_effect() -> None:
    moment = at("2026-11-30T23:00:00Z")
    assert month_of(moment) == Period(at("2026-11-01T00:00Z"), at("2026-12-01T00:00Z"))
    assert day_of(moment) == Period(at("2026-11-30T00:00Z"), at("2026-12-01T00:00Z"))
    assert format_utc(moment) == "2026-11-30T23:00:00Z"
