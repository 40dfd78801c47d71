"""Ids of output items and calls: the upstream's own where possible, else generated ones.

Clients send ids back with the history, and upstreams reject unknown ones: generated ids carry a
mark, so that they can be removed again.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.wire.prompt.tool_names import sanitize_name

_GENERATED_MARK: Final = "_gw_"


def is_generated(id: object) -> bool:
    """Tells whether an id was generated here, for this reply or another."""
    return isinstance(id, str) and _GENERATED_MARK in id


def generated_id(prefix: str, suffix: str) -> str:
    """An id with the mark."""
    return f"{prefix}{_GENERATED_MARK}{suffix}"


class IdGenerator:
    """The ids of one reply; each is used once."""

    __slots__ = ("_reply_id", "_used")

    def __init__(self, reply_id: str) -> None:
        self._reply_id = reply_id
        self._used: set[str] = set()

    def item_id(self, prefix: str, native_id: Any = None) -> str:
        """The id of an item; ids of its type start with `prefix`."""
        is_native = isinstance(native_id, str) and native_id.startswith(f"{prefix}_")
        return self._reserve(native_id if is_native else "", prefix)

    def call_id(self, id: str) -> str:
        """The id that links a call to its result."""
        return self._reserve(sanitize_name(id) if id else "", "call")

    def _reserve(self, id: str, prefix: str) -> str:
        """The id where there is one that is not used yet; else a generated one."""
        if not id or id in self._used:
            id = generated_id(prefix, f"{self._reply_id}_{len(self._used)}")
        self._used.add(id)
        return id
