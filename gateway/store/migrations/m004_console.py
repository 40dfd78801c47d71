"""Migration 4: who has signed in to the console, and what its pages read.

Never edited once released: it says what it made in words of its own and must not know the
tables of today (`gateway.store.schema`).

Migration 4, what the console reads: times summed by the hour, and the way to what failed.

Never edited once released: it says what it made in words of its own and must not know the
tables of today (`gateway.store.schema`).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, LargeBinary, MetaData, Table, Text
from sqlalchemy.schema import CreateColumn


def upgrade(connection: Connection, now: int) -> None:
    """Nobody has signed in yet: there is no password until one is set."""
    Table(
        "sessions",
        MetaData(),
        Column("digest", LargeBinary, primary_key=True),
        Column("created_at", BigInteger, nullable=False),
        Column("seen_at", BigInteger, nullable=False),
        Column("address", Text, nullable=False),
        Column("agent", Text, nullable=False),
    ).create(connection)
    _add_times_and_index(connection)


_TIMES = ("first_events", "first_event_us", "total_us")


def _add_times_and_index(connection: Connection) -> None:
    """Hours whose rows are gone have no times; of others they are summed up from the rows."""
    for name in _TIMES:
        column = Column(name, BigInteger, nullable=False, server_default="0")
        described = CreateColumn(column).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE usage_hours ADD COLUMN {described}")
    connection.exec_driver_sql(
        "UPDATE usage_hours SET first_events = timed.events, first_event_us = timed.first_us,"
        " total_us = timed.whole_us"
        " FROM (SELECT started_at / 3600000000 AS hour, token_id, group_name,"
        " COALESCE(catalog_model, '') AS model, COUNT(*) AS events,"
        " SUM(first_event_us) AS first_us, SUM(COALESCE(total_us, 0)) AS whole_us"
        " FROM requests WHERE state <> 'open' AND first_event_us IS NOT NULL"
        " GROUP BY 1, 2, 3, 4) AS timed"
        " WHERE usage_hours.hour = timed.hour AND usage_hours.token_id = timed.token_id"
        " AND usage_hours.group_name = timed.group_name AND usage_hours.model = timed.model"
    )
    connection.exec_driver_sql(
        "CREATE INDEX requests_failed ON requests"
        " (id, state, status, error_code, upstream_status, token_id, channel)"
        " WHERE state NOT IN ('ok', 'open')"
    )
