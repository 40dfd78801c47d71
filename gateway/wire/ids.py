"""Names of tools, calls, users and conversations in the form that every upstream accepts.

Each depends only on the name, so that all turns of a conversation agree without state.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from gateway.core.prompt import agent_session_id

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_LENGTH: Final = 64


def sanitize_name(name: str) -> str:
    """The name where it has at most 64 characters of `[a-zA-Z0-9_-]`; else a similar one
    with a digest, so that different names stay different."""
    if len(name) <= _MAX_LENGTH and name and not _ILLEGAL.search(name):
        return name
    return f"{_ILLEGAL.sub('_', name)[: _MAX_LENGTH - 9]}_{_digest(name, 8)}"


def shorten_user(user: str) -> str:
    """The user in at most 64 characters; a digest of what looks like personal data. Coding agents
    send a JSON text with device and account."""
    is_plain = len(user) <= _MAX_LENGTH and not user.startswith("{") and "@" not in user
    return user if is_plain else _digest(user, 32)


def conversation_key(user: str | None) -> str | None:
    """A key for the session id that coding agents put into the user field."""
    session = agent_session_id(user) if user else None
    return _digest(session, 32) if session else None


def _digest(name: str, digits: int) -> str:
    return sha256(name.encode(errors="surrogatepass")).hexdigest()[:digits]
