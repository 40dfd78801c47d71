"""Terms of statements on the request log that both databases take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Insert,
    Table,
    Update,
    case,
    cast,
    func,
    literal,
    literal_column,
    or_,
    update,
)

from gateway.store.records import HOUR_US, TOKEN_TOTALS, USAGE_COUNTS, ExchangeState
from gateway.store.schema import requests, tokens

IS_RUNNING = requests.c.state == literal_column(f"'{ExchangeState.RUNNING}'")
"""A literal: with a parameter SQLite could not use the partial index."""

HOUR_KEY: Mapping[str, ColumnElement[Any]] = {
    # Literals: a server would take two parameters for two different expressions.
    "hour": requests.c.started_at // literal(HOUR_US, literal_execute=True),
    "token_id": requests.c.token_id,
    "group_name": requests.c.group_name,
    "model": func.coalesce(requests.c.catalog_model, literal("", literal_execute=True)),
}
"""The key of the hourly sums that a row of `requests` is counted in."""

_HAS_REPLY = requests.c.first_event_us.is_not(None)
ROW_COUNTS: Mapping[str, ColumnElement[Any]] = {
    **{name: requests.c[name] for name in USAGE_COUNTS if name in requests.c},
    "errors": case((requests.c.state != ExchangeState.OK, requests.c.requests), else_=0),
    "estimated": case((requests.c.usage_source == "estimated", 1), else_=0),
    "first_events": case((_HAS_REPLY, 1), else_=0),
    "total_us": case((_HAS_REPLY, requests.c.total_us)),
}
"""What a settled row adds to the counts of the sums that it is counted in."""


HOURS_OF_A_DAY = literal(24, literal_execute=True)
"""A literal: a server would take two parameters for two different expressions."""


def sum_of(column: ColumnElement[int]) -> ColumnElement[int]:
    """An integer, 0 of no rows: a server's own sums are decimal numbers, or null."""
    return cast(func.coalesce(func.sum(column), 0), BigInteger)


def id_between(
    id_: ColumnElement[str],
    *,
    first: Iterable[str | None] = (),
    end: Iterable[str | None] = (),
    after: str | None = None,
) -> Iterator[ColumnElement[bool]]:
    """From the last of `first` on and after `after`, to before the first of `end`, as far as they
    are given. At most one condition on each side: of two, SQLite would look up one, and read all
    rows between it and the other."""
    least = max((each for each in first if each is not None), default=None)
    if after is not None and (least is None or after >= least):
        yield id_ > after
    elif least is not None:
        yield id_ >= least
    if (greatest := min((each for each in end if each is not None), default=None)) is not None:
        yield id_ < greatest


def insert_into(connection: Connection, table: Table) -> Any:
    """An insertion that has `excluded`, of the connection's database: a process does not load what
    is for the other one."""
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def add_to_row(insertion: Any) -> Insert:
    """Make an insertion, of a dialect that has `excluded`, add to the row of the same key, if there
    is one."""
    into = insertion.table
    key = into.primary_key.columns
    added = {
        column.name: column + insertion.excluded[column.name]
        for column in into.columns
        if column.name not in key
    }
    upsert: Insert = insertion.on_conflict_do_update(index_elements=list(key), set_=added)
    return upsert


def add_to_token(terms: Mapping[str, Any]) -> Update:
    """Add to a token's totals; the terms are the fields of a TokenDelta."""
    used_at = terms["used_at"]
    later = or_(tokens.c.last_used_at.is_(None), tokens.c.last_used_at < used_at)
    return (
        update(tokens)
        .where(tokens.c.id == terms["token_id"])
        .values({name: tokens.c[name] + terms[name] for name in TOKEN_TOTALS})
        .values(last_used_at=case((later, used_at), else_=tokens.c.last_used_at))
    )
