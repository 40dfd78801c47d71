"""Writes the configuration file: at once or not at all, with the owner and the mode that it has."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

from gateway.config.file_errors import describe_owner, file_error_reason


def write_file(path: Path, content: bytes, like: os.stat_result, mode: int) -> None:
    """Replaces the file in one step; it belongs to the owner of `like`, as far as this process may
    say so. Raises OSError, which changes nothing."""
    descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            with suppress(PermissionError):
                os.fchown(descriptor, like.st_uid, like.st_gid)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def write_config(path: Path, content: bytes) -> None:
    """Raises OSError. A symbolic link stays one."""
    path = path.resolve()
    status = path.stat()
    write_file(path, content, status, status.st_mode & 0o777)


def why_read_only(path: Path) -> str | None:
    """Why this process cannot replace the file; None if it can."""
    path = path.resolve()
    for place in (path, path.parent):
        if not os.access(place, os.W_OK):
            return f"{describe_owner(place)}, and this process may not write it"
    return "it is mounted alone" if os.path.ismount(path) else None


def write_error(error: OSError, path: Path) -> str:
    """A sentence for people."""
    return f"{path} cannot be written: {file_error_reason(error, path)}."
