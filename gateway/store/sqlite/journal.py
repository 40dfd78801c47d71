"""The journal of the request log: entries are durable here until the database has them.

A commit of SQLite writes and flushes several pages; a frame is one write of a file whose blocks
exist already. The file is only there while a gateway runs, or after one was killed.
"""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Sequence
from errno import EEXIST
from pathlib import Path
from typing import Final

from gateway.store.log.batch import sanitize_entry
from gateway.store.records import LogEntry
from gateway.store.sqlite.file import create_file, sync_directory
from gateway.store.sqlite.journal_format import BLOCK, BLOCKS, encode_frame, encode_head

JOURNAL_END: Final = "-requests"
"""The end of its name, which begins with that of the database."""

_PART: Final = ".part"


def journal_of(database: Path) -> Path:
    """Returns the path of a database's journal, beside its write-ahead log."""
    return database.with_name(f"{database.name}{JOURNAL_END}")


class Journal:
    """The file of one boot. Entries are appended, and reach the database, in the same order."""

    def __init__(self, path: Path, boot_id: str) -> None:
        """Creates the file, complete or not at all. Raises OSError, also if there is one."""
        self._number = 0
        self._path = path
        self._boot_id = boot_id
        self._next = 1
        self._total = 0
        self._frames: deque[tuple[int, int, int]] = deque()
        """Of frames that the database has not: number, first block, entries up to its end."""
        if path.exists():
            raise FileExistsError(EEXIST, os.strerror(EEXIST))
        part = path.with_name(f"{path.name}{_PART}")
        create_file(part)
        self._handle = os.open(part, os.O_RDWR | os.O_CLOEXEC | os.O_DSYNC)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._handle, 0)
            # Zeros that are written: blocks that are only reserved cost a change of the file
            # system's own structures each.
            _write(self._handle, encode_head(boot_id) + bytes((BLOCKS - 1) * BLOCK), 0)
            part.rename(path)
            sync_directory(path.parent)
        except BaseException:
            os.close(self._handle)
            part.unlink(missing_ok=True)
            raise

    def append(self, entries: Sequence[LogEntry]) -> bool:
        """Makes entries durable, as one frame; returns False if there is no room. After that, or
        an OSError, the database has to get everything before the next one."""
        # The number of a frame that could not be written is not used again: it may be in the file.
        self._number += 1
        try:
            frame = encode_frame(self._boot_id, self._number, entries)
        except TypeError:  # what JSON does not have, the database has not either
            sanitized = [sanitize_entry(entry) for entry in entries]
            frame = encode_frame(self._boot_id, self._number, sanitized)
        count = len(frame) // BLOCK
        if (block := self._room(count)) is None:
            return False
        _write(self._handle, frame, block * BLOCK)
        self._next = block + count
        self._total += len(entries)
        self._frames.append((self._number, block, self._total))
        return True

    def covered(self, left: int) -> int:
        """Returns the number of the last frame without any of the last `left` entries, 0 if there
        is none that is not released."""
        if not left:
            return self._number
        most = self._total - left
        return max((number for number, _, total in self._frames if total <= most), default=0)

    def _room(self, count: int) -> int | None:
        """Returns the first of so many free blocks, None if there are not so many."""
        if not self._frames:
            first, last = 1, BLOCKS
        elif self._next <= (oldest := self._frames[0][1]):
            first, last = self._next, oldest
        elif self._next + count <= BLOCKS:
            return self._next
        else:
            first, last = 1, oldest
        return first if first + count <= last else None

    def release(self, number: int) -> None:
        """The database has the frames up to this one."""
        while self._frames and self._frames[0][0] <= number:
            self._frames.popleft()

    def close(self) -> None:
        """Removes the file, unless the database has not everything in it."""
        if not self._frames:
            self._path.unlink(missing_ok=True)
            sync_directory(self._path.parent)
        os.close(self._handle)


def _write(handle: int, data: bytes, offset: int) -> None:
    if os.pwrite(handle, data, offset) != len(data):
        raise OSError("it was not written completely")
