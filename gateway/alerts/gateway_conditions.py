"""The gateway itself: its error rate, its configuration file, its disk, its request log."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.alerts.condition import Condition, exceeds
from gateway.config.alerts import AlertKind, DiskFree, ErrorRate
from gateway.runtime import Runtime

if TYPE_CHECKING:  # only with a database server is it imported
    from gateway.store.postgresql.spool import Spool

WRITE_DELAY: Final = 5.0
"""Seconds for which the request log may wait to be written."""

_LOWER: Final = 0.8
_HIGHER: Final = 1.1
"""The second threshold of error rate and free space, at which the alert can be resolved."""
_DISK_TIMEOUT: Final = 2.0


def gateway_conditions(runtime: Runtime) -> Iterator[Condition]:
    """The configuration file and the request log, where something is wrong with them."""
    error = runtime.config_error
    if error is not None:
        yield Condition(
            AlertKind.CONFIG_INVALID,
            "",
            True,
            "configuration file",
            f"The configuration file is invalid, the earlier one stays active: {error}.",
            {"error": error},
        )
    recorder = runtime.recorder
    seconds, spool = recorder.write_delay, recorder.spool
    if spool is not None and spool.seconds > WRITE_DELAY:
        yield _spooled(spool)
        return
    if seconds <= WRITE_DELAY and recorder.alive:
        return
    yield Condition(
        AlertKind.LOG_UNWRITABLE,
        "",
        True,
        "request log",
        f"The request log cannot be written: {recorder.backlog} entries wait, for {seconds:.0f} s. "
        "Requests are refused soon.",
        {"waiting": recorder.backlog, "seconds": round(seconds)},
    )


def _spooled(spool: Spool) -> Condition:
    return Condition(
        AlertKind.LOG_UNWRITABLE,
        "",
        True,
        "request log",
        f"The database server cannot be written: {spool.count} entries wait in {spool.path}, for "
        f"{spool.seconds:.0f} s. They are written later; when it is full, requests are refused.",
        {"waiting": spool.count, "seconds": round(spool.seconds)},
    )


def error_rate_condition(
    settings: ErrorRate, requests: int, failed: int, *, complete: bool
) -> Condition:
    """`complete`: the counts cover the whole window, so that few requests mean that there were
    few."""
    share = failed / requests if requests else 0.0
    active = exceeds(share, settings.above, settings.above * _LOWER)
    if requests < settings.min_requests:
        active = False if complete else None
    return Condition(
        AlertKind.ERROR_RATE,
        "",
        active,
        "requests",
        f"{failed:,} of {requests:,} requests have failed in the last {settings.window:.0f} s "
        f"({100 * share:.0f} %).",
        {
            "requests": requests,
            "failed": failed,
            "share": round(share, 4),
            "window_seconds": settings.window,
        },
    )


class DiskSpace(NamedTuple):
    """Bytes; `free` is what other users than root can write."""

    total: int
    free: int


class DiskProbe:
    """Asks a file system for its free space, in a thread: it may not answer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._task: asyncio.Task[DiskSpace] | None = None

    async def measure(self) -> DiskSpace | None:
        """None where it is not known in time; a later call gets the answer."""
        if self._task is None:
            self._task = asyncio.ensure_future(asyncio.to_thread(self._read))
        done, _ = await asyncio.wait({self._task}, timeout=_DISK_TIMEOUT)
        if not done:
            return None
        task, self._task = self._task, None
        return task.result() if task.exception() is None else None

    def _read(self) -> DiskSpace:
        total, _, free = shutil.disk_usage(self._path)
        return DiskSpace(total, free)


def disk_condition(settings: DiskFree, space: DiskSpace | None) -> Condition:
    kind = AlertKind.DISK_LOW
    if space is None or not space.total:
        return Condition(kind, "", None)
    needed = max(settings.bytes, space.total * settings.percent // 100)
    percent = 100 * space.free / space.total
    return Condition(
        kind,
        "",
        True if space.free < needed else (None if space.free < needed * _HIGHER else False),
        "disk of the state directory",
        f"The file system of the state directory has {space.free / 2**30:.1f} GiB free "
        f"({percent:.1f} %).",
        {"free_bytes": space.free, "total_bytes": space.total, "free_percent": round(percent, 1)},
    )
