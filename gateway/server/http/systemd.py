"""systemd: it is told the daemon's state, and opens listening sockets before the start, which it
keeps open between two processes.

Protocols: sd_notify(3), one datagram per message to the socket named in NOTIFY_SOCKET;
sd_listen_fds(3): LISTEN_FDS file descriptors from 3 on, for the process LISTEN_PID.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_FIRST_FILE: Final = 3
_VARIABLES: Final = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")


def notify(*assignments: str) -> None:
    """Sends lines such as `READY=1`."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.sendall("\n".join(assignments).encode())


@contextmanager
def announced_reload() -> Iterator[None]:
    """Tells systemd of the begin and the end of a reload: between the two messages it shows the
    unit as reloading. The end is told if the reload fails, too, as the gateway serves on. The time
    is what units with `Type=notify-reload` compare."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
    try:
        yield
    finally:
        notify("READY=1")


async def run_watchdog(healthy: Callable[[], bool]) -> None:
    """Notifies the watchdog at a third of its interval, as long as `healthy` is true."""
    interval = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6
    if not interval:
        return
    while True:
        if healthy():
            notify("WATCHDOG=1")
        await asyncio.sleep(interval / 3)


class ActivationError(Exception):
    """A file descriptor of systemd is no listening TCP socket; the message says which."""


def inherited_sockets() -> list[socket.socket]:
    """The sockets for this process; none where it was started without. Call it once: it removes
    the variables, so that no other process takes them for its own. Raises `ActivationError`."""
    count, pid, _ = (os.environ.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    files = range(_FIRST_FILE, _FIRST_FILE + int(count))
    for file in files:
        try:
            os.set_inheritable(file, False)
        except OSError as error:
            raise ActivationError(
                f"LISTEN_FDS={count}, but file descriptor {file}: {error.strerror}"
            ) from None
    return [_listening_socket(file) for file in files]


def _listening_socket(file: int) -> socket.socket:
    try:
        found = socket.socket(fileno=file)
    except OSError:
        raise ActivationError(f"file descriptor {file} of systemd is no socket") from None
    if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
        kind = f"{found.family.name}, {found.type.name}"
        raise ActivationError(
            f"file descriptor {file} of systemd is no TCP socket ({kind}): ListenStream= of the "
            "socket unit has to be an address and a port"
        )
    if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise ActivationError(
            f"file descriptor {file} of systemd does not listen: the socket unit needs Accept=no"
        )
    return found
