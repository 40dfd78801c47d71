"""Migration 2: a row for every attempt, and how each exchange was routed."""

from __future__ import annotations

from sqlalchemy import Connection

_ATTEMPTS = """
    CREATE TABLE attempts (
        request_id TEXT NOT NULL REFERENCES requests (id) ON DELETE CASCADE,
        number INTEGER NOT NULL, channel TEXT NOT NULL, account TEXT NOT NULL,
        upstream_model TEXT NOT NULL, format TEXT NOT NULL, lane TEXT NOT NULL,
        reason TEXT NOT NULL, started_us BIGINT NOT NULL, first_event_us BIGINT,
        total_us BIGINT NOT NULL, status INTEGER, verdict TEXT NOT NULL, blame TEXT, effect TEXT,
        next TEXT, error TEXT, PRIMARY KEY (request_id, number)
    ) {without_rowid}
"""


def upgrade(connection: Connection, now: int) -> None:
    """Older rows have no recorded attempts, though there may have been some."""
    for column in (
        *("upstream_format TEXT", "affinity TEXT", "affinity_kept TEXT", "config_hash TEXT"),
        "attempts INTEGER DEFAULT 0 NOT NULL",
    ):
        connection.exec_driver_sql(f"ALTER TABLE requests ADD COLUMN {column}")
    without_rowid = "WITHOUT ROWID" if connection.dialect.name == "sqlite" else ""
    connection.exec_driver_sql(_ATTEMPTS.format(without_rowid=without_rowid))
