"""Stored responses that wait to be written, and are read in memory until then. Keys take turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import zip_longest
from typing import Final

from gateway.store import response_rows as rows
from gateway.store.records import StoredResponse

MAX_PENDING: Final = 64 * 2**20
"""Bytes that wait to be written, a quarter of them at most of one key. Of a key of which nothing
waits there is room for a row until they are twice as many."""

_MAX_BATCH: Final = 64
_BATCH_SIZE: Final = 256 * 1024
"""Bytes of a batch of several rows: other keys wait for it."""


class PendingResponses:
    """Rows by token and id, in the order in which they came; a later one of the same id replaces an
    earlier one."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, StoredResponse]] = {}
        self._sizes = Counter[str]()

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def find(self, token_id: str, id: str | None) -> StoredResponse | None:
        return self._rows.get(token_id, {}).get(id or "")

    def newest(self, token_id: str) -> str | None:
        """Returns the id of the row that came last."""
        return next(reversed(self._rows.get(token_id, {})), None)

    def add(self, reply: StoredResponse) -> bool:
        """Adds a row, if there is memory for it; returns whether there is."""
        before = self.find(reply.token_id, reply.id)
        growth = row_size(reply) - (row_size(before) if before is not None else 0)
        own, total = self._sizes[reply.token_id], self._sizes.total()
        is_full = total > 0 and total + growth > (MAX_PENDING if own else 2 * MAX_PENDING)
        if is_full or (own and own + growth > MAX_PENDING // 4):
            return False
        self._rows.setdefault(reply.token_id, {})[reply.id] = reply
        self._sizes[reply.token_id] += growth
        return True

    def remove(self, written: Iterable[StoredResponse]) -> None:
        """Removes a batch; rows that were replaced meanwhile stay. Its keys have the last turns."""
        for reply in written:
            if self.find(reply.token_id, reply.id) is not reply:
                continue
            waiting = self._rows.pop(reply.token_id)
            del waiting[reply.id]
            self._sizes[reply.token_id] -= row_size(reply)
            if waiting:
                self._rows[reply.token_id] = waiting
            else:
                del self._sizes[reply.token_id]

    def chain(self, token_id: str, id: str) -> tuple[list[StoredResponse], str | None]:
        """Returns the part of the chain that waits, and the id of the reply before it."""
        newest: list[StoredResponse] = []
        current: str | None = id
        while (reply := self.find(token_id, current)) is not None:
            newest.append(reply)
            current = reply.previous_id
        return newest[::-1], current

    def next_batch(self) -> list[StoredResponse]:
        """Returns a row of each key in turn."""
        batch: list[StoredResponse] = []
        room = _BATCH_SIZE
        turns = zip_longest(*(waiting.values() for waiting in self._rows.values()))
        for reply in (reply for turn in turns for reply in turn if reply is not None):
            if batch and (row_size(reply) > room or len(batch) == _MAX_BATCH):
                break
            batch.append(reply)
            room -= row_size(reply)
        return batch


def row_size(reply: StoredResponse) -> int:
    """Bytes of a row that is not compressed."""
    texts = (reply.request, reply.reply or b"", reply.events or b"")
    return sum(map(len, texts)) + rows.ROW_SIZE
