"""Ids of output items and calls: the upstream's own where possible, else generated ones.

Clients send ids back with the history, and upstreams reject unknown ones: generated ids carry a
mark, so that they can be removed again.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.wire.ids import sanitize_name

_GENERATED_MARK: Final = "_gw_"


def is_generated(id: object) -> bool:
    """Whether an id was generated here, for this reply or another."""
    return isinstance(id, str) and _GENERATED_MARK in id


class IdGenerator:
    """The ids of one reply; each is used once."""

    __slots__ = ("_reply_id", "_used")

    def __init__(self, reply_id: str) -> None:
        self._reply_id = reply_id
        self._used: set[str] = set()

    def item_id(self, prefix: str, native_id: Any = None) -> str:
        """The id of an item; ids of its type start with `prefix`."""
        is_native = isinstance(native_id, str) and native_id.startswith(f"{prefix}_")
        return native_id if is_native and self._reserve(native_id) else self._generate(prefix)

    def call_id(self, id: str) -> str:
        """The id that links a call to its result."""
        sanitized = sanitize_name(id)
        return sanitized if id and self._reserve(sanitized) else self._generate("call")

    def _generate(self, prefix: str) -> str:
        generated = f"{prefix}{_GENERATED_MARK}{self._reply_id}_{len(self._used)}"
        self._used.add(generated)
        return generated

    def _reserve(self, id: str) -> bool:
        """False where the id is already used."""
        if id in self._used:
            return False
        self._used.add(id)
        return True
