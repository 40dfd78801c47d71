"""Merges refused requests of a key beyond a rate, so that a client that repeats a refused request
without end does not fill the disk.

Up to `OWN_ROWS` refusals of a key in a window of `WINDOW` seconds have rows of their own. Later
ones that are counted together (by key, group, model and hour, with the same outcome) share one row,
which is written at the end of the window, for nobody where they were for different people.
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import Any, Final

from gateway.store.records import DIMENSIONS, HOUR_US, RequestRow

OWN_ROWS: Final = 20
WINDOW: Final = 10.0

_kind = attrgetter("token_id", "group_name", "catalog_model", "status", "error_code")
"""The kind of a row, without what a client can invent: a refusal for each of a thousand paths would
not be merged."""


class Refusals:
    """Rejections of the current window."""

    def __init__(self) -> None:
        self._refused = Counter[str]()
        self._merged: dict[tuple[object, ...], RequestRow] = {}

    def __len__(self) -> int:
        """Counts the merged rows."""
        return len(self._merged)

    def merge(self, row: RequestRow) -> bool:
        """Whether the row was merged; else it is to be written."""
        self._refused[row.token_id] += 1
        if self._refused[row.token_id] <= OWN_ROWS:
            return False
        kind = (*_kind(row), row.started_at // HOUR_US)
        if (earlier := self._merged.get(kind)) is not None:
            unlike: dict[str, Any] = {
                name: None for name in DIMENSIONS if getattr(row, name) != getattr(earlier, name)
            }
            row = row._replace(requests=earlier.requests + 1, **unlike)
        self._merged[kind] = row
        return True

    def end_window(self) -> list[RequestRow]:
        """The merged rows; a new window begins."""
        rows = list(self._merged.values())
        self._merged.clear()
        self._refused.clear()
        return rows
