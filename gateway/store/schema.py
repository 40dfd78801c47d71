"""The tables as this release reads and writes them. This room must not know how they came about.

Migrations make and change them (`gateway.store.migrations`); a test holds the two to each other.
Types are those that SQLite and PostgreSQL share. Times are Unix microseconds. Partial indexes are
partial on PostgreSQL too, which only the migrations need to say: to say it loads that dialect.

`requests` is written far more often than read, so it pays for three indexes only: the open rows
(partial, as small as what is in flight) for recovery after a crash, the rows of one token, and
those that failed (partial too), with all that is counted of failures.
Its ids are time-ordered: new rows go to the end of the tree, paging needs no other index, and the
table needs no rowid beside them. No foreign key leads out of it: a row of what happened must
always find its place. `attempts` are written with the end of their exchange and go with its row.

`usage_hours` sums the settled rows by whole Unix hours of their start, where `model` is the
catalog's or empty. It moves in the transactions that settle rows, and outlives them. Its times
are sums over the `first_events` exchanges that had a first event.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    false,
    text,
)

from gateway.core.limits import LIMIT_NAMES

metadata = MetaData()


def _limits() -> Iterator[Column[int]]:
    return (Column(name, BigInteger) for name in LIMIT_NAMES)


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default="0")


groups = Table(
    "groups",
    metadata,
    Column("name", Text, primary_key=True),
    Column("patterns", Text, nullable=False, comment="JSON array of strings"),
    Column("created_at", BigInteger, nullable=False),
    Column("multiplier", Text, nullable=False, server_default="1", comment="a decimal number"),
    *_limits(),
    Column("user_agents", Text, comment="JSON array of strings, or all"),
    Column("user_agent_mode", Text, nullable=False, server_default="enforce"),
)

tokens = Table(
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
    _count("requests"),
    _count("input_tokens"),
    _count("output_tokens"),
    Column("last_used_at", BigInteger),
    _count("cost_micro"),
    Column("note", Text),
    Column("expires_at", BigInteger),
    Column("probe", Boolean, nullable=False, server_default=false()),
    Column("models", Text, comment="JSON array of strings, or all"),
    Column("addresses", Text, comment="JSON array of strings, or all"),
    Column("user_agents", Text, comment="JSON array of strings, or all"),
    *_limits(),
    Column("old_digest", LargeBinary),
    Column("old_display", Text),
    Column("old_expires_at", BigInteger),
    Column("first_used_at", BigInteger),
    Column("first_address", Text),
    Column("first_agent", Text),
    Column("changed_at", BigInteger),
    Column("changed", Text),
)
Index("tokens_old_digest", tokens.c.old_digest, unique=True)

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
    _count("input_tokens"),
    _count("cache_read_tokens"),
    _count("cache_write_tokens"),
    _count("output_tokens"),
    _count("reasoning_tokens"),
    Column("usage_source", Text, nullable=False, server_default="none"),
    Column("first_event_us", BigInteger),
    Column("total_us", BigInteger),
    _count("bytes_out"),
    Column("error_code", Text),
    Column("upstream_status", Integer),
    Column("upstream_error", Text),
    Column("dropped", Text),
    Column("boot_id", Text, nullable=False),
    Column("upstream_format", Text),
    Column("affinity", Text),
    Column("affinity_kept", Text),
    Column("config_hash", Text),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("catalog_model", Text),
    _count("expected_input_tokens"),
    _count("expected_micro"),
    Column("tariff", Text),
    Column("notes", Text),
    _count("cache_write_1h_tokens"),
    _count("cost_micro"),
    sqlite_with_rowid=False,
)
Index(
    "requests_open",
    requests.c.boot_id,
    sqlite_where=text("state = 'open'"),
)
Index("requests_of_token", requests.c.token_id, requests.c.id)
Index(
    "requests_failed",
    requests.c.id,
    requests.c.state,
    requests.c.status,
    requests.c.error_code,
    requests.c.upstream_status,
    requests.c.token_id,
    requests.c.channel,
    sqlite_where=text("state NOT IN ('ok', 'open')"),
)

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

usage_hours = Table(
    "usage_hours",
    metadata,
    Column("hour", Integer, primary_key=True, autoincrement=False),
    Column("token_id", Text, primary_key=True),
    Column("group_name", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    _count("requests"),
    _count("errors"),
    _count("estimated"),
    _count("input_tokens"),
    _count("cache_read_tokens"),
    _count("cache_write_tokens"),
    _count("cache_write_1h_tokens"),
    _count("output_tokens"),
    _count("reasoning_tokens"),
    _count("cost_micro"),
    _count("first_events"),
    _count("first_event_us"),
    _count("total_us"),
    sqlite_with_rowid=False,
)

sessions = Table(
    "sessions",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
    Column("address", Text, nullable=False),
    Column("agent", Text, nullable=False),
)

settings = Table(
    "settings",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
