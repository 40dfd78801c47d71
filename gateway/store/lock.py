"""Who is the daemon: whoever holds the lock of the state directory. It must not know why.

The kernel gives the lock back when its holder ends, however it ends: no stale lock is possible.
The file stays, for removing it would let two processes lock two files of one name.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gateway.store.errors import StateLocked, StoreError

LOCK_NAME: Final = "lock"

DATABASE_NAME: Final = "gateway.db"
"""The ledger's file in the directory. It is named here because a command that only asks a gateway
must not have to load the database."""

DEMO_NAME: Final = "demo"
"""The demonstration's own directory, which lies in the usual state directory and says nothing
about it."""


@contextmanager
def lock_state_dir(
    state_dir: Path, expected_files: Collection[str] = (LOCK_NAME, DATABASE_NAME)
) -> Iterator[None]:
    """Hold the directory, made where it is missing and closed to others (0700).

    Raises StateLocked where another process holds it, StoreError where it cannot be made or has
    files of which none is one of `ours`.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        present = {path.name for path in state_dir.iterdir()} - {DEMO_NAME}
        if present and present.isdisjoint(expected_files):
            raise StoreError(
                f"{state_dir} is no state directory: it holds other files, and would be closed to "
                "everyone else; name a new or an empty one"
            )
        state_dir.chmod(0o700)
        handle = os.open(state_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise StoreError(f"cannot use {state_dir} as state directory: {fault.strerror}") from fault
    try:
        _lock(handle, state_dir)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _lock(handle: int, state_dir: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        written = os.pread(handle, 32, 0).strip()
        pid = int(written) if written.isdigit() else None
        holder = "another process" if pid is None else f"process {pid}"
        raise StateLocked(f"{state_dir} is in use by {holder}", pid) from None
