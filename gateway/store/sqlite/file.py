"""Database files on the disk."""

from __future__ import annotations

import os
from pathlib import Path


def create_file(path: Path) -> None:
    """Ensure that the file exists; a new one, and all that SQLite puts next to it, is 0600."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def sync_directory(directory: Path) -> None:
    """Makes names in it durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
