"""The admin password: never kept, only what it takes to recognise it.

It must not know where that is kept, nor who tries. What it does takes about 0.1 s of a processor
and 32 MiB, on purpose: do it in a thread, one at a time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import unicodedata
from base64 import b64decode, b64encode
from typing import Final

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
