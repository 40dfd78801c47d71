"""Permissions and owners of the configuration, the secrets and the state directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gateway.config.file_errors import describe_owner
from gateway.config.locate import SOCKET_NAME
from gateway.doctor.findings import Area, Finding
from gateway.store.sqlite.lock import DATABASE_NAME, LOCK_NAME

_OTHERS_CAN_WRITE: Final = 0o022
_OTHERS: Final = 0o077
_WORLD: Final = 0o007
_STATE_FILES: Final = (
    *(DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm", f"{DATABASE_NAME}-requests"),
    *(LOCK_NAME, SOCKET_NAME),
)


def check_files(config: Path | None, secrets: Iterable[Path], state_dir: Path) -> list[Finding]:
    area = Area("files")
    if config is not None:
        _check_config(area, config)
    for path in dict.fromkeys(secrets):
        _check_secret(area, path)
    _check_state_dir(area, state_dir)
    return area.findings


def _check_config(area: Area, path: Path) -> None:
    if (status := _stat(area, path)) is None:
        return
    mode = stat.S_IMODE(status.st_mode)
    if mode & _WORLD & 0o002 or (mode & _OTHERS_CAN_WRITE and status.st_gid != 0):
        area.problem(
            str(path),
            f"other users can change it (mode {mode:04o}), and with it where requests go",
            f"chmod go-w {path}",
        )
    elif status.st_uid not in (0, os.geteuid()):
        area.warn(
            str(path),
            f"{describe_owner(path)}, which can change where requests go",
            f"chown root {path}, or run this command as the gateway's user",
        )
    else:
        area.ok(str(path), describe_owner(path))


def _check_secret(area: Area, path: Path) -> None:
    if (status := _stat(area, path)) is None:
        return
    mode = stat.S_IMODE(status.st_mode)
    if mode & _WORLD:
        area.problem(str(path), f"every user can read it (mode {mode:04o})", f"chmod 600 {path}")
    else:
        area.ok(str(path), f"a credential, mode {mode:04o}")


def _check_state_dir(area: Area, path: Path) -> None:
    if (status := _stat(area, path, "does not exist yet: the first start creates it")) is None:
        return
    if not path.is_dir():
        area.problem(str(path), "is no directory", "choose another one with --state-dir")
        return
    uid, me = status.st_uid, os.geteuid()
    if uid != me:
        area.warn(
            str(path),
            f"{describe_owner(path)}: this command runs as another user",
            f"sudo -u '#{uid}' gateway doctor --state-dir {path}",
        )
    elif stat.S_IMODE(status.st_mode) & _OTHERS:
        area.problem(str(path), f"{describe_owner(path)}: others can use it", f"chmod 700 {path}")
    else:
        area.ok(str(path), describe_owner(path))
    for file in (path / name for name in _STATE_FILES):
        _check_state_file(area, file, uid)


def _check_state_file(area: Area, path: Path, owner: int) -> None:
    try:
        status = path.lstat()
    except OSError:
        return  # most exist only while a gateway runs
    if status.st_uid != owner:
        area.problem(
            str(path),
            f"{describe_owner(path)}, but the directory belongs to another user",
            f"stop the gateway, then: chown --reference={path.parent} {path}",
        )
    elif stat.S_IMODE(status.st_mode) & _OTHERS:
        area.problem(str(path), f"{describe_owner(path)}: others can use it", f"chmod 600 {path}")


def _stat(area: Area, path: Path, absent: str | None = None) -> os.stat_result | None:
    """Checks and returns the file's status; with `absent` the file need not exist."""
    try:
        return path.stat()
    except FileNotFoundError:
        if absent is not None and not path.is_symlink():
            area.ok(str(path), absent)
        else:
            area.problem(str(path), "does not exist", "create it, or correct the reference to it")
    except OSError as error:
        reason = f"{error.strerror}: {describe_owner(path)}"
        area.warn(str(path), f"cannot be checked: {reason}", "run this as the gateway's user")
    return None
