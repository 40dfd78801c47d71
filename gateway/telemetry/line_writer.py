"""Writes lines to a file descriptor in a thread: standard error may be a pipe that nobody reads."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

Render = Callable[[], bytes]
"""One or several lines, each with its line break. One that raises is lost."""

MAX_WAITING: Final = 10_000
"""Lines that may wait."""
MAX_SIZE: Final = 8 * 2**20
"""Characters of what may wait."""
_MINOR_SHARE: Final = 0.8
"""The share of both limits for lines that are not urgent."""
_GATHER: Final = 0.02
"""Seconds for which lines that are not urgent are gathered, so that many need one call."""
_PIECE: Final = 64 * 1024


class LineWriter:
    """Lines are rendered in the thread. Those for which there is no room are dropped; `note` tells
    of their number as soon as there is room again."""

    def __init__(self, descriptor: int, note: Callable[[int], bytes]) -> None:
        self._descriptor = descriptor
        self._note = note
        # Reentrant: a finalizer may log while a line is added.
        self._changed = threading.Condition(threading.RLock())
        self._queue = deque[Render]()
        self._size = self._dropped = 0
        self._urgent = self._closing = self._writing = False
        self._thread = threading.Thread(target=self._run, name="process log", daemon=True)
        self._thread.start()

    def put(self, render: Render, size: int, *, urgent: bool) -> None:
        """Queues a line from any thread; never waits. `size` is about the number of characters."""
        share = 1 if urgent else _MINOR_SHARE
        with self._changed:
            if self._closing:
                if not self._thread.is_alive():  # else it is stuck, and this would be too
                    self._write(_rendered(render))
                return
            if len(self._queue) >= MAX_WAITING * share or self._size + size > MAX_SIZE * share:
                self._dropped += 1
                return
            self._queue.append(render)
            self._size += size
            if (urgent and not self._urgent) or len(self._queue) == 1:
                self._urgent = self._urgent or urgent
                self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Waits until everything is written; False if that takes longer."""
        with self._changed:
            if self._closing:
                return not self._thread.is_alive()
            self._urgent = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not (self._queue or self._writing), timeout)

    def close(self, timeout: float) -> None:
        """Writes what waits, for `timeout` seconds at most."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)

    def _run(self) -> None:
        while self._await_lines():
            with self._changed:
                queue, dropped = self._queue, self._dropped
                self._queue = deque()
                self._size = self._dropped = 0
                self._urgent, self._writing = False, True
            lost = self._write_all(queue)
            if dropped and not self._write(self._note(dropped)):
                lost += dropped
            with self._changed:
                self._dropped += lost
                self._writing = False
                self._changed.notify_all()
        if self._dropped:
            self._write(self._note(self._dropped))

    def _await_lines(self) -> bool:
        """Waits for lines; False after the last one."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            if not (self._urgent or self._closing):
                self._changed.wait_for(lambda: self._urgent or self._closing, _GATHER)
            return bool(self._queue)

    def _write_all(self, queue: deque[Render]) -> int:
        """The number of lines that could not be written."""
        lost = 0
        while queue:
            piece, lines = bytearray(), 0
            while queue and len(piece) < _PIECE:
                line = _rendered(queue.popleft())
                piece += line
                lines += bool(line)
                lost += not line
            if not self._write(piece):
                lost += lines
        return lost

    def _write(self, data: bytes | bytearray) -> bool:
        """Writes lines; False if the file is closed or full."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # whoever started the gateway has made it non-blocking
                select.select((), (self._descriptor,), ())
            except OSError:
                return False
        return True


def _rendered(render: Render) -> bytes:
    """Renders lines; empty if this fails: the thread has to go on, and cannot log."""
    try:
        return render()
    except Exception:  # whatever a record holds
        return b""
