"""Reading the rows of exchanges: pages, single rows, their attempts. It never writes.

Ids are time-ordered, so a page is a range of ids. This room must not know who looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from gateway.store.database import Database
from gateway.store.records import Attempted, ExchangeState, RequestRow
from gateway.store.schema import attempts as made
from gateway.store.schema import requests

LONGEST_PAGE = 1000


async def page(
    database: Database,
    *,
    limit: int = 50,
    before: str | None = None,
    after: str | None = None,
    token_id: str | None = None,
    group_name: str | None = None,
    model: str | None = None,
    channel: str | None = None,
    state: ExchangeState | None = None,
    status: int | None = None,
) -> list[RequestRow]:
    """At most `limit` rows (and LONGEST_PAGE) that match every filter given, newest first.

    `before` and `after` are ids and bound the page, themselves excluded: `before` the last row of
    a page is the next page. With `after` the page is the one that follows it most closely, so
    that a reader who goes on from its first row misses none.
    """
    wanted = {
        "token_id": token_id,
        "group_name": group_name,
        "model": model,
        "channel": channel,
        "state": state,
        "status": status,
    }
    query = select(requests).limit(max(1, min(limit, LONGEST_PAGE)))
    query = query.where(
        *(requests.c[k] == value for k, value in wanted.items() if value is not None)
    )
    if before is not None:
        query = query.where(requests.c.id < before)
    if after is not None:
        query = query.where(requests.c.id > after)
    query = query.order_by(requests.c.id.desc() if after is None else requests.c.id)
    async with database.reader.connect() as connection:
        result = await connection.execute(query)
    rows = [_row(fields) for fields in result.mappings()]
    return rows if after is None else rows[::-1]


async def get(database: Database, request_id: str) -> RequestRow | None:
    """The row of one exchange, or None."""
    async with database.reader.connect() as connection:
        result = await connection.execute(select(requests).where(requests.c.id == request_id))
    fields = result.mappings().one_or_none()
    return None if fields is None else _row(fields)


async def attempts(database: Database, request_id: str) -> list[Attempted]:
    """The attempts of one exchange in their order; none before it has ended."""
    columns = (made.c[name] for name in Attempted._fields)
    query = select(*columns).where(made.c.request_id == request_id).order_by(made.c.number)
    async with database.reader.connect() as connection:
        return [Attempted(*row) for row in await connection.execute(query)]


def _row(fields: Mapping[Any, Any]) -> RequestRow:
    return RequestRow(**{**fields, "state": ExchangeState(fields["state"])})
