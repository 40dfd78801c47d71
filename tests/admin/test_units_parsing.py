"""Parsed amounts, durations and times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import TypeAdapter

from gateway.admin.api.field_types import Budget, Count
from gateway.admin.units import parse_count, parse_duration, parse_time, parse_units

NOW = 1_790_000_000_000_000


def unix(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[arg-type, misc] # of the length that it takes


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("0", 0),
        ("1", 1_000_000),
        ("0.000001", 1),
        ("5M", 5_000_000_000_000),
        ("2.5k", 2_500_000_000),
        ("2.5K", 2_500_000_000),
        ("1G", 10**15),
        ("0.0000015M", 1_500_000),
    ],
)
def test_units(text: str, units: int) -> None:
    assert parse_units(text) == units


@pytest.mark.parametrize(
    "text", ["", "5m", "M", "-1", "+1", "1e6", "0.0000001", "1 000", "1,5", "inf", "٥", "1T"]
)
def test_invalid_units(text: str) -> None:
    with pytest.raises(ValueError, match="must be units such as 5M"):
        parse_units(text)


def test_too_large_values_are_refused_as_typed() -> None:
    assert (parse_units("1000G"), parse_count("1000G")) == (10**18, 10**12)
    budget, count = TypeAdapter(Budget), TypeAdapter(Count)
    assert budget.validate_python(parse_units("1000G"))
    assert count.validate_python(parse_count("1000G"))
    for read in (parse_units, parse_count):
        for text in ("1001G", "1000000000001", "999999999999999999G"):
            with pytest.raises(ValueError, match="must be at most 1000G"):
                read(text)


def test_counts_are_integers() -> None:
    assert (parse_count("600"), parse_count("1.5k"), parse_count("2M")) == (600, 1500, 2_000_000)
    for text in ("0.5", "1.0005k", "x"):
        with pytest.raises(ValueError, match="must be a whole number"):
            parse_count(text)


def test_durations() -> None:
    assert [parse_duration(text) for text in ("0", "90s", "5m", "24h", "30d", "2w")] == [
        *(0, 90, 300, 86_400, 2_592_000, 1_209_600)
    ]
    for text in ("", "5", "5y", "1.5h", "-1d", "999999999w"):
        with pytest.raises(ValueError, match="must be a duration"):
            parse_duration(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-31", unix(2026, 12, 31)),
        ("2026-12-31T12:30", unix(2026, 12, 31, 12, 30)),
        ("2026-12-31T12:30:00Z", unix(2026, 12, 31, 12, 30)),
        ("2026-12-31 12:30+02:00", unix(2026, 12, 31, 10, 30)),
        ("30d", NOW + 30 * 86_400_000_000),
        ("1900-01-01", 0),
    ],
)
def test_times(text: str, moment: int) -> None:
    assert parse_time(text, NOW, 1) == moment


def test_past_times() -> None:
    assert parse_time("7d", NOW, -1) == NOW - 7 * 86_400_000_000
    assert parse_time("4000w", NOW, -1) == 0
    today = datetime.fromtimestamp(NOW // 1_000_000, UTC).replace(hour=0, minute=0, second=0)
    assert parse_time("today", NOW, -1) == int(today.timestamp()) * 1_000_000
    assert parse_time("yesterday", NOW, -1) == int(today.timestamp() - 86_400) * 1_000_000
    with pytest.raises(ValueError, match="must be a date such as"):
        parse_time("today", NOW, 1)
    for text in ("", "soon", "2026-13-01", "12.31.2026"):
        with pytest.raises(ValueError, match="must be a date such as"):
            parse_time(text, NOW, -1)
