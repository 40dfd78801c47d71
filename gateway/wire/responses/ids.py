"""Ids of output items and calls: the upstream's own where a client may have them, else new ones.

Clients echo ids with the history, and upstreams refuse those that they did not give out: the ones
made here can be told apart, so that they are left out again. It must not know what items hold.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.wire.identity import legal

_MARK: Final = "_gw_"


def is_minted(id: object) -> bool:
    """Whether an id was made here, in this reply or in another."""
    return isinstance(id, str) and _MARK in id


class Ids:
    """The ids of one reply: each is given out once."""

    __slots__ = ("_given", "_reply_id")

    def __init__(self, reply_id: str) -> None:
        self._reply_id = reply_id
        self._given: set[str] = set()

    def item(self, prefix: str, own: Any = None) -> str:
        """The id of an item; `prefix` is what ids of its type begin with."""
        if isinstance(own, str) and own.startswith(f"{prefix}_") and self._take(own):
            return own
        return self._mint(prefix)

    def call(self, id: str) -> str:
        """The id that ties a call to its result."""
        sent = legal(id)
        return sent if id and self._take(sent) else self._mint("call")

    def _mint(self, prefix: str) -> str:
        minted = f"{prefix}{_MARK}{self._reply_id}_{len(self._given)}"
        self._given.add(minted)
        return minted

    def _take(self, id: str) -> bool:
        """False where the id was given out before."""
        if id in self._given:
            return False
        self._given.add(id)
        return True
