"""Chains of stored responses in memory: to read one of hundreds of responses takes tens of
milliseconds of processor time, and each client that has its id can name it again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.store.records import CONTINUABLE, StoredResponse

MAX_CACHED: Final = 32 * 2**20
"""Bytes of all chains together, a quarter of them at most of one."""

_ROW: Final = 1024
"""Bytes that a reply takes besides its texts."""


class ChainCache:
    """The chains that were used last, each from its first reply to the one of its key: token and
    id. Texts never change once a reply has ended; whether it still exists is not known here."""

    def __init__(self) -> None:
        self._chains: dict[tuple[str, str], list[StoredResponse]] = {}
        self._size = 0

    def find(self, key: tuple[str, str]) -> list[StoredResponse] | None:
        chain = self._chains.pop(key, None)
        if chain is not None:
            self._chains[key] = chain
        return chain

    def put(self, chain: list[StoredResponse]) -> None:
        """Adds a chain. If there is no room, the token's own chains are evicted before chains of
        other tokens."""
        key = token_id, _ = chain[-1].token_id, chain[-1].id
        size, has_ended = chain_size(chain, _ROW), chain[-1].status in CONTINUABLE
        if key in self._chains or not has_ended or size > MAX_CACHED // 4:
            return
        self._chains[key] = chain
        self._size += size
        while self._size > MAX_CACHED:
            own = (each for each in self._chains if each[0] == token_id and each != key)
            evicted = self._chains.pop(next(own, next(iter(self._chains))))
            self._size -= chain_size(evicted, _ROW)

    def extend(self, reply: StoredResponse) -> None:
        """Adds a chain with the reply, if it continues one of the chains."""
        previous = self._chains.get((reply.token_id, reply.previous_id or ""))
        if previous is not None:
            self.put([*previous, reply._replace(events=None)])


def chain_size(chain: Sequence[StoredResponse], row: int = 0) -> int:
    """Bytes of the requests and replies, and `row` more of each."""
    return sum(len(reply.request) + len(reply.reply or b"") + row for reply in chain)
