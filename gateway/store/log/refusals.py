"""Which keys were refused how often and why, as far back as rows of the request log are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, literal_column, select

from gateway.store.database import Database
from gateway.store.log.expressions import sum_of
from gateway.store.log.pages import FAILED, first_id, timed_reader, use_failed_index
from gateway.store.log.usage import ROWS_TIMEOUT
from gateway.store.records import ExchangeState, started_us
from gateway.store.schema import requests

_IS_REFUSED: Final = requests.c.state == literal_column(f"'{ExchangeState.REJECTED}'")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalCount:
    """So many requests of a key were refused with this error code, the last one at that time (Unix
    µs) with that id."""

    token_id: str
    reason: str
    requests: int
    last_at: int
    last: str


async def count_refusals(
    database: Database, since: int, until: int, *, token_id: str | None = None, limit: int
) -> list[RefusalCount]:
    """The most frequent ones of requests that started from `since` to before `until` (Unix µs), of
    one key or of all. Only the index of failures is read. Raises QueryTimeout."""
    row = requests.c
    reason, count, last = func.coalesce(row.error_code, ""), sum_of(row.requests), func.max(row.id)
    of_key = [] if token_id is None else [row.token_id == token_id]
    query = (
        select(row.token_id, reason, count, last)
        .where(FAILED, _IS_REFUSED, *of_key)
        .where(row.id >= first_id(since), row.id < first_id(until))
        .group_by(row.token_id, reason)
        .order_by(count.desc(), last.desc())
        .limit(limit)
    )
    async with timed_reader(database, ROWS_TIMEOUT) as connection:
        found = (await connection.execute(use_failed_index(query))).all()
    return [
        RefusalCount(
            token_id=key, reason=why, requests=number, last_at=started_us(newest), last=newest
        )
        for key, why, number, newest in found
    ]
