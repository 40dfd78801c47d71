"""Checks of what only a database server has: sums of days, spending by period."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Subquery, and_, func, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.log.costs import charged_hours
from gateway.store.log.expressions import HOURS_OF_A_DAY, sum_of
from gateway.store.log.integrity import compare
from gateway.store.postgresql.batch import GROUP, KEY
from gateway.store.postgresql.schema import spending, usage_days
from gateway.store.records import DAY_US, HOUR_US, USAGE_COUNTS, Discrepancy
from gateway.store.schema import usage_hours

_HOLDERS: Final = {KEY: charged_hours.c.token_id, GROUP: charged_hours.c.group_name}
_MONEY: Final = ("units", "usd")
_HOUR: Final = literal(HOUR_US, literal_execute=True)
_DAY: Final = literal(DAY_US, literal_execute=True)
_STARTS: Final[dict[str, ColumnElement[Any]]] = {
    "total": literal(0, literal_execute=True),
    "day": charged_hours.c.hour * _HOUR // _DAY * _DAY,
    "hour": charged_hours.c.hour * _HOUR,
}
"""The start of the period that an hour is in. Steps are shorter than the sums, and a month is the
sum of its days."""


def sums_of_days() -> tuple[Select[Any], Select[Any]]:
    """Selects the daily sums as they stand and as they are counted; each day as its first hour."""
    key = ("token_id", "group_name", "model")
    day = usage_hours.c.hour // HOURS_OF_A_DAY
    stands = select(
        (usage_days.c.day * HOURS_OF_A_DAY).label("hour"),
        *(usage_days.c[name] for name in (*key, *USAGE_COUNTS)),
    )
    counted = (
        select(
            (day * HOURS_OF_A_DAY).label("hour"),
            *(usage_hours.c[name] for name in key),
            *(sum_of(usage_hours.c[name]).label(name) for name in USAGE_COUNTS),
        )
        .where(day <= select(func.max(usage_days.c.day)).scalar_subquery())
        .group_by(day, *(usage_hours.c[name] for name in key))
    )
    return stands, counted


async def wrong_sums(connection: AsyncConnection, limit: int) -> list[Discrepancy]:
    """Sums of days, and spending, that are not the sums of their hours."""
    days = await compare(connection, usage_days, *sums_of_days())
    return days + [each async for each in _wrong_spending(connection, limit)]


async def _wrong_spending(connection: AsyncConnection, limit: int) -> AsyncIterator[Discrepancy]:
    """Yields what does not agree with the hourly sums. Only totals must exist: old periods may have
    been deleted."""
    for kind in _HOLDERS:
        for period in _STARTS:
            for row in await connection.execute(_differences(kind, period).limit(limit)):
                id_, start, *pairs = row
                where: dict[str, Any] = {"token_id" if kind == KEY else "group_name": id_}
                if period != "total":
                    where["hour"] = start // HOUR_US
                for name, stands, counted in zip(_MONEY, pairs[::2], pairs[1::2], strict=True):
                    if stands != counted:
                        column = f"spending.{period}.{name}"
                        yield Discrepancy(column=column, stands=stands, counted=counted, **where)


def _differences(kind: str, period: str) -> Select[Any]:
    """Holder, start, then units and dollars, as they stand and as they are counted."""
    stands = (
        select(spending).where(spending.c.holder_kind == kind, spending.c.period == period)
    ).subquery()
    counted = _counted(kind, period)
    is_same = and_(stands.c.holder_id == counted.c.holder_id, stands.c.start == counted.c.start)
    joined = stands.outerjoin(counted, is_same, full=period == "total")
    pairs = [
        (func.coalesce(stands.c[name], 0), func.coalesce(counted.c[name], 0)) for name in _MONEY
    ]
    key = [
        func.coalesce(stands.c[name], counted.c[name]).label(name)
        for name in ("holder_id", "start")
    ]
    return (
        select(*key, *(value for pair in pairs for value in pair))
        .select_from(joined)
        .where(or_(*(left != right for left, right in pairs)))
        .order_by(*key)
    )


def _counted(kind: str, period: str) -> Subquery:
    holder, start = _HOLDERS[kind].label("holder_id"), _STARTS[period].label("start")
    units = sum_of(charged_hours.c.cost_micro).label("units")
    usd = sum_of(charged_hours.c.usd_micro).label("usd")
    grouped = select(holder, start, units, usd).group_by(
        holder, *([start] if period != "total" else [])
    )
    return grouped.subquery()
