"""Ids of output items and calls: the upstream's own where a client may have them, else new ones.

Clients echo ids with the history, and upstreams refuse those that they did not give out: the ones
made here can be told apart, so that they are left out again. It must not know what items hold.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.wire.ids import sanitize_name

_GENERATED_MARK: Final = "_gw_"


def is_generated(id: object) -> bool:
    """Whether an id was made here, in this reply or in another."""
    return isinstance(id, str) and _GENERATED_MARK in id


class IdGenerator:
    """The ids of one reply: each is given out once."""

    __slots__ = ("_reply_id", "_used")

    def __init__(self, reply_id: str) -> None:
        self._reply_id = reply_id
        self._used: set[str] = set()

    def item_id(self, prefix: str, native_id: Any = None) -> str:
        """The id of an item; `prefix` is what ids of its type begin with."""
        if (
            isinstance(native_id, str)
            and native_id.startswith(f"{prefix}_")
            and self._reserve(native_id)
        ):
            return native_id
        return self._generate(prefix)

    def call_id(self, id: str) -> str:
        """The id that ties a call to its result."""
        sent = sanitize_name(id)
        return sent if id and self._reserve(sent) else self._generate("call")

    def _generate(self, prefix: str) -> str:
        minted = f"{prefix}{_GENERATED_MARK}{self._reply_id}_{len(self._used)}"
        self._used.add(minted)
        return minted

    def _reserve(self, id: str) -> bool:
        """False where the id was given out before."""
        if id in self._used:
            return False
        self._used.add(id)
        return True
