"""The conversation that coding agents hide in the name of their user. It must not know what follows
from one."""

from __future__ import annotations

import re
from typing import Final

import orjson

_SESSION_SUFFIX: Final = re.compile(r"_session_([0-9a-zA-Z-]+)\Z")


def agent_session_id(user: str) -> str | None:
    """At the end of the name, or a field where the name is a JSON object."""
    if match := _SESSION_SUFFIX.search(user):
        return match[1]
    if not user.startswith("{"):
        return None
    try:
        identity = orjson.loads(user)
    except orjson.JSONDecodeError:
        return None
    session = identity.get("session_id") or identity.get("session")
    return session if isinstance(session, str) else None
