"""The conversation that coding agents hide in the name of their user. It must not know what follows
from one."""

from __future__ import annotations

import re
from typing import Final

import orjson

_NAMED: Final = re.compile(r"_session_([0-9a-zA-Z-]+)\Z")


def session_of(user: str) -> str | None:
    """At the end of the name, or a field where the name is a JSON object."""
    if found := _NAMED.search(user):
        return found[1]
    if not user.startswith("{"):
        return None
    try:
        said = orjson.loads(user)
    except orjson.JSONDecodeError:
        return None
    session = said.get("session_id") or said.get("session")
    return session if isinstance(session, str) else None
