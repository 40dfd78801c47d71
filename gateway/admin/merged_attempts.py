"""Merges rows of failed attempts to get access beyond a rate, so that a flood of them does not fill
the disk: in each window some have rows of their own, later ones share a row by kind and client."""

from __future__ import annotations

from typing import Final

from gateway.store.records import AuditRow

WINDOW: Final = 600 * 1_000_000
"""Microseconds."""
OWN_ROWS: Final = 20
"""Of a window."""
MERGED_ROWS: Final = 20
"""Of a window; attempts of further clients share a row by kind, without an address."""


class MergedAttempts:
    """Attempts of the current window, which begins with an attempt."""

    def __init__(self) -> None:
        self._began: int | None = None
        self._own = 0
        self._merged: dict[tuple[str | None, ...], AuditRow] = {}

    def add(self, row: AuditRow) -> list[AuditRow]:
        """The rows to write now."""
        rows = self.end_window(row.at)
        if self._began is None:
            self._began = row.at
        self._own += 1
        if self._own <= OWN_ROWS:
            return [*rows, row]
        key: tuple[str | None, ...] = (row.action, row.actor, row.address)
        if key not in self._merged and len(self._merged) >= MERGED_ROWS:
            row = row._replace(actor="several", address=None, target=None)
            key = (row.action,)
        if (earlier := self._merged.get(key)) is not None:
            row = row._replace(times=earlier.times + 1)
        self._merged[key] = row
        return rows

    def end_window(self, now: int | None = None) -> list[AuditRow]:
        """The merged rows, if the window has ended at `now`, or of any window without `now`."""
        is_running = now is not None and self._began is not None and 0 <= now - self._began < WINDOW
        if self._began is None or is_running:
            return []
        rows = list(self._merged.values())
        self._began, self._own = None, 0
        self._merged.clear()
        return rows
