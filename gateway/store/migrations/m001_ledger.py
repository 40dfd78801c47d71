"""Migration 1: the ledger's first tables and the group `default`.

Never edited once released: it says what it made in words of its own and must not know the
tables of today (`gateway.store.schema`).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    insert,
    text,
)


def upgrade(connection: Connection, now: int) -> None:
    """Create everything; `now` (Unix µs) dates the group that reaches every model."""
    metadata = MetaData()
    groups = Table(
        "groups",
        metadata,
        Column("name", Text, primary_key=True),
        Column("patterns", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
    )
    _tokens(metadata)
    _requests(metadata)
    Table(
        "settings",
        metadata,
        Column("name", Text, primary_key=True),
        Column("value", Text, nullable=False),
    )
    metadata.create_all(connection, checkfirst=False)
    connection.execute(insert(groups).values(name="default", patterns='["*"]', created_at=now))


def _tokens(metadata: MetaData) -> None:
    Table(
        "tokens",
        metadata,
        Column("id", Text, primary_key=True),
        Column("name", Text, nullable=False),
        Column("digest", LargeBinary, nullable=False, unique=True),
        Column("display", Text, nullable=False),
        Column("group", Text, ForeignKey("groups.name"), nullable=False),
        Column("state", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("revoked_at", BigInteger),
        Column("requests", BigInteger, nullable=False, server_default="0"),
        Column("input_tokens", BigInteger, nullable=False, server_default="0"),
        Column("output_tokens", BigInteger, nullable=False, server_default="0"),
        Column("last_used_at", BigInteger),
    )


def _requests(metadata: MetaData) -> None:
    requests = Table(
        "requests",
        metadata,
        Column("id", Text, primary_key=True),
        Column("started_at", BigInteger, nullable=False),
        Column("token_id", Text, nullable=False),
        Column("group_name", Text, nullable=False),
        Column("endpoint", Text, nullable=False),
        Column("format", Text, nullable=False),
        Column("model", Text),
        Column("channel", Text),
        Column("account", Text),
        Column("upstream_model", Text),
        Column("lane", Text),
        Column("stream", Boolean, nullable=False),
        Column("client_address", Text),
        Column("user_agent", Text),
        Column("client_request_id", Text),
        Column("bytes_in", BigInteger, nullable=False),
        Column("state", Text, nullable=False),
        Column("status", Integer),
        Column("stop_reason", Text),
        Column("end_reason", Text),
        Column("input_tokens", BigInteger, nullable=False, server_default="0"),
        Column("cache_read_tokens", BigInteger, nullable=False, server_default="0"),
        Column("cache_write_tokens", BigInteger, nullable=False, server_default="0"),
        Column("output_tokens", BigInteger, nullable=False, server_default="0"),
        Column("reasoning_tokens", BigInteger, nullable=False, server_default="0"),
        Column("usage_source", Text, nullable=False, server_default="none"),
        Column("first_event_us", BigInteger),
        Column("total_us", BigInteger),
        Column("bytes_out", BigInteger, nullable=False, server_default="0"),
        Column("error_code", Text),
        Column("upstream_status", Integer),
        Column("upstream_error", Text),
        Column("dropped", Text),
        Column("boot_id", Text, nullable=False),
        sqlite_with_rowid=False,
    )
    is_open = text("state = 'open'")
    Index("requests_open", requests.c.boot_id, sqlite_where=is_open, postgresql_where=is_open)
    Index("requests_of_token", requests.c.token_id, requests.c.id)
