"""Servers in a thread, for commands that run in the test's own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def answering_each(
    listener: socket.socket, answer: Callable[[socket.socket], None]
) -> Iterator[None]:
    """Every connection to the listener is answered, one after the other, and closed."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
