"""Migration 4: who has signed in to the console, and what its pages read.

Never edited once released: it says what it made in words of its own and must not know the
tables of today (`gateway.store.schema`).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, LargeBinary, MetaData, Table, Text

from gateway.store.m004_readings import _add_times_and_index


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
