"""The tables that only a database server has: replicas, changes of keys, spending by period, budget
leases, sums by day.

Migrations create them; a test compares the two. With SQLite there is one replica, and what was
spent is derived from the hourly sums.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, Table, Text

from gateway.store.records import USAGE_COUNTS

postgresql_metadata: Final = MetaData()


class AdvisoryLock(IntEnum):
    """The keys of the server's advisory locks; `pg_locks` shows them as `objid` (those of leases,
    one for each holder, and of links, one for each writer, as `classid`)."""

    REGISTRATION = 0x67770001
    LEADER = 0x67770002
    LEASES = 0x67770003
    LINKS = 0x67770004
    PARTITIONS = 0x67646179
    MIGRATIONS = 0x67646D67


replicas: Final = Table(
    "replicas",
    postgresql_metadata,
    Column("name", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False, unique=True),
    Column("boot_id", Text, nullable=False, unique=True),
    Column("state_id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("schema", Integer, nullable=False),
    Column("config_hash", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("heartbeat_at", BigInteger, nullable=False),
    Column("expiry_us", BigInteger, nullable=False),
    Column("details", Text, nullable=False, server_default="{}"),
)

change_version: Final = Table(
    "change_version",
    postgresql_metadata,
    Column("name", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("transaction_id", Text, nullable=False),
)

changes: Final = Table(
    "changes",
    postgresql_metadata,
    Column("version", BigInteger, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("changed_at", BigInteger, nullable=False),
)

spending: Final = Table(
    "spending",
    postgresql_metadata,
    Column("holder_kind", Text, primary_key=True),
    Column("holder_id", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("start", BigInteger, primary_key=True),
    Column("units", BigInteger, nullable=False),
    Column("usd", BigInteger, nullable=False),
)

usage_days: Final = Table(
    "usage_days",
    postgresql_metadata,
    Column("day", Integer, primary_key=True),
    *(Column(name, Text, primary_key=True) for name in ("token_id", "group_name", "model")),
    *(Column(name, BigInteger, nullable=False) for name in USAGE_COUNTS),
)
"""The sums of whole Unix days, up to the last one that is here."""

budget_leases: Final = Table(
    "budget_leases",
    postgresql_metadata,
    Column("holder_kind", Text, primary_key=True),
    Column("holder_id", Text, primary_key=True),
    Column("epoch", BigInteger, ForeignKey(replicas.c.epoch, ondelete="CASCADE"), primary_key=True),
    Column("units", BigInteger, nullable=False),
    Column("usd", BigInteger, nullable=False),
)
Index("budget_leases_of_epoch", budget_leases.c.epoch)
