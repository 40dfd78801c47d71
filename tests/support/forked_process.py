"""Commands of the gateway as processes of their own, without the start of an interpreter."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Final

from tests.support.paths import ROOT

_PR_SET_CHILD_SUBREAPER: Final = 36
_lock = Lock()


class ForkedProcess(subprocess.Popen[Any]):
    """`python -m MODULE ARGUMENT…`, from the fork server of this process: a child of this one, as
    any other. What Python reads before it runs a module (its options and most of its variables)
    does not apply. The process gets `inherited` files as systemd would pass them."""

    def __init__(self, *command: str, inherited: Sequence[int] = (), **options: Any) -> None:
        self._inherited = inherited
        super().__init__(command, **options)

    def _execute_child(self, args: Sequence[str], *options: Any) -> None:
        """Replace fork and exec: `options` are those of `subprocess.Popen`, in its order."""
        folder, environment = options[4], options[5]
        pipes = options[9:15]
        standard = [pipes[0], pipes[3], pipes[5]]
        files = [number if file == -1 else file for number, file in enumerate(standard)]
        self.pid = _fork(args, [*files, *self._inherited], folder, environment)
        self._child_created = True
        self._close_pipe_fds(*pipes)


def run_forked(
    *command: str, input: Any = None, timeout: float = 60, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a command to its end, as `subprocess.run` with `capture_output` does."""
    pipe = subprocess.PIPE
    files = {"stdin": subprocess.DEVNULL if input is None else pipe, "stdout": pipe, "stderr": pipe}
    with ForkedProcess(*command, **files | options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def _fork(
    command: Sequence[str],
    files: Sequence[int],
    folder: str | Path | None,
    environment: Mapping[str, str] | None,
) -> int:
    request = {
        "command": command,
        "folder": str(folder or Path.cwd()),
        "environment": dict(os.environ if environment is None else environment),
    }
    with _lock:
        server = _server()
        socket.send_fds(server, [b"\0"], files)
        server.sendall(json.dumps(request).encode() + b"\n")
        with server.makefile("rb") as answer:
            pid = int(answer.readline())
            assert answer.readline() == b"ended\n"
    return pid


@cache
def _server() -> socket.socket:
    """Return the connection to the fork server, which ends with it. Processes whose parent, the
    server's own child, has ended become children of this process."""
    assert ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1) == 0
    own, other = socket.socketpair()
    environment = {key: os.environ[key] for key in os.environ if not key.startswith("PYTHON")}
    with other:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server", str(other.fileno())],
            pass_fds=[other.fileno()],
            cwd=ROOT,
            env=environment | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
        )

    def end() -> None:
        own.close()
        process.wait(10)

    atexit.register(end)
    return own
