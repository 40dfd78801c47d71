"""The range of a query, and the addresses that keep it."""

from __future__ import annotations

import pytest

from gateway.console.time_range import PRESETS, RangeLinks, parse_range

NOW = 1_800_000_000_000_000
HOUR = 3_600_000_000
DAY = 24 * HOUR


def test_the_last_day_is_the_default() -> None:
    found = parse_range({}, NOW)
    assert (found.since, found.until) == (NOW - DAY, NOW)
    assert found.is_relative and found.error is None


@pytest.mark.parametrize("text", PRESETS)
def test_presets_are_ranges(text: str) -> None:
    found = parse_range({"since": text}, NOW)
    assert found.error is None and found.is_relative
    assert found.since < NOW == found.until


def test_a_custom_range() -> None:
    found = parse_range({"since": "2027-01-01", "until": "2027-01-02T12:00"}, NOW)
    assert found.until - found.since == 36 * HOUR
    assert not found.is_relative and found.error is None


@pytest.mark.parametrize(
    ("since", "until", "error"),
    [
        ("soon", "", "The range must be a date"),
        ("1h", "later", "The range must be a date"),
        ("1h", "2h", "The range has to begin before it ends"),
        ("2030-01-01", "2031-01-01", "The range has to begin before it ends"),
    ],
)
def test_an_invalid_range_is_the_default_with_an_error(since: str, until: str, error: str) -> None:
    found = parse_range({"since": since, "until": until}, NOW)
    assert (found.since, found.until) == (NOW - DAY, NOW)
    assert found.error is not None and found.error.startswith(error)


def test_links_keep_the_range_and_the_rest_of_the_query() -> None:
    query = {"since": "1h", "model": "a&b", "before": "req_1"}
    links = RangeLinks("/console/logs", query)
    assert links.carried == "?since=1h"
    assert links.others == {"model": "a&b"}
    title, path, is_current = links.presets("24h")[4]
    assert (title, path, is_current) == ("7 d", "/console/logs?model=a%26b&since=7d", False)
    assert [title for title, _, is_current in links.presets("24h") if is_current] == ["1 h"]


def test_without_a_range_the_default_is_the_current_one() -> None:
    links = RangeLinks("/console", {})
    assert links.carried == ""
    assert [title for title, _, is_current in links.presets("24h") if is_current] == ["24 h"]
    assert not any(is_current for *_, is_current in links.presets(""))
