"""The machine: clock, limits of the process, systemd, versions."""

from __future__ import annotations

import ctypes
import importlib.metadata
import platform
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import gateway
from gateway.admin.units import format_count
from gateway.config.schema import Server
from gateway.doctor.findings import Area, Finding
from gateway.doctor.process import Process
from gateway.runtime import unix_microseconds
from gateway.server.http.connections import MAX_DEFAULT, RESERVED_FILES

_YEARS: Final = range(2025, 2100)
_DRIFT: Final = 0.05
"""Seconds between the two clocks within `_SAMPLE` seconds."""
_SAMPLE: Final = 0.2
_TIMEX_BYTES: Final = 512
_TIME_ERROR: Final = 5
_BASE_MEMORY: Final = 256 * 2**20
"""Bytes that a gateway under load takes beside request bodies."""
_OLDEST_SQLITE: Final = (3, 35, 0)
_WAL_RESET_FIXED: Final = (3, 51, 3)
_LIBRARIES: Final = ("aiohttp", "uvloop", "pydantic", "SQLAlchemy", "orjson")


def check_clock(
    now_us: Callable[[], int] = unix_microseconds,
    monotonic: Callable[[], float] = time.monotonic,
) -> list[Finding]:
    area = Area("clock")
    wall_started, started = now_us(), monotonic()
    time.sleep(_SAMPLE)
    drift = abs((now_us() - wall_started) / 1e6 - (monotonic() - started))
    local = time.localtime(now_us() / 1e6)
    year, zone = local.tm_year, time.strftime("%Z (UTC%z)", local)
    if year not in _YEARS:
        remedy = "timedatectl set-ntp true, or set the clock"
        area.problem("time", f"the year is {year}: TLS and budgets need the right time", remedy)
    elif drift > _DRIFT:
        remedy = "look for programs that set the clock (two time services at once)"
        area.warn("time", f"the clock jumped by {drift:.2f} s within {_SAMPLE:g} s", remedy)
    else:
        area.ok("time", f"year {year}, time zone {zone}; budgets and days count in UTC")
    match _kernel_clock_state():
        case None:
            area.warn("synchronisation", "unknown: the kernel does not tell", "timedatectl")
        case state if state == _TIME_ERROR:
            remedy = "timedatectl set-ntp true; in a container this is the host's matter"
            area.warn("synchronisation", "the kernel says that the clock is not", remedy)
        case _:
            area.ok("synchronisation", "by a time service")
    return area.findings


def _kernel_clock_state() -> int | None:
    """adjtimex(2), which only reads here."""
    try:
        library = ctypes.CDLL(None)
        state = library.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return state if state >= 0 else None


def check_process(process: Process | None, server: Server) -> list[Finding]:
    """Limits and service manager of the running gateway; without one, there is none."""
    area = Area("process")
    if process is None:
        remedy = "start the gateway: systemctl start gateway, or gateway serve"
        area.warn("gateway", "does not run: its limits and its service are not checked", remedy)
        return area.findings
    _check_open_files(area, process, server)
    _check_memory(area, process, server)
    _check_systemd(area, process)
    return area.findings


def _check_open_files(area: Area, process: Process, server: Server) -> None:
    files = process.open_files
    if files is None:
        area.warn("open files", "unknown: it is another user's process", _OWN_USER)
        return
    wanted = server.max_connections or MAX_DEFAULT
    possible = (files - RESERVED_FILES) // 2
    text = f"{format_count(files)} allow {format_count(max(0, possible))} connections"
    if server.max_connections is not None and possible < wanted:
        text += f", server.max_connections is {format_count(wanted)}"
        area.problem("open files", text, _files_remedy(wanted))
    elif possible < wanted:
        area.warn("open files", f"{text}, {format_count(wanted)} are usual", _files_remedy(wanted))
    else:
        area.ok("open files", text)


def _files_remedy(connections: int) -> str:
    files = connections * 2 + RESERVED_FILES
    return f"LimitNOFILE={files} in the unit, or ulimit -n {files} before the start"


_OWN_USER: Final = "run this command as the gateway's own user"


def _check_memory(area: Area, process: Process, server: Server) -> None:
    limit, bodies = process.memory_limit, max(server.max_bodies, 2 * server.max_body)
    if not limit:
        area.ok("memory", "no limit of a control group")
        return
    text = f"limit {limit / 2**20:,.0f} MiB, request bodies may take {bodies / 2**20:,.0f} MiB"
    if limit < bodies + _BASE_MEMORY:
        remedy = "raise MemoryMax of the unit, or lower server.max_bodies"
        area.problem("memory", text, remedy)
    else:
        area.ok("memory", text)


def _check_systemd(area: Area, process: Process) -> None:
    variables = process.variables
    if process.unit is None and not (variables or {}).get("INVOCATION_ID"):
        area.ok("systemd", f"process {process.pid} is no service of systemd")
        return
    if variables is None:
        area.ok("systemd", f"{process.unit}; the rest only its own user can see")
        return
    unit = process.unit or "a service"
    watchdog, sockets = variables.get("WATCHDOG_USEC"), variables.get("LISTEN_FDS")
    if "NOTIFY_SOCKET" not in variables:
        area.warn("systemd", f"{unit} has no Type=notify", "use systemd/gateway.service")
    elif watchdog is None:
        area.warn("systemd", f"{unit} has no watchdog", "WatchdogSec=30 in the unit")
    else:
        seconds = int(watchdog) / 1e6 if watchdog.isdigit() else 0
        how = "socket activation" if sockets else "its own socket"
        area.ok("systemd", f"{unit}, watchdog {seconds:g} s, {how}")


def hanging_process(state_dir: Path, pid: int | None) -> list[Finding]:
    """A gateway that holds the state directory, but answers nothing, not even this command."""
    area = Area("process")
    holder = "another process" if pid is None else f"process {pid}"
    area.problem(
        "gateway",
        f"{holder} holds {state_dir} and does not answer",
        "journalctl -u gateway -n 50 says why; then systemctl restart gateway, or end the process",
    )
    return area.findings


def check_versions(running: str | None) -> list[Finding]:
    """`running` is the version of the running gateway."""
    area = Area("versions")
    if running is not None and running != gateway.__version__:
        text = f"{running} runs, this command is {gateway.__version__}"
        area.warn("gateway", text, "restart the gateway, or use the command of its environment")
    else:
        area.ok("gateway", gateway.__version__)
    area.ok("python", f"{platform.python_version()} ({sys.executable})")
    _check_sqlite(area, sqlite3.sqlite_version_info)
    found = [f"{name} {version}" for name in _LIBRARIES if (version := _version(name))]
    area.ok("libraries", ", ".join(found))
    if sys.platform != "win32" and _version("uvloop") is None:
        area.warn("uvloop", "is not installed: a fifth fewer requests", "pip install uvloop")
    return area.findings


def _check_sqlite(area: Area, version: tuple[int, ...]) -> None:
    text = ".".join(map(str, version))
    if version < _OLDEST_SQLITE:
        area.problem("sqlite", f"{text} is too old", "use a Python with SQLite 3.35 or newer")
    elif version < _WAL_RESET_FIXED:
        fixed = ".".join(map(str, _WAL_RESET_FIXED))
        area.ok(
            "sqlite",
            f"{text}; before {fixed} two writing programs can damage the write-ahead log: the "
            "gateway has one writer, so open the file with other programs only for reading",
        )
    else:
        area.ok("sqlite", text)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
