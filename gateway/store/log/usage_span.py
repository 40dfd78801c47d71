"""The sums of a span of hours, to be grouped: from the hourly sums, or from those of whole days if
the database has any and these will do."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Select, select

from gateway.store.database import Database
from gateway.store.records import USAGE_COUNTS
from gateway.store.schema import usage_hours

END: Final = 2**31 - 24
"""After every Unix hour."""

SUM_FIELDS: Final = ("token_id", "group_name", "model", *USAGE_COUNTS)


def sums_between(
    database: Database, since: int, until: int, *, whole_days: bool = False
) -> FromClause:
    """With the columns of `usage_hours`, from `since` to before `until` (Unix hours). `whole_days`:
    the hour is only needed for its day."""
    sums = database.sums_of_days(since, until) if whole_days else None
    if sums is not None:
        return sums
    return hours_since(since).where(usage_hours.c.hour < until).subquery()


def hours_since(since: int | ColumnElement[int]) -> Select[Any]:
    columns = (usage_hours.c[name] for name in ("hour", *SUM_FIELDS))
    return select(*columns).where(usage_hours.c.hour >= since)
