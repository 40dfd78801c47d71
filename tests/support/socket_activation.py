"""Passes listening sockets to a process, as systemd does."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_ACTIVATE = """
import fcntl, os, sys
files, command = sys.argv[1].split(","), sys.argv[2:]
high = [fcntl.fcntl(int(file), fcntl.F_DUPFD_CLOEXEC, 100) for file in files]
for number, file in enumerate(high, 3):
    os.dup2(file, number)
os.environ.setdefault("LISTEN_PID", str(os.getpid()))
os.environ.setdefault("LISTEN_FDS", str(len(files)))
os.execv(command[0], command)
"""
"""File descriptors from 3 on, for the process that it becomes."""


def activation(files: Sequence[int]) -> list[str]:
    """What a command begins with that gets these file descriptors, which it inherits."""
    return [sys.executable, "-c", _ACTIVATE, ",".join(map(str, files))] if files else []
