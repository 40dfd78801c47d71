"""Failed attempts beyond a rate share rows."""

from __future__ import annotations

from gateway.admin.access.audit import MERGED_ROWS, OWN_ROWS, WINDOW, MergedAttempts
from gateway.store.records import AuditRow

START = 1_700_000_000_000_000


def attempt(number: int, at: int = START, address: str = "192.0.2.1") -> AuditRow:
    return AuditRow(f"aud_{number}", at, "unknown", address, "sign_in.failed", None, None, None)


def test_a_few_have_rows_of_their_own() -> None:
    merged = MergedAttempts()
    rows = [attempt(number) for number in range(OWN_ROWS)]
    assert [row for each in rows for row in merged.add(each)] == rows
    assert merged.end_window() == []


def test_a_flood_has_few_rows_which_count_it() -> None:
    merged = MergedAttempts()
    written = []
    for number in range(10_000):
        address = f"198.51.{number % 200}.1"
        written += merged.add(attempt(number, START + number, address))
    written += merged.end_window()
    assert len(written) == OWN_ROWS + MERGED_ROWS + 1
    assert sum(row.times for row in written) == 10_000
    (others,) = [row for row in written if row.actor == "several"]
    assert others.address is None


def test_a_window_ends_with_the_next_attempt_or_when_asked() -> None:
    merged = MergedAttempts()
    for number in range(OWN_ROWS + 5):
        merged.add(attempt(number))
    assert merged.end_window(START + WINDOW - 1) == []
    (earlier, first) = merged.add(attempt(100, START + WINDOW))
    assert (earlier.times, earlier.id) == (5, f"aud_{OWN_ROWS + 4}")
    assert first.id == "aud_100"
    for number in range(OWN_ROWS):
        merged.add(attempt(number, START + WINDOW))
    (row,) = merged.end_window(START + 2 * WINDOW)
    assert row.times == 1
    assert merged.end_window(START + 9 * WINDOW) == []


def test_a_clock_that_is_set_back_ends_the_window() -> None:
    merged = MergedAttempts()
    for number in range(OWN_ROWS + 1):
        merged.add(attempt(number))
    assert len(merged.add(attempt(50, START - 1))) == 2
