"""Hashing and verifying passwords, one at a time in a thread."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

MIN_PASSWORD_LENGTH: Final = 12
MAX_PASSWORD_LENGTH: Final = 1024

_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 2**15, 8, 1  # about 0.1 s and 32 MiB
_SCRYPT_MAX_MEMORY: Final = 2 * 128 * _SCRYPT_N * _SCRYPT_R
_SALT_BYTES: Final = 16

T = TypeVar("T")


class PasswordThread:
    """One thread: passwords are checked one at a time, however many clients try."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="password")

    async def hash(self, password: str) -> str:
        return await self._run(lambda: hash_password(password))

    async def verify(self, password: str, digest: str | None) -> bool:
        return await self._run(lambda: verify_password(password, digest))

    async def close(self) -> None:
        """Waits for a running check."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def hash_password(password: str) -> str:
    """`scrypt$n$r$p$salt$digest`, the last two in base64."""
    salt = secrets.token_bytes(_SALT_BYTES)
    digest = _scrypt(password, salt, _SCRYPT_N, _SCRYPT_R, _SCRYPT_P)
    encoded = "$".join(b64encode(part).decode() for part in (salt, digest))
    return f"scrypt${_SCRYPT_N}${_SCRYPT_R}${_SCRYPT_P}${encoded}"


def verify_password(password: str, digest: str | None) -> bool:
    """Verifies a password; without a digest the answer is False, after the same time."""
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
