"""Names that travel between formats: of calls, of people and of conversations.

Every function is a pure one of the name alone, so that both ends of a conversation and every turn
of it agree without anything being remembered. It must not know any format.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from gateway.core.prompt import agent_session_id

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_LENGTH: Final = 64


def sanitize_name(name: str, max_length: int = _MAX_LENGTH) -> str:
    """The name where it has at most `longest` characters of `[a-zA-Z0-9_-]`; else one like it that
    has, and that no other name is likely to lead to."""
    if len(name) <= max_length and name and not _ILLEGAL.search(name):
        return name
    return f"{_ILLEGAL.sub('_', name)[: max_length - 9]}_{_digest(name, 8)}"


def shorten_user(user: str) -> str:
    """Who asks, in at most 64 characters and without what looks like personal data: coding agents
    send a JSON text that names device and account."""
    plain = len(user) <= _MAX_LENGTH and not user.startswith("{") and "@" not in user
    return user if plain else _digest(user, 32)


def conversation_key(user: str | None) -> str | None:
    """The name of the conversation that coding agents hide in their user: in a JSON text, or at the
    end of `user_…_account_…_session_…`."""
    session = agent_session_id(user) if user else None
    return _digest(session, 32) if session else None


def _digest(name: str, digits: int) -> str:
    return sha256(name.encode(errors="surrogatepass")).hexdigest()[:digits]
