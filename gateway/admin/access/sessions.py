"""The console's sessions. They are in memory, and in the database for the next start; of the id of
a session only a digest is stored."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from gateway.admin.access.admins import Admins
from gateway.admin.access.audit import Audit
from gateway.admin.access.permissions import Actor, acting_as, admin_actor
from gateway.store import access as store
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.records import Admin, SessionRow

IDLE_TIMEOUT: Final = 30 * 60 * 1_000_000
"""Microseconds."""
MAX_AGE: Final = 12 * 3600 * 1_000_000
"""Microseconds."""

_SAVE_INTERVAL: Final = 60 * 1_000_000  # microseconds between two saves of `seen_at`
_ID_BYTES: Final = 32
_MAX_AGENT: Final = 300
_LOOKUPS: Final = 3  # of a session, while others end

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Session:
    """A signed-in browser; times are Unix microseconds. Its next page shows the `flashes`, each a
    text and a tone, and the `one_time_values`."""

    digest: bytes
    created_at: int
    seen_at: int
    address: str
    agent: str
    admin: str
    epoch: str
    flashes: list[str] = field(default_factory=list)
    one_time_values: dict[str, str] = field(default_factory=dict)
    saved_at: int = 0

    def is_expired(self, now: int) -> bool:
        return now - self.created_at >= MAX_AGE or now - self.seen_at >= IDLE_TIMEOUT


class Sessions:
    """`now` gives Unix microseconds."""

    def __init__(
        self, audit: Audit, now: Callable[[], int], admins: Admins, rows: list[SessionRow]
    ) -> None:
        self._audit = audit
        self._now = now
        self._admins = admins
        self._sessions = {row.digest: Session(**asdict(row)) for row in rows}
        self._ended = 0  # how often sessions were removed from memory
        self._lock = asyncio.Lock()  # database and memory change together

    @property
    def _database(self) -> Database:
        return self._audit.database

    def replace(self, digests: Iterable[bytes], rows: Iterable[SessionRow]) -> None:
        """Replaces these sessions by the rows that the database has now. What this process knows of
        one that goes on is newer."""
        found = {row.digest: row for row in rows}
        for digest in digests:
            if (row := found.get(digest)) is None:
                self._end(digest)
            elif digest not in self._sessions:
                self._sessions[digest] = Session(**asdict(row))

    def known(self) -> list[bytes]:
        """The digests of all, ended ones too."""
        return list(self._sessions)

    def active(self) -> list[Session]:
        """Returns the active sessions, oldest first."""
        active = [each for each in self._sessions.values() if self.admin_of(each) is not None]
        return sorted(active, key=lambda each: each.created_at)

    def count_of(self, name: str) -> int:
        """Counts the active sessions of an admin."""
        admin = self._admins.find(name)
        return sum(self.admin_of(each) is admin for each in self.active())

    def find(self, id_: str | None) -> Session | None:
        """The session of an id, unless it has ended."""
        session = None if id_ is None else self._sessions.get(_digest(id_))
        return None if session is None or self.admin_of(session) is None else session

    async def refresh(self, id_: str | None) -> None:
        """Reads what another replica knows of a session that is unknown or idle here: its begin,
        and its last use."""
        if id_ is None or self._database.locks is None or self.find(id_) is not None:
            return
        for _ in range(_LOOKUPS):
            ended = self._ended
            try:
                rows = await store.sessions_by_digest(self._database, {_digest(id_)})
            except (SQLAlchemyError, StoreError) as error:
                log.warning("a session could not be looked up: %s", error)
                return
            if ended == self._ended:  # or it may be this one that has ended since
                break
        else:
            return
        for row in rows:
            known = self._sessions.setdefault(row.digest, Session(**asdict(row)))
            known.seen_at = max(known.seen_at, row.seen_at)

    def _end(self, *digests: bytes) -> None:
        """Ends a session in memory. Call it once the database does not have them any more."""
        self._ended += 1
        for digest in digests:
            self._sessions.pop(digest, None)

    def _is_over(self, session: Session) -> bool:
        """Whether it has ended, also if another replica has seen it last."""
        now = self._now()
        if self._database.locks is not None and now - session.created_at < MAX_AGE:
            return now - session.seen_at >= MAX_AGE
        return self.admin_of(session) is None

    def admin_of(self, session: Session) -> Admin | None:
        """Returns the admin who signed in; None if the session has expired, or its admin was
        changed or removed."""
        admin = self._admins.find(session.admin)
        is_valid = admin is not None and admin.epoch == session.epoch
        return admin if is_valid and not session.is_expired(self._now()) else None

    async def touch(self, session: Session) -> None:
        """Restarts the idle timeout."""
        session.seen_at = now = self._now()
        if now - session.saved_at < _SAVE_INTERVAL:
            return
        session.saved_at = now
        try:
            await store.touch_session(self._database, session.digest, now)
        except (SQLAlchemyError, StoreError) as error:
            # Such as a full disk: the page is shown nevertheless.
            log.warning("the last use of a session could not be saved: %s", error)

    async def sign_in(
        self,
        name: str,
        password: str,
        address: str,
        agent: str,
        replaces: Session | None = None,
    ) -> str | None:
        """The id of a new session, which is stored nowhere and ends the session `replaces`; None if
        there is no admin of that name and password, in the same time."""
        admin = await self._admins.verify(name, password)
        if admin is None:
            return None
        id_ = secrets.token_urlsafe(_ID_BYTES)
        async with self._lock:
            now = self._now()
            row = SessionRow(
                *(_digest(id_), now, now, address, agent[:_MAX_AGENT], admin.name, admin.epoch)
            )
            ended = [each.digest for each in self._sessions.values() if self._is_over(each)]
            if replaces is not None:
                ended.append(replaces.digest)
            with acting_as(Actor(admin_actor(admin.name), address)):
                writer = self._audit.change("sign_in", after={"agent": agent})
            await store.add_session(writer, row, ended)
            self._end(*ended)
            self._sessions[row.digest] = Session(**asdict(row), saved_at=now)
        return id_

    async def sign_out(self, session: Session) -> None:
        async with self._lock:
            try:
                await store.remove_session(self._audit.change("sign_out"), session.digest)
            finally:  # also where it cannot be stored: then it is over until the next start
                self._end(session.digest)

    async def end_all(self) -> int:
        """Returns the number of ended sessions."""
        async with self._lock:
            count = len(self.active())
            writer = self._audit.change("sessions.end", after={"ended": count})
            try:
                await store.remove_all_sessions(writer)
            finally:
                self._end(*self._sessions)
        return count


def _digest(id_: str) -> bytes:
    return hashlib.sha256(id_.encode("utf-8", "surrogatepass")).digest()
