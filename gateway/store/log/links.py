"""Links the settled rows of the request log by hash, so that it is found if somebody changes them
in the database afterwards (`gateway.store.log.link_check`).

A link names the rows that a transaction has settled and has their digest. Links of one writer and
day are numbered, and each has the digest of the one before. The first of a chain has those of all
chains' ends that no other has yet. So each writer waits for itself alone, and a day that is over is
sealed by the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

import orjson
from sqlalchemy import Connection, delete, func, select, text, tuple_

from gateway.store.database import Database, fetch
from gateway.store.records import DAY_US, LinkRow, RequestRow, sanitize_value
from gateway.store.schema import links, settings
from gateway.store.settings import put_setting

CHANGING: Final = ("boot_id", "tariff", "usd_micro", "end_user")
"""Fields that are not part of the digest: repricing and the retention of end users change them, and
the database's writer sets the first."""

LASTING: Final = tuple(name for name in RequestRow._fields if name not in CHANGING)
"""Fields of the digest, in its order. One that is added changes the digests of all links: it needs
another form of links, and a column that says which a link has."""

RECOVERY: Final = "recovery"
"""The writer of links of what other replicas have left running, each of one row: its truth, if that
arrives late, is in another link."""

_LINKED: Final = "linked_since"
LINKED_SINCE: Final = select(settings.c.value).where(settings.c.name == _LINKED)
"""The time (Unix µs, as text) since which all rows are linked; empty while others write rows that
are not, no row if all are."""

_SCHEMA: Final = 28
"""The first with links."""

OPEN_ENDS: Final = """
SELECT tip.digest FROM links AS opening JOIN links AS tip
    ON tip.day = opening.day AND tip.writer = opening.writer AND tip.number = (
        SELECT max(number) FROM links
        WHERE links.day = opening.day AND links.writer = opening.writer
    )
WHERE opening.number = 1
    AND opening.day >= (SELECT coalesce(max(day), 0) FROM links WHERE number = 1 AND day < {day})
    AND NOT EXISTS (
        SELECT 1 FROM links AS later WHERE later.number = 1 AND later.day >= opening.day
            AND later.previous LIKE '%' || tip.digest || '%'
    )
ORDER BY tip.written_at, tip.digest
"""
"""The digests of the last links of chains that no first link of a chain has: of the day `day`, of
later ones and of the last one before that has any."""

_lasting = itemgetter(*map(RequestRow._fields.index, LASTING))


def digest_rows(
    rows: Sequence[RequestRow],
    attempts: Sequence[tuple[Any, ...]] = (),
    searches: Sequence[tuple[Any, ...]] = (),
) -> str:
    """The digest of rows as they are stored. Attempts and searches are as in a `Batch`, in the
    order of the rows."""
    return digest_values(list(map(_lasting, rows)), attempts, searches)


def digest_values(*values: Sequence[Sequence[Any]]) -> str:
    """The same with the `LASTING` fields in place of rows. For all of a transaction at once: one
    digest for each row would take twice as long."""
    try:
        data = orjson.dumps(values)
    except TypeError:  # what a database cannot hold
        data = None
    if data is None or b"\\u0000" in data:  # a file can hold it, a server not
        data = orjson.dumps([[list(map(sanitize_value, row)) for row in rows] for rows in values])
    return hashlib.sha256(data).hexdigest()


def join_ids(rows: Sequence[RequestRow]) -> str:
    return " ".join([row.id for row in rows])


def digest_link(link: LinkRow) -> str:
    """Returns what its `digest` has to be."""
    return hashlib.sha256("\n".join(map(str, link[:-1])).encode()).hexdigest()


async def log_head(database: Database, now_us: int) -> list[str]:
    """The digests of the last links: whoever keeps them elsewhere can tell later whether the log up
    to them was changed. It is one, or with replicas one for each that writes."""
    return [digest for (digest,) in await fetch(database, open_ends(now_us // DAY_US))]


def open_ends(day: int) -> Any:
    return text(OPEN_ENDS.format(day=":day")).bindparams(day=day)


async def begin_linking(database: Database, now_us: int) -> None:
    """Notes since when all rows are linked, once no replica of an earlier release writes."""
    value = "" if await database.has_writers_before(_SCHEMA) else str(now_us)
    await database.write(partial(_begin, value=value))


def _begin(connection: Connection, value: str) -> None:
    stored = connection.scalar(LINKED_SINCE)
    if value == "" or stored == "":
        put_setting(connection, _LINKED, value)


def first_kept_day(rows_kept_since: int) -> int:
    """The first day whose links are kept, for rows that are kept since that Unix hour. What is
    written later than its day ends, or with another clock, has a day more."""
    return rows_kept_since // 24 - 1


async def delete_links(database: Database, rows_kept_since: int, batch: int) -> int:
    """Delete up to `batch` links of which no row is kept; returns their number. Those that a kept
    chain begins with stay, and the last day."""
    return await database.write(
        lambda connection: _delete(connection, first_kept_day(rows_kept_since), batch)
    )


def _delete(connection: Connection, first_day: int, batch: int) -> int:
    newest = connection.scalar(select(func.max(links.c.day))) or 0
    day = min(first_day, newest)
    openings = select(links.c.previous).where(links.c.number == 1, links.c.day >= day)
    anchors = {digest for (named,) in connection.execute(openings) for digest in named.split()}
    key = links.c.day, links.c.writer, links.c.number
    old = select(*key).where(links.c.day < day, links.c.digest.not_in(anchors)).limit(batch)
    found = [tuple(row) for row in connection.execute(old)]
    if found:
        connection.execute(delete(links).where(tuple_(*key).in_(found)))
    return len(found)
