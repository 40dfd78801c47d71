"""The path of the admin socket."""

from __future__ import annotations

import os
from pathlib import Path

from gateway.config.locate import MAX_SOCKET_PATH, SOCKET_NAME


class AdminSocketError(Exception):
    """The admin socket cannot be opened; the message says why."""


def socket_path(state_dir: Path) -> Path:
    """Raises AdminSocketError for a path of more than 107 bytes, which Linux does not allow."""
    path = state_dir / SOCKET_NAME
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise AdminSocketError(
            f"The path of the admin socket, {path}, has {length} bytes; the maximum is"
            f" {MAX_SOCKET_PATH}. Choose a shorter state directory."
        )
    return path
