"""The console's sessions and its password. Sessions are in memory, and in the database for the next
start; of a session's id and of the password only digests are stored."""

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
from dataclasses import asdict, dataclass, field
from typing import Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from gateway.store import sessions as store
from gateway.store.database import Database
from gateway.store.records import SessionRow

IDLE_TIMEOUT: Final = 30 * 60 * 1_000_000
"""Microseconds."""
MAX_AGE: Final = 12 * 3600 * 1_000_000
"""Microseconds."""
MIN_PASSWORD_LENGTH: Final = 12
MAX_PASSWORD_LENGTH: Final = 1024

_SAVE_INTERVAL: Final = 60 * 1_000_000  # microseconds between two saves of `seen_at`
_ID_BYTES: Final = 32
_MAX_AGENT: Final = 300
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 2**15, 8, 1  # about 0.1 s and 32 MiB
_SCRYPT_MAX_MEMORY: Final = 2 * 128 * _SCRYPT_N * _SCRYPT_R
_SALT_BYTES: Final = 16

T = TypeVar("T")

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
    flashes: list[str] = field(default_factory=list)
    one_time_values: dict[str, str] = field(default_factory=dict)
    saved_at: int = 0

    def is_expired(self, now: int) -> bool:
        return now - self.created_at >= MAX_AGE or now - self.seen_at >= IDLE_TIMEOUT


class Sessions:
    """The caller owns the database; `now` gives Unix microseconds."""

    def __init__(
        self,
        database: Database,
        now: Callable[[], int],
        password_digest: str | None,
        rows: list[SessionRow],
    ) -> None:
        self._database = database
        self._now = now
        self._password_digest = password_digest
        self._sessions = {row.digest: Session(**asdict(row)) for row in rows}
        self._lock = asyncio.Lock()  # database and memory change together
        # One thread: passwords are checked one at a time, however many clients try.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="password")

    @classmethod
    async def load(cls, database: Database, now: Callable[[], int]) -> Sessions:
        digest = await store.get_password_digest(database)
        return cls(database, now, digest, await store.all_sessions(database))

    async def close(self) -> None:
        """Waits for a running password check."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    @property
    def has_password(self) -> bool:
        return self._password_digest is not None

    def active(self) -> list[Session]:
        """Oldest first."""
        now = self._now()
        active = [each for each in self._sessions.values() if not each.is_expired(now)]
        return sorted(active, key=lambda each: each.created_at)

    def find(self, id_: str | None) -> Session | None:
        """The session of an id, unless it has expired."""
        session = None if id_ is None else self._sessions.get(_digest(id_))
        return None if session is None or session.is_expired(self._now()) else session

    async def touch(self, session: Session) -> None:
        """Restarts the idle timeout."""
        session.seen_at = now = self._now()
        if now - session.saved_at < _SAVE_INTERVAL:
            return
        session.saved_at = now
        try:
            await store.touch_session(self._database, session.digest, now)
        except SQLAlchemyError as error:  # such as a full disk: the page is shown nevertheless
            log.warning("the last use of a session could not be saved: %s", error)

    async def sign_in(
        self, password: str, address: str, agent: str, replaces: Session | None = None
    ) -> str | None:
        """The id of a new session, which is stored nowhere and ends the session `replaces`; None if
        the password is wrong, has just been changed or is not set."""
        digest = self._password_digest
        if not await self._in_thread(lambda: verify_password(password, digest)):
            return None
        id_ = secrets.token_urlsafe(_ID_BYTES)
        async with self._lock:
            if self._password_digest != digest:
                return None
            now = self._now()
            row = SessionRow(_digest(id_), now, now, address, agent[:_MAX_AGENT])
            ended = [each.digest for each in self._sessions.values() if each.is_expired(now)]
            if replaces is not None:
                ended.append(replaces.digest)
            await store.add_session(self._database, row, ended)
            for each in ended:
                self._sessions.pop(each, None)
            self._sessions[row.digest] = Session(**asdict(row), saved_at=now)
        return id_

    async def sign_out(self, session: Session) -> None:
        async with self._lock:
            self._sessions.pop(session.digest, None)
            await store.remove_session(self._database, session.digest)

    async def end_all(self) -> int:
        """Returns the number of ended sessions."""
        async with self._lock:
            count = len(self.active())
            self._sessions.clear()
            await store.remove_all_sessions(self._database)
        return count

    async def set_password(self, password: str) -> int:
        """Ends all sessions; returns their number."""
        digest = await self._in_thread(lambda: hash_password(password))
        async with self._lock:
            count = len(self.active())
            await store.set_password_digest(self._database, digest)
            self._password_digest = digest
            self._sessions.clear()
        return count

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def hash_password(password: str) -> str:
    """`scrypt$n$r$p$salt$digest`, the last two in base64."""
    salt = secrets.token_bytes(_SALT_BYTES)
    digest = _scrypt(password, salt, _SCRYPT_N, _SCRYPT_R, _SCRYPT_P)
    encoded = "$".join(b64encode(part).decode() for part in (salt, digest))
    return f"scrypt${_SCRYPT_N}${_SCRYPT_R}${_SCRYPT_P}${encoded}"


def verify_password(password: str, digest: str | None) -> bool:
    """Without a digest False, after the same time."""
    if digest is None:
        _scrypt(password, bytes(_SALT_BYTES), _SCRYPT_N, _SCRYPT_R, _SCRYPT_P)
        return False
    _, n, r, p, salt, expected = digest.split("$")
    computed = _scrypt(password, b64decode(salt), int(n), int(r), int(p))
    return hmac.compare_digest(computed, b64decode(expected))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    # Keyboards compose letters in different ways.
    text = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=_SCRYPT_MAX_MEMORY, dklen=32)


def _digest(id_: str) -> bytes:
    return hashlib.sha256(id_.encode("utf-8", "surrogatepass")).digest()
