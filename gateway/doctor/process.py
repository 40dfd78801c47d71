"""What the kernel tells about the running gateway: its limits, its memory, its service manager."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gateway.core.value import value

_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "INVOCATION_ID")


@value(kw_only=True)
class Process:
    """The facts of a process, None if unknown: another user's process tells only a part.
    `variables` are those that systemd sets; `unit` is the name of the service; `memory_limit` is in
    bytes, 0 for none."""

    pid: int
    open_files: int | None
    memory_limit: int | None
    unit: str | None
    variables: dict[str, str] | None


def read_process(pid: int, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> Process:
    path = proc / str(pid)
    group = _cgroup(path)
    unit = next((part for part in reversed(group.split("/")) if part.endswith(".service")), None)
    return Process(
        pid=pid,
        open_files=_open_files(path),
        memory_limit=_memory_limit(cgroups, group),
        unit=unit,
        variables=_variables(path),
    )


def _open_files(path: Path) -> int | None:
    for line in _read(path / "limits").splitlines():
        if line.startswith("Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else 2**62
    return None


def _cgroup(path: Path) -> str:
    """The path of the unified hierarchy, or of the memory controller."""
    paths = ""
    for line in _read(path / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers or "memory" in controllers.split(","):
            paths = group
    return paths


def _memory_limit(cgroups: Path, group: str) -> int | None:
    """The lowest one of the group and those above it."""
    limits = []
    place = Path(group.lstrip("/"))
    for each in (place, *place.parents):
        for file in ("memory.max", "memory.high"):
            limits += _numbers([_read(cgroups / each / file)])
        limits += _numbers([_read(cgroups / "memory" / each / "memory.limit_in_bytes")])
    return min((limit for limit in limits if limit < 2**60), default=0)


def _numbers(texts: Iterable[str]) -> list[int]:
    return [int(text) for text in map(str.strip, texts) if text.isdigit()]


def _variables(path: Path) -> dict[str, str] | None:
    try:
        content = (path / "environ").read_bytes()
    except OSError:
        return None
    pairs = (entry.decode(errors="replace").partition("=") for entry in content.split(b"\0"))
    return {name: text for name, _, text in pairs if name in _VARIABLES}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
