"""Servers that tests start for themselves on the loopback interface: PostgreSQL and Valkey."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from typing import Final

STARTUP: Final = 20.0
"""Seconds until a server answers, at most."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(
    is_ready: Callable[[], bool],
    process: subprocess.Popen[bytes],
    name: str,
    seconds: float = STARTUP,
) -> None:
    """Raises RuntimeError where the process ends, or is not ready in time."""
    deadline = time.monotonic() + seconds
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{name} did not start")
        time.sleep(0.02)


def end_process(process: subprocess.Popen[bytes], signal: int) -> None:
    """Sends the signal, and kills the process where it does not end."""
    process.send_signal(signal)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
