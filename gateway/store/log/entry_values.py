"""Entries of the request log as values of JSON, for files that keep them until they are in the
database. A file names its fields, so that a later release can read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.store.records import AttemptRow, ExchangeState, LogEntry, RequestRow, SearchRow

ADVICE: Final = (
    "It keeps requests that are not in the database yet: restore it, or move it away and lose them"
)
"""What to do about a file of entries that cannot be read."""

FIELDS: Final = [list(record._fields) for record in (RequestRow, AttemptRow, SearchRow)]


def values_of(entry: LogEntry) -> list[Any]:
    row, attempts, searches = entry
    return [tuple(row), list(map(tuple, attempts)), list(map(tuple, searches))]


def entry_of(values: Sequence[Any], fields: Sequence[Sequence[str]]) -> LogEntry:
    """Makes an entry of what `values_of` returned where the fields were these."""
    row, attempts, searches = values
    of_row, of_attempt, of_search = fields
    decoded = RequestRow(**dict(zip(of_row, row, strict=True)))
    return LogEntry(
        decoded._replace(state=ExchangeState(decoded.state)),
        tuple(AttemptRow(**dict(zip(of_attempt, each, strict=True))) for each in attempts),
        tuple(SearchRow(**dict(zip(of_search, each, strict=True))) for each in searches),
    )


def is_of_later_release(fields: Sequence[Sequence[str]]) -> bool:
    """Returns whether there are fields that this release does not know."""
    return any(not set(found) <= set(own) for own, found in zip(FIELDS, fields, strict=True))
