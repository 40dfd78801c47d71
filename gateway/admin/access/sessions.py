"""The console's sessions, of admins and of holders of keys. They are in memory, and in the database
for the next start; of the id of a session only a digest is stored.

The session of a holder has the id of the key in place of the name of an admin, and the digest of
the key as its epoch: it ends when the key is replaced.
"""

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
from gateway.admin.access.permissions import Actor, acting_as, admin_actor, key_actor
from gateway.store import access as store
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.records import Admin, SessionRow, Token

IDLE_TIMEOUT: Final = 30 * 60 * 1_000_000
"""Microseconds."""
MAX_AGE: Final = 12 * 3600 * 1_000_000
"""Microseconds."""

FindKey = Callable[[str], Token | None]

_OF_KEY: Final = "key: "  # no name of an admin has a colon
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
        self,
        audit: Audit,
        now: Callable[[], int],
        admins: Admins,
        rows: list[SessionRow],
        find_key: FindKey,
    ) -> None:
        self._audit = audit
        self._now = now
        self._admins = admins
        self._find_key = find_key
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
        active = [each for each in self._sessions.values() if self._is_valid(each)]
        return sorted(active, key=lambda each: each.created_at)

    def count_of(self, name: str) -> int:
        """Counts the active sessions of an admin."""
        admin = self._admins.find(name)
        return 0 if admin is None else sum(self.admin_of(each) is admin for each in self.active())

    def find(self, id_: str | None) -> Session | None:
        """The session of an id, unless it has ended."""
        session = None if id_ is None else self._sessions.get(_digest(id_))
        return session if session is not None and self._is_valid(session) else None

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
        return not self._is_valid(session)

    def _is_valid(self, session: Session) -> bool:
        return self.admin_of(session) is not None or self.key_of(session) is not None

    def admin_of(self, session: Session) -> Admin | None:
        """Returns the admin who signed in; None if the session has expired, or its admin was
        changed or removed."""
        admin = self._admins.find(session.admin)
        is_valid = admin is not None and admin.epoch == session.epoch
        return admin if is_valid and not session.is_expired(self._now()) else None

    def key_of(self, session: Session) -> Token | None:
        """Returns the key that signed in; None if the session has expired, or its key was disabled,
        revoked or replaced, or has expired."""
        if not session.admin.startswith(_OF_KEY):
            return None
        token = self._find_key(session.admin.removeprefix(_OF_KEY))
        if token is None or token.digest.hex() != session.epoch:
            return None
        now = self._now()
        return None if token.has_expired(now) or session.is_expired(now) else token

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
        actor = Actor(admin_actor(admin.name), address)
        return await self._begin(actor, admin.name, admin.epoch, agent, replaces)

    async def sign_in_key(
        self, token: Token, address: str, agent: str, replaces: Session | None = None
    ) -> str:
        """The id of a new session of the holder of a key, as `sign_in`."""
        actor = Actor(key_actor(token), address)
        name, epoch = f"{_OF_KEY}{token.id}", token.digest.hex()
        return await self._begin(actor, name, epoch, agent, replaces)

    async def _begin(
        self, actor: Actor, name: str, epoch: str, agent: str, replaces: Session | None
    ) -> str:
        id_ = secrets.token_urlsafe(_ID_BYTES)
        async with self._lock:
            now = self._now()
            address = actor.address or ""
            row = SessionRow(_digest(id_), now, now, address, agent[:_MAX_AGENT], name, epoch)
            ended = [each.digest for each in self._sessions.values() if self._is_over(each)]
            if replaces is not None:
                ended.append(replaces.digest)
            with acting_as(actor):
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
