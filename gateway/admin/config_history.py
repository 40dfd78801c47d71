"""Numbered snapshots of the configuration file, in the state directory.

A snapshot is a file of mode 600: a comment with what is known of it, then the bytes of the
configuration file, which can contain secrets.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson

from gateway.admin.config_file import write_file
from gateway.admin.errors import UnknownSnapshot

FOLDER: Final = "config-history"
"""In the state directory."""

MAX_SNAPSHOTS: Final = 100
MAX_TOTAL: Final = 16 * 2**20
"""Bytes of all snapshots; the latest is always kept."""
MAX_LINES: Final = 20_000
"""Of a text that is compared."""
_MAX_CHANGES: Final = 500
"""Characters."""
_PREFIX: Final = b"# gateway snapshot "


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`at` is in Unix microseconds, `actor` that of the audit log, `cause` how it came here: start,
    reload, edit, or found (it was in the place of the file, and never accepted). `changes` names
    what differs from the configuration before, `same_as` is an earlier snapshot with this text."""

    number: int
    at: int
    actor: str
    cause: str
    changes: str
    file: str
    size: int
    sha256: str
    same_as: int | None = None


class ConfigHistory:
    """Synchronous. Of a gateway and its commands, which may write at the same time."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / FOLDER

    def snapshots(self) -> list[Snapshot]:
        """The latest first."""
        return [snapshot for path in self._paths() for snapshot in _head(path)]

    def read(self, number: int) -> bytes:
        """The bytes of the configuration file. Raises UnknownSnapshot."""
        try:
            content = self._path(number).read_bytes().partition(b"\n")[2]
        except FileNotFoundError:
            raise UnknownSnapshot(number) from None
        known = next(iter(_head(self._path(number))), None)
        if known is None or known.sha256 != digest(content):
            raise UnknownSnapshot(number)
        return content

    def add(
        self, content: bytes, file: str, *, at: int, actor: str, cause: str, changes: str = ""
    ) -> Snapshot | None:
        """Keeps a text, unless it is the latest; removes what is too much. Raises OSError."""
        earlier, hash_ = self.snapshots(), digest(content)
        if earlier and earlier[0].sha256 == hash_:
            return None
        self.folder.mkdir(mode=0o700, exist_ok=True)
        snapshot = Snapshot(
            number=max((int(path.stem) for path in self._paths()), default=0) + 1,
            at=at,
            actor=actor,
            cause=cause,
            changes=changes[:_MAX_CHANGES],
            file=file,
            size=len(content),
            sha256=hash_,
            same_as=next((each.number for each in earlier if each.sha256 == hash_), None),
        )
        head = _PREFIX + orjson.dumps(asdict(snapshot)) + b"\n"
        owner = self.folder.parent.stat()
        with suppress(PermissionError):
            os.chown(self.folder, owner.st_uid, owner.st_gid)
        write_file(self._path(snapshot.number), head + content, owner, 0o600)
        self._remove_oldest()
        return snapshot

    def _remove_oldest(self) -> None:
        total = 0
        for kept, path in enumerate(self._paths()):
            total += path.stat().st_size
            if kept and (kept >= MAX_SNAPSHOTS or total > MAX_TOTAL):
                path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06}.yaml"

    def _paths(self) -> Sequence[Path]:
        files = (path for path in self.folder.glob("*.yaml") if path.stem.isdecimal())
        return sorted(files, key=lambda path: int(path.stem), reverse=True)


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def unified_diff(before: str, after: str, old: str, new: str) -> str:
    """The difference of two texts without secrets, which are called `old` and `new`; empty if there
    is none."""
    lines = before.splitlines(), after.splitlines()
    if max(map(len, lines)) > MAX_LINES:
        return f"Too long to be compared: more than {MAX_LINES} lines."
    return "\n".join(difflib.unified_diff(*lines, old, new, lineterm=""))


def _head(path: Path) -> Iterator[Snapshot]:
    """What is known of a snapshot; nothing of a damaged one."""
    with suppress(OSError, ValueError, TypeError), path.open("rb") as file:
        line = file.readline(8192)
        if line.startswith(_PREFIX):
            yield Snapshot(**orjson.loads(line.removeprefix(_PREFIX)))
