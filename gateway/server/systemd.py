"""Notifies systemd of the daemon's state, where it runs under systemd.

Protocol: sd_notify(3), one datagram per message to the socket named in NOTIFY_SOCKET.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress


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


async def run_watchdog(healthy: Callable[[], bool]) -> None:
    """Notifies the watchdog at a third of its interval, as long as `healthy` is true."""
    interval = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6
    if not interval:
        return
    while True:
        if healthy():
            notify("WATCHDOG=1")
        await asyncio.sleep(interval / 3)
