"""A door before the model that breaks every answer off after so many bytes.

Must not know HTTP: it counts bytes of the answer, its head included.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

ABORT = struct.pack("ii", 1, 0)
PATIENCE = 20.0


@contextlib.contextmanager
def cutter(port: int, size: int) -> Iterator[int]:
    """The port of a door to the model at `port` of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(0.2)
        closing = threading.Event()

        def welcome() -> None:
            while not closing.is_set():
                with contextlib.suppress(TimeoutError):
                    client, _ = door.accept()
                    threading.Thread(target=pass_on, args=(client, port, size), daemon=True).start()

        host = threading.Thread(target=welcome)
        host.start()
        try:
            yield int(door.getsockname()[1])
        finally:
            closing.set()
            host.join(timeout=5)


def pass_on(client: socket.socket, port: int, size: int) -> None:
    """One connection: all of what is asked, `size` bytes of what is answered, and a reset."""
    with client, socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as model:
        client.settimeout(PATIENCE)
        threading.Thread(target=pump, args=(client, model), daemon=True).start()
        left = size
        with contextlib.suppress(OSError):
            while left and (data := model.recv(min(left, 4096))):
                client.sendall(data)
                left -= len(data)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RD)  # else the thread that reads from it keeps it open


def pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
