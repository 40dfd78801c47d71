"""`python -m tests.support.fork_server FILE`: starts commands of the gateway as processes.

It has imported them once, so that a start costs a fork instead of a second of processor time. The
processes are children of whoever asked (`ForkedProcess`), with their own signals, files and
exit code, and they end as interpreters do.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import sys
from importlib import import_module
from typing import Any, Final

IMPORTED: Final = (
    *("uvloop", "gateway.cli.serve", "gateway.cli.key", "gateway.cli.db", "gateway.cli.admin"),
    "gateway.console.pages",
)


def _wait_for_request(connection: socket.socket) -> dict[str, Any]:
    """Return, in a new process each time, what it is to run."""
    while True:
        begun, files, _, _ = socket.recv_fds(connection, 1, 64)
        if not begun:
            sys.exit()
        with connection.makefile("rb") as lines:
            request: dict[str, Any] = json.loads(lines.readline())
        assert len(os.listdir("/proc/self/task")) == 1  # a fork would lose the other threads
        if (child := os.fork()) == 0:
            if (own := os.fork()) == 0:
                connection.close()
                _become(request, files)
                return request
            connection.sendall(b"%d\n" % own)
            os._exit(0)
        for file in files:
            os.close(file)
        os.waitpid(child, 0)
        connection.sendall(b"ended\n")  # the new process has its other parent now


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Take over files, environment and folder: standard files, then those that systemd passes."""
    high = [os.dup(file) for file in files]  # none of them is in the way of another
    os.closerange(3, min(high))
    for number, file in enumerate(high):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    if inherited := len(files) - 3:
        os.environ.setdefault("LISTEN_PID", str(os.getpid()))
        os.environ.setdefault("LISTEN_FDS", str(inherited))
    os.chdir(request["folder"])
    sys.stdout.reconfigure(line_buffering="PYTHONUNBUFFERED" in os.environ)
    sys.argv = request["command"]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in IMPORTED:
        import_module(module)
    gc.freeze()
    request = _wait_for_request(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module(request["command"][0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
