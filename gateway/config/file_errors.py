"""Why a file cannot be used, for people: where permissions are the cause, whose file it is."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from contextlib import suppress
from pathlib import Path


def file_error_reason(error: OSError, path: Path) -> str:
    """`error` was raised for `path` or something in it."""
    reason = error.strerror or str(error)
    if not isinstance(error, PermissionError):
        return reason
    return f"{reason}: {describe_owner(path)}, and this process runs as {user_name(os.geteuid())}"


def describe_owner(path: Path) -> str:
    """Describes owner and mode of the file, or of the nearest directory above it that can be
    seen."""
    place, status = _nearest(path)
    return f"{place} belongs to {user_name(status.st_uid)} (mode {status.st_mode & 0o7777:04o})"


def _nearest(path: Path) -> tuple[Path, os.stat_result]:
    """The root can always be seen."""
    for place in (path.absolute(), *path.absolute().parents):
        with suppress(OSError):
            return place, place.stat()
    raise FileNotFoundError(path)


def user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def command_of_owner(path: Path) -> str:
    """The command line that runs this process's command as the owner of the file, or of the nearest
    directory above it that can be seen."""
    own = sys.argv[0]
    command = [sys.executable, "-m", "gateway"] if own.endswith("__main__.py") else [own]
    owner = _nearest(path)[1].st_uid
    try:
        user = pwd.getpwuid(owner).pw_name
    except KeyError:
        user = f"#{owner}"
    return shlex.join(["sudo", "-u", user, *command, *sys.argv[1:]])
