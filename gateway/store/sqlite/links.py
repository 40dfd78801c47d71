"""Writes links of the request log to a file, in the transaction of their rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy.engine.interfaces import DBAPICursor

from gateway.store.log.links import OPEN_ENDS, digest_link, digest_rows, join_ids
from gateway.store.records import DAY_US, LinkRow, RequestRow

_LAST: Final = (
    "SELECT number, digest FROM links WHERE day = ? AND writer = ? ORDER BY number DESC LIMIT 1"
)
_OPEN_ENDS: Final = OPEN_ENDS.format(day="?")
_INSERT: Final = "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def add_link(
    cursor: DBAPICursor,
    writer: str,
    rows: Sequence[RequestRow],
    attempts: Sequence[tuple[Any, ...]] = (),
    searches: Sequence[tuple[Any, ...]] = (),
) -> None:
    """Links rows that the transaction has settled, if there are any."""
    if not rows:
        return
    written_at = time.time_ns() // 1000
    day = written_at // DAY_US
    cursor.execute(_LAST, (day, writer))
    last = cursor.fetchone()
    if last is None:
        cursor.execute(_OPEN_ENDS, (day,))
        last = 0, " ".join(digest for (digest,) in cursor.fetchall())
    number, previous = last
    digest = digest_rows(rows, attempts, searches)
    link = LinkRow(day, writer, number + 1, written_at, previous, digest, join_ids(rows))
    cursor.execute(_INSERT, link._replace(digest=digest_link(link)))
