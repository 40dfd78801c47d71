"""What one key has used, which is read without the rows of other keys, and its newest failures, for
which the index of all failures is searched."""

from __future__ import annotations

from typing import Final

from sqlalchemy import literal_column, select

from gateway.store.database import Database
from gateway.store.log.expressions import HOURS_OF_A_DAY, sum_of
from gateway.store.log.pages import FAILED, first_id, timed_reader, use_failed_index
from gateway.store.log.usage import UsageRow, date_of
from gateway.store.records import DAY_US, HOUR_US, ExchangeState, RequestRow
from gateway.store.schema import requests, usage_hours

COUNTS: Final = ("requests", "errors", "input_tokens", "output_tokens", "cost_micro", "usd_micro")
"""The counts that are read: each takes its time."""

_HOURS: Final = DAY_US // HOUR_US
_NOT_OF_CLIENT: Final = requests.c.state != literal_column(f"'{ExchangeState.CLIENT_GONE}'")


async def usage_of_key(
    database: Database, token_id: str, first_day: int, last_day: int
) -> list[UsageRow]:
    """The usage by day and model, both days (Unix days) included. Hours are stated one by one: the
    key's row of each is looked up, and those of other keys are not read."""
    hour = usage_hours.c.hour
    day = (hour // HOURS_OF_A_DAY).label("day")
    hours = range(first_day * _HOURS, (last_day + 1) * _HOURS)
    counts = [sum_of(usage_hours.c[name]).label(name) for name in COUNTS]
    query = (
        select(day, usage_hours.c.model, *counts)
        .where(hour.in_(hours))
        .where(usage_hours.c.token_id == token_id)
        .group_by(day, usage_hours.c.model)
        .order_by(day, usage_hours.c.model)
    )
    async with timed_reader(database) as connection:
        rows = (await connection.execute(query)).all()
    return [UsageRow(**dict(row._mapping) | {"day": date_of(row.day)}) for row in rows]


async def failures_of_key(
    database: Database, token_id: str, now: int, limit: int, days: int
) -> list[RequestRow]:
    """The newest requests of these days that failed or were rejected, without those that the client
    has abandoned. Raises QueryTimeout."""
    since = first_id(now - days * DAY_US)
    ids = use_failed_index(
        select(requests.c.id)
        .where(FAILED, _NOT_OF_CLIENT, requests.c.token_id == token_id, requests.c.id >= since)
        .order_by(requests.c.id.desc())
        .limit(limit)
    )
    query = select(requests).where(requests.c.id.in_(ids.scalar_subquery()))
    async with timed_reader(database) as connection:
        rows = (await connection.execute(query.order_by(requests.c.id.desc()))).all()
    return [RequestRow._make(row)._replace(state=ExchangeState(row.state)) for row in rows]
