"""The tables as this release reads and writes them, derived from the classes of `records`.

Migrations create and change them (`gateway.store.migrations`); a test compares the two. Column
types are those that SQLite and PostgreSQL share. Lists are stored as JSON, limits as one column
each. Partial indexes are partial on PostgreSQL too, but only the migrations need to say so.

`requests` is written far more often than read, so it has three indexes: the running rows (partial,
as small as what is in flight) for recovery after a crash, the rows of one token, and those that
failed (partial too), with every column by which failures are grouped. Its ids are time-ordered:
new rows go to the end of the tree, paging needs no other index, and the table needs no rowid.
No foreign key points out of it: a request that happened can always be recorded. `attempts` and
`searches` are written with the end of their exchange and deleted with its row.

`stored_replies` has its large columns last, so that sums over a key's rows read none of them; the
index of chains has all that eviction and expiry ask for.

`usage_hours` sums the settled rows by the Unix hour of their start. It changes in the transactions
that settle rows, and outlives them. `traffic` does the same for slots of five minutes by model and
channel, which are folded into hours and days (`gateway.store.log.traffic`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from inspect import signature
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
    true,
)

from gateway.core.limits import LIMIT_NAMES, Limits
from gateway.store.measures import MEASURES
from gateway.store.records import (
    Admin,
    AdminToken,
    AttemptRow,
    AuditRow,
    Conversation,
    ConversationItem,
    Group,
    HourDelta,
    LinkRow,
    RequestRow,
    SearchRow,
    SessionRow,
    StoredItem,
    StoredResponse,
    Token,
    UsageCorrection,
)

_TYPES: Final = {int: BigInteger, bool: Boolean, bytes: LargeBinary}
_INTEGERS: Final = ("status", "upstream_status", "attempts", "hour")

metadata = MetaData()


def _columns(record: type, key: Collection[str] = ()) -> Iterator[Column[Any]]:
    """A column for each field: nullable where it may be None, with the field's default as the
    server's."""
    parameters = signature(record).parameters
    for name, hint in get_type_hints(record).items():
        if hint is Limits:
            yield from (Column(limit, BigInteger) for limit in LIMIT_NAMES)
            continue
        nullable = NoneType in get_args(hint)
        python_type, *_ = get_args(hint) or (hint,)
        is_small = python_type is int and name in _INTEGERS
        type_ = Integer if is_small else _TYPES.get(python_type, Text)
        default = parameters[name].default
        has_default = default not in (None, "", b"", parameters[name].empty)
        yield Column(
            name,
            type_,
            primary_key=name in key,
            nullable=nullable,
            server_default=_server_default(default) if has_default else None,
        )


def _server_default(default: object) -> Any:
    if isinstance(default, bool):
        return true() if default else false()
    return str(default)


groups = Table("groups", metadata, *_columns(Group, key=["name"]))

tokens = Table(
    "tokens",
    metadata,
    *_columns(Token, key=["id"]),
    ForeignKeyConstraint(["group"], [groups.c.name]),
    UniqueConstraint("digest"),
)
Index("tokens_old_digest", tokens.c.old_digest, unique=True)

requests = Table("requests", metadata, *_columns(RequestRow, key=["id"]), sqlite_with_rowid=False)
Index("requests_running", requests.c.boot_id, sqlite_where=text("state = 'running'"))
Index("requests_of_token", requests.c.token_id, requests.c.id)
_FAILURE_FIELDS = "id state status error_code upstream_status token_id channel requests"
Index(
    "requests_failed",
    *(requests.c[name] for name in _FAILURE_FIELDS.split()),
    sqlite_where=text("state NOT IN ('ok', 'running')"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("request_id", Text, ForeignKey(requests.c.id, ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    *_columns(AttemptRow),
    sqlite_with_rowid=False,
)

searches = Table(
    "searches",
    metadata,
    Column("request_id", Text, ForeignKey(requests.c.id, ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    *_columns(SearchRow),
    sqlite_with_rowid=False,
)

links = Table(
    "links",
    metadata,
    *_columns(LinkRow, key=["day", "writer", "number"]),
    sqlite_with_rowid=False,
)
Index("links_opening", links.c.day, links.c.writer, sqlite_where=text("number = 1"))

usage_hours = Table(
    "usage_hours",
    metadata,
    *_columns(HourDelta, key=["hour", "token_id", "group_name", "model"]),
    sqlite_with_rowid=False,
)

traffic = Table(
    "traffic",
    metadata,
    Column("start", BigInteger, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in map(str, MEASURES)),
    sqlite_with_rowid=False,
)

usage_corrections = Table(
    "usage_corrections",
    metadata,
    *_columns(UsageCorrection, key=["hour", "token_id", "group_name", "model"]),
    sqlite_with_rowid=False,
)

stored_replies = Table(
    "stored_replies", metadata, *_columns(StoredResponse, key=["token_id", "id"])
)
_CHAIN_FIELDS = "token_id root_id created_at expires_at stored_size"
Index("stored_replies_of_chain", *(stored_replies.c[name] for name in _CHAIN_FIELDS.split()))
Index("stored_replies_continuing", stored_replies.c.token_id, stored_replies.c.previous_id)
Index("stored_replies_of_request", stored_replies.c.request_id)
Index(
    "stored_replies_running",
    stored_replies.c.token_id,
    sqlite_where=text("status IN ('queued', 'in_progress')"),
)

stored_items = Table(
    "stored_items",
    metadata,
    *_columns(StoredItem, key=["token_id", "item_id"]),
    ForeignKeyConstraint(
        ["token_id", "reply_id"],
        [stored_replies.c.token_id, stored_replies.c.id],
        ondelete="CASCADE",
    ),
    sqlite_with_rowid=False,
)
Index("stored_items_of_reply", stored_items.c.token_id, stored_items.c.reply_id)

conversations = Table("conversations", metadata, *_columns(Conversation, key=["token_id", "id"]))
Index("conversations_by_use", conversations.c.updated_at)

conversation_items = Table(
    "conversation_items",
    metadata,
    *_columns(ConversationItem, key=["token_id", "conversation_id", "position"]),
)
Index(
    "conversation_items_by_id",
    conversation_items.c.token_id,
    conversation_items.c.conversation_id,
    conversation_items.c.id,
)

sessions = Table("sessions", metadata, *_columns(SessionRow, key=["digest"]))

admins = Table("admins", metadata, *_columns(Admin, key=["name"]))

admin_tokens = Table(
    "admin_tokens",
    metadata,
    *_columns(AdminToken, key=["id"]),
    UniqueConstraint("name"),
    UniqueConstraint("digest"),
)

audit_log = Table("audit_log", metadata, *_columns(AuditRow, key=["id"]), sqlite_with_rowid=False)

settings = Table(
    "settings",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
