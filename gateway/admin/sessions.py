"""Who is signed in: in memory for every request, in the ledger for the next start.

Of a session's id only its SHA-256 is kept. It must not know cookies, pages or addresses' meaning.

The admin password: never kept, only what it takes to recognise it.

It must not know where that is kept, nor who tries. What it does takes about 0.1 s of a processor
and 32 MiB, on purpose: do it in a thread, one at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from gateway.store import sessions as kept
from gateway.store.database import Database

IDLE_TIMEOUT: Final = 30 * 60 * 1_000_000
"""Microseconds after which a session that nobody used is over."""
MAX_AGE: Final = 12 * 3600 * 1_000_000
"""Microseconds after which every session is over."""

_WRITTEN_EVERY = 60 * 1_000_000  # microseconds: a use of before is as good for a restart
_ID_BYTES = 32
_MAX_AGENT = 300

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Session:
    """One signed-in browser; times are Unix microseconds. `flashes` are messages for its next page,
    `one_time_values` texts that it can see once."""

    digest: bytes
    created_at: int
    seen_at: int
    address: str
    agent: str
    flashes: list[str] = field(default_factory=list)
    one_time_values: dict[str, str] = field(default_factory=dict)
    written_at: int = 0

    @property
    def row(self) -> kept.SessionRow:
        return kept.SessionRow(self.digest, self.created_at, self.seen_at, self.address, self.agent)


class Sessions:
    """All sessions, and the password that opens one. The caller owns the database; `now` gives
    Unix microseconds."""

    def __init__(
        self,
        database: Database,
        now: Callable[[], int],
        password: str | None,
        rows: list[kept.SessionRow],
    ) -> None:
        self._database = database
        self._now = now
        self._password = password
        self._sessions = {
            each.digest: Session(
                each.digest, each.created_at, each.seen_at, each.address, each.agent
            )
            for each in rows
        }
        self._turn = asyncio.Lock()  # database and memory change together
        # One thread: however many try to sign in, one password is checked at a time.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="password")

    @classmethod
    async def load(cls, database: Database, now: Callable[[], int]) -> Sessions:
        password = await kept.get_password_digest(database)
        return cls(database, now, password, await kept.all_sessions(database))

    async def close(self) -> None:
        """Waits for a check that is under way."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    @property
    def has_password(self) -> bool:
        return self._password is not None

    def active(self) -> list[Session]:
        """Those that are not over, oldest first."""
        now = self._now()
        living = [each for each in self._sessions.values() if not _is_expired(each, now)]
        return sorted(living, key=lambda each: each.created_at)

    def find(self, id_: str | None) -> Session | None:
        """The session of an id, unless it is over."""
        if id_ is None:
            return None
        session = self._sessions.get(_digest(id_))
        return None if session is None or _is_expired(session, self._now()) else session

    async def touch(self, session: Session) -> None:
        """Somebody is there: the time until it is over for idleness begins anew."""
        session.seen_at = now = self._now()
        if now - session.written_at < _WRITTEN_EVERY:
            return
        session.written_at = now
        try:
            await kept.touch_session(self._database, session.digest, now)
        except SQLAlchemyError as fault:  # locked or full: the page is shown all the same
            log.warning("a session's use could not be noted: %s", fault)

    async def sign_in(
        self, password: str, address: str, agent: str, replaces: Session | None = None
    ) -> str | None:
        """The id of a new session, which is kept nowhere; None where the password is wrong, has
        just been changed, or none is set. The session `instead_of` is over then."""
        asked = self._password
        if not await self._in_thread(lambda: verify_password(password, asked)):
            return None
        id_ = secrets.token_urlsafe(_ID_BYTES)
        async with self._turn:
            if self._password != asked:
                return None
            now = self._now()
            session = Session(_digest(id_), now, now, address, agent[:_MAX_AGENT])
            session.written_at = now
            over = [each.digest for each in self._sessions.values() if _is_expired(each, now)]
            if replaces is not None:
                over.append(replaces.digest)
            await kept.add_session(self._database, session.row, over)
            for digest in over:
                self._sessions.pop(digest, None)
            self._sessions[session.digest] = session
        return id_

    async def sign_out(self, session: Session) -> None:
        async with self._turn:
            self._sessions.pop(session.digest, None)
            await kept.remove_session(self._database, session.digest)

    async def end_all(self) -> int:
        """How many there were."""
        async with self._turn:
            count = len(self.active())
            self._sessions.clear()
            await kept.remove_all_sessions(self._database)
        return count

    async def set_password(self, password: str) -> int:
        """All sessions are over then: how many there were."""
        digest = await self._in_thread(lambda: hash_password(password))
        async with self._turn:
            count = len(self.active())
            await kept.set_password_digest(self._database, digest)
            self._password = digest
            self._sessions.clear()
        return count

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _is_expired(session: Session, now: int) -> bool:
    return now - session.created_at >= MAX_AGE or now - session.seen_at >= IDLE_TIMEOUT


def _digest(id_: str) -> bytes:
    return hashlib.sha256(id_.encode("utf-8", "surrogatepass")).digest()


MIN_PASSWORD_LENGTH: Final = 12
"""Characters of a password, at least."""
MAX_PASSWORD_LENGTH: Final = 1024
"""And at most."""

_N, _R, _P = 2**15, 8, 1
_MAX_MEMORY = 2 * 128 * _N * _R  # bytes: twice what it takes
_SALT_BYTES = 16


def hash_password(password: str) -> str:
    """What may be kept: `scrypt$n$r$p$salt$digest`, the last two in base64."""
    salt = secrets.token_bytes(_SALT_BYTES)
    parts = (salt, _scrypt(password, salt, _N, _R, _P))
    return f"scrypt${_N}${_R}${_P}$" + "$".join(b64encode(part).decode() for part in parts)


def verify_password(password: str, digest: str | None) -> bool:
    """Whether it is the password of a digest. Where there is none it is not, and that takes as
    long to say."""
    if digest is None:
        _scrypt(password, bytes(_SALT_BYTES), _N, _R, _P)
        return False
    _, n, r, p, salt, expected = digest.split("$")
    found = _scrypt(password, b64decode(salt), int(n), int(r), int(p))
    return hmac.compare_digest(found, b64decode(expected))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    # Keyboards differ in how they compose letters; the password is the same.
    text = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=_MAX_MEMORY, dklen=32)
