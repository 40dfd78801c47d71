"""Migration 2: a row for every attempt, and of each exchange how it was routed.

Never edited once released: it says what it made in words of its own and must not know the
tables of today (`gateway.store.schema`).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, ForeignKey, Integer, MetaData, Table, Text


def upgrade(connection: Connection, now: int) -> None:
    """Rows of before have no attempts on record, though an upstream may have been asked."""
    for column in (
        "upstream_format TEXT",
        "affinity TEXT",
        "affinity_kept TEXT",
        "config_hash TEXT",
        "attempts INTEGER DEFAULT 0 NOT NULL",
    ):
        connection.exec_driver_sql(f"ALTER TABLE requests ADD COLUMN {column}")
    metadata = MetaData()
    Table("requests", metadata, Column("id", Text, primary_key=True))
    attempts = Table(
        "attempts",
        metadata,
        Column("request_id", Text, ForeignKey("requests.id", ondelete="CASCADE"), primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("channel", Text, nullable=False),
        Column("account", Text, nullable=False),
        Column("upstream_model", Text, nullable=False),
        Column("format", Text, nullable=False),
        Column("lane", Text, nullable=False),
        Column("reason", Text, nullable=False),
        Column("started_us", BigInteger, nullable=False),
        Column("first_event_us", BigInteger),
        Column("total_us", BigInteger, nullable=False),
        Column("status", Integer),
        Column("verdict", Text, nullable=False),
        Column("blame", Text),
        Column("effect", Text),
        Column("next", Text),
        Column("error", Text),
        sqlite_with_rowid=False,
    )
    attempts.create(connection)
