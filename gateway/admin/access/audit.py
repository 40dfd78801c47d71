"""The audit log: who did what, when, from where; floods of failed attempts are merged."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Final

import orjson
from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from sqlalchemy.exc import SQLAlchemyError

from gateway.admin.access.permissions import current_actor, requirement_of
from gateway.core.text import escape_unprintable
from gateway.store import audit as store
from gateway.store.audit import AuditedWriter
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.records import AuditRow, sanitize_text

WINDOW: Final = 600 * 1_000_000
"""Microseconds."""
OWN_ROWS: Final = 20
"""The number of rows of a window."""
MERGED_ROWS: Final = 20
"""The number of merged rows of a window; attempts of further clients share a row by kind, without
an address."""


class MergedAttempts:
    """Attempts of the current window, which begins with an attempt."""

    def __init__(self) -> None:
        self._began: int | None = None
        self._own = 0
        self._merged: dict[tuple[str | None, ...], AuditRow] = {}

    def add(self, row: AuditRow) -> list[AuditRow]:
        """The rows to write now."""
        rows = self.end_window(row.at)
        if self._began is None:
            self._began = row.at
        self._own += 1
        if self._own <= OWN_ROWS:
            return [*rows, row]
        key: tuple[str | None, ...] = (row.action, row.actor, row.address)
        if key not in self._merged and len(self._merged) >= MERGED_ROWS:
            row = row._replace(actor="several", address=None, target=None)
            key = (row.action,)
        if (earlier := self._merged.get(key)) is not None:
            row = row._replace(times=earlier.times + 1)
        self._merged[key] = row
        return rows

    def end_window(self, now: int | None = None) -> list[AuditRow]:
        """The merged rows, if the window has ended at `now`, or of any window without `now`."""
        is_running = now is not None and self._began is not None and 0 <= now - self._began < WINDOW
        if self._began is None or is_running:
            return []
        rows = list(self._merged.values())
        self._began, self._own = None, 0
        self._merged.clear()
        return rows


Fields = Mapping[str, Any]

MAX_TEXT: Final = 200
"""Characters of a target, and of an address."""
MAX_VALUE: Final = 500
"""Bytes of the JSON of a field that is recorded as it is."""
MAX_FIELDS: Final = 8 * 1024
"""Bytes of `before` and of `after`."""

SAFE: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
"""Methods that change nothing."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Mark:
    """Whether the request has its row."""

    recorded: bool = False


_mark: Final[ContextVar[_Mark | None]] = ContextVar("audit_mark", default=None)


class Audit:
    """The caller owns the database; `now` gives Unix microseconds."""

    def __init__(self, database: Database, now: Callable[[], int]) -> None:
        self.database = database
        self._now = now
        self._attempts = MergedAttempts()
        self._last_id = 0

    def change(
        self,
        action: str,
        target: str | None = None,
        before: Fields | None = None,
        after: Fields | None = None,
    ) -> AuditedWriter:
        """Writes a change together with its row. `before` and `after` are complete: the row has the
        fields that differ."""
        self.mark()
        return AuditedWriter(self.database, self._row(action, target, before, after))

    async def record(
        self,
        action: str,
        target: str | None = None,
        before: Fields | None = None,
        after: Fields | None = None,
    ) -> None:
        """Writes a row alone. What it describes has happened, so it is logged if it cannot be
        written."""
        self.mark()
        await self._write([self._row(action, target, before, after)])

    async def record_attempt(
        self, action: str, target: str | None = None, *, actor: str, address: str
    ) -> None:
        """A failed attempt to get access: such rows are merged beyond a rate."""
        row = self._row(action, target)._replace(actor=actor, address=address[:MAX_TEXT])
        await self._write(self._attempts.add(row))

    async def flush(self) -> None:
        """Writes the merged rows of a window that has ended."""
        await self._write(self._attempts.end_window(self._now()))

    async def close(self) -> None:
        await self._write(self._attempts.end_window())

    def mark(self) -> None:
        """The request needs no further row: also where nothing was changed."""
        if (mark := _mark.get()) is not None:
            mark.recorded = True

    async def _write(self, rows: list[AuditRow]) -> None:
        if not rows:
            return
        try:
            await store.add(self.database, rows)
        except (SQLAlchemyError, StoreError) as error:
            for row in rows:
                log.error(
                    "audit: %s %s %s: not stored: %s", row.actor, row.action, row.target, error
                )

    def _row(
        self,
        action: str,
        target: str | None,
        before: Fields | None = None,
        after: Fields | None = None,
    ) -> AuditRow:
        now, actor = self._now(), current_actor()
        if before is not None and after is not None:
            before, after = differing(before, after)
        self._last_id = max(now, self._last_id + 1)  # rows of a microsecond keep their order
        return AuditRow(
            id=f"{store.first_id(self._last_id)}{token_hex(5)}",
            at=now,
            actor=actor.name,
            address=actor.address,
            action=action,
            target=None if target is None else escape_unprintable(sanitize_text(target))[:MAX_TEXT],
            before=_to_json(before),
            after=_to_json(after),
        )


def audit_actions(audit: Audit) -> Middleware:
    """Returns a middleware that writes one row for every action of a handler: a reading one before
    it, another one if it succeeds and has not written its own."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        stated = requirement_of(request.match_info.handler)
        if stated is None or stated.action is None:
            return await handler(request)
        mark = _Mark()
        before = _mark.set(mark)
        try:
            target = "/".join(request.match_info.values()) or None
            if request.method in SAFE:
                await audit.record(stated.action, target, after=dict(request.query))
            response = await handler(request)
            if response.status < 400 and not mark.recorded:
                await audit.record(stated.action, target)
            return response
        finally:
            _mark.reset(before)

    return middleware


def differing(before: Fields, after: Fields) -> tuple[Fields, Fields]:
    """The fields whose values differ."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return (
        {name: before[name] for name in names if name in before},
        {name: after[name] for name in names if name in after},
    )


def _to_json(fields: Fields | None) -> str | None:
    """Serialises fields; None without any. Long values are cut, and a row with too many has their
    names."""
    if not fields:
        return None
    encoded = orjson.dumps({name: _bounded(each) for name, each in fields.items()}, default=str)
    if len(encoded) > MAX_FIELDS:
        encoded = orjson.dumps({"fields": ", ".join(fields)[:MAX_VALUE]})
    return sanitize_text(encoded.decode())


def _bounded(field: Any) -> Any:
    try:
        encoded = orjson.dumps(field, default=str)
    except orjson.JSONEncodeError:  # such as lone surrogates
        return "…"
    if len(encoded) <= MAX_VALUE:
        return field
    return f"{encoded[:MAX_VALUE].decode('utf-8', 'ignore')}… ({len(encoded)} bytes)"
