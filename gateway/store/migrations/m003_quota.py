"""Migration 3: what keys and groups may use, what everything costs, and sums by the hour.

Never edited once released: it says what it made in words of its own and must not know the
tables of today (`gateway.store.schema`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    false,
)
from sqlalchemy.schema import CreateColumn

_COUNTS = (
    "requests",
    "errors",
    "estimated",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost_micro",
)


def upgrade(connection: Connection, now: int) -> None:
    """Rows of before cost nothing. Of those that reached a channel the catalog's name of the model
    is not on record: it is taken to be the one that the client sent."""
    _add(connection, "tokens", _of_tokens())
    connection.exec_driver_sql("CREATE UNIQUE INDEX tokens_old_digest ON tokens (old_digest)")
    _add(connection, "groups", _of_groups())
    _add(connection, "requests", _of_requests())
    connection.exec_driver_sql(
        "UPDATE requests SET catalog_model = model WHERE channel IS NOT NULL"
    )
    _sums(connection)


def _add(connection: Connection, table: str, columns: list[Column[Any]]) -> None:
    for column in columns:
        described = CreateColumn(column).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {described}")


def _of_tokens() -> list[Column[Any]]:
    return [
        _count("cost_micro"),
        Column("note", Text),
        Column("expires_at", BigInteger),
        Column("probe", Boolean, nullable=False, server_default=false()),
        Column("models", Text),
        Column("addresses", Text),
        Column("user_agents", Text),
        *_limits(),
        Column("old_digest", LargeBinary),
        Column("old_display", Text),
        Column("old_expires_at", BigInteger),
        Column("first_used_at", BigInteger),
        Column("first_address", Text),
        Column("first_agent", Text),
        Column("changed_at", BigInteger),
        Column("changed", Text),
    ]


def _of_groups() -> list[Column[Any]]:
    return [
        Column("multiplier", Text, nullable=False, server_default="1"),
        *_limits(),
        Column("user_agents", Text),
        Column("user_agent_mode", Text, nullable=False, server_default="enforce"),
    ]


def _of_requests() -> list[Column[Any]]:
    return [
        Column("catalog_model", Text),
        _count("expected_input_tokens"),
        _count("expected_micro"),
        Column("tariff", Text),
        Column("notes", Text),
        _count("cache_write_1h_tokens"),
        _count("cost_micro"),
    ]


def _limits() -> list[Column[Any]]:
    return [
        Column("requests_per_minute", BigInteger),
        Column("tokens_per_minute", BigInteger),
        Column("concurrent", BigInteger),
        Column("budget", BigInteger),
        Column("budget_day", BigInteger),
        Column("budget_month", BigInteger),
    ]


def _count(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=False, server_default="0")


def _sums(connection: Connection) -> None:
    Table(
        "usage_hours",
        MetaData(),
        Column("hour", Integer, primary_key=True, autoincrement=False),
        Column("token_id", Text, primary_key=True),
        Column("group_name", Text, primary_key=True),
        Column("model", Text, primary_key=True),
        *map(_count, _COUNTS),
        sqlite_with_rowid=False,
    ).create(connection)
    connection.exec_driver_sql(
        "INSERT INTO usage_hours"
        " (hour, token_id, group_name, model, requests, errors, estimated, input_tokens,"
        " cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens)"
        " SELECT started_at / 3600000000, token_id, group_name, COALESCE(catalog_model, ''),"
        " COUNT(*), SUM(CASE WHEN state = 'ok' THEN 0 ELSE 1 END), 0, SUM(input_tokens),"
        " SUM(cache_read_tokens), SUM(cache_write_tokens), SUM(output_tokens),"
        " SUM(reasoning_tokens)"
        " FROM requests WHERE state <> 'open' GROUP BY 1, 2, 3, 4"
    )
