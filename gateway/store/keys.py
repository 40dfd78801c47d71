"""Keys: generated, digested, shown in part.

A key is `sk-`, 42 random base62 characters (250 bits) and 6 of CRC32: no `-` or `_` after the
prefix, so that a double click selects all of it. The checksum lets a scanner or a message tell a
mistyped key from an unknown one; imported keys without it are valid too. With that much randomness
a slow hash adds nothing: the ledger stores the plain SHA-256. Tokens of the admin API are the same
with a prefix of their own.
"""

from __future__ import annotations

import hashlib
import secrets
import string
import zlib

PREFIX = "sk-"
ADMIN_PREFIX = "gwa_"
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM = 42
_CHECKSUM = 6


def generate_key(prefix: str = PREFIX) -> str:
    """A new key, which the gateway does not store."""
    body = "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))
    return prefix + body + _checksum(body)


def digest(key: str) -> bytes:
    """The key's SHA-256, 32 bytes: what tokens are looked up by. Any string is allowed."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def display(key: str, prefix: str = PREFIX) -> str:
    """Returns what may be shown of a key: `sk-abcd...wxyz`; of a short one only the beginning."""
    body = key.removeprefix(prefix)
    return f"{prefix}{body[:4]}...{body[-4:]}" if len(body) >= 16 else f"{prefix}{body[:2]}..."


def well_formed(key: str) -> bool:
    """Whether the key has the shape and the checksum of ours: it was typed correctly."""
    body = key.removeprefix(PREFIX)
    return (
        key.startswith(PREFIX)
        and len(body) == _RANDOM + _CHECKSUM
        and all(character in _ALPHABET for character in body)
        and body[_RANDOM:] == _checksum(body[:_RANDOM])
    )


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode("ascii"))
    characters = []
    for _ in range(_CHECKSUM):
        number, digit = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[digit])
    return "".join(reversed(characters))
