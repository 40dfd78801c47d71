"""The lock of the state directory: its holder is the daemon.

The kernel releases it when the holder ends, however it ends, so it cannot become stale. The file
stays: removing it would let two processes lock two files of one name.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gateway.config.file_errors import (
    command_of_owner,
    describe_owner,
    file_error_reason,
    user_name,
)
from gateway.store.errors import StateLocked, StoreError

LOCK_NAME: Final = "lock"

_MAX_PID_BYTES: Final = 32

DATABASE_NAME: Final = "gateway.db"
"""The ledger's file. It is named here because a command that only calls a gateway must not have to
load the database."""

DEMO_NAME: Final = "demo"
"""The demo's directory, which is inside the default state directory."""


@contextmanager
def lock_state_dir(state_dir: Path) -> Iterator[None]:
    """Hold the directory, which is created if it is missing and restricted to its owner (0700).

    Raises StateLocked if another process holds it, StoreError if it cannot be created,
    belongs to another user, or has only files that are not a gateway's.
    """
    check_owner(state_dir)
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = {path.name for path in state_dir.iterdir()} - {DEMO_NAME}
        if names and names.isdisjoint((LOCK_NAME, DATABASE_NAME)):
            raise StoreError(
                f"{state_dir} is no state directory: it has other files, and would be closed to "
                "all other users; name a new or an empty one"
            )
        state_dir.chmod(0o700)
        handle = os.open(state_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        reason = file_error_reason(error, Path(error.filename or state_dir))
        raise StoreError(f"cannot use {state_dir} as state directory: {reason}") from error
    try:
        _lock(handle, state_dir)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def read_holder(state_dir: Path) -> int | None:
    """The process that the lock's file names, which is out of date if it was killed."""
    try:
        content = (state_dir / LOCK_NAME).read_bytes()
    except OSError:
        return None
    return _parse_pid(content)


def check_owner(state_dir: Path) -> None:
    """Raises StoreError if an existing directory belongs to another user than this process:
    what it creates there, the gateway could not write. Call it before anything is created."""
    try:
        owner = state_dir.stat().st_uid
    except OSError:
        return  # it is created, or its use says why it cannot be used
    if owner != os.geteuid():
        raise StoreError(
            f"{describe_owner(state_dir)}, and this process runs as {user_name(os.geteuid())}: "
            f"its files would not belong to the gateway. Run {command_of_owner(state_dir)}"
        )


def _lock(handle: int, state_dir: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = _parse_pid(os.pread(handle, _MAX_PID_BYTES, 0))
        holder = "another process" if pid is None else f"process {pid}"
        raise StateLocked(f"{state_dir} is in use by {holder}", pid) from None


def _parse_pid(content: bytes) -> int | None:
    text = content[:_MAX_PID_BYTES].strip()
    return int(text) if text.isdigit() else None
