"""The sums of a span of hours, to be grouped: from the hourly sums, and on a server from those of
whole days where these will do, which are a twentieth as many."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Dialect, FromClause, Select, func, literal, select, union_all

from gateway.store.postgresql.schema import usage_days
from gateway.store.records import USAGE_COUNTS
from gateway.store.schema import usage_hours

END: Final = 2**31 - 24
"""After every Unix hour."""

_KEY: Final = ("token_id", "group_name", "model")
_HOURS_OF_A_DAY: Final = literal(24, literal_execute=True)


def sums_between(
    dialect: Dialect, since: int, until: int, *, whole_days: bool = False
) -> FromClause:
    """With the columns of `usage_hours`, from `since` to before `until` (Unix hours). `whole_days`:
    the hour is only needed for its day."""
    if dialect.name != "postgresql" or not whole_days:
        return _hours(since).where(usage_hours.c.hour < until).subquery()
    day = usage_days.c.day
    first, end = -(-since // 24), until // 24
    of_days = select(
        (day * _HOURS_OF_A_DAY).label("hour"),
        *(usage_days.c[name] for name in (*_KEY, *USAGE_COUNTS)),
    ).where(day >= first, day < end)
    # The hours of the days that are not there yet: one statement sees both as of one moment.
    complete = select(func.coalesce(func.max(day) + 1, 0)).scalar_subquery()
    rest = func.greatest(func.least(complete, end), first) * _HOURS_OF_A_DAY
    parts = [of_days, _hours(rest).where(usage_hours.c.hour < until)]
    if since < first * 24:
        parts.append(_hours(since).where(usage_hours.c.hour < min(first * 24, until)))
    return union_all(*parts).subquery()


def _hours(since: int | ColumnElement[int]) -> Select[Any]:
    columns = (usage_hours.c[name] for name in ("hour", *_KEY, *USAGE_COUNTS))
    return select(*columns).where(usage_hours.c.hour >= since)
