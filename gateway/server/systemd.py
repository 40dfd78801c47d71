"""Notifies systemd of the daemon's state, where it runs under systemd.

Protocol: sd_notify(3), one datagram per message to the socket named in NOTIFY_SOCKET.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


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
    """Between the two messages systemd shows the unit as reloading; also where the reload fails, as
    the gateway serves on. The time is what units with `Type=notify-reload` compare."""
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
