"""Where a large body is put together."""

from __future__ import annotations

from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

_FLAGS: Final = MAP_PRIVATE | MAP_ANONYMOUS
_SMALL: Final = 1024 * 1024


class _Memory(mmap):
    """Memory of its own from the kernel. To give back 27 MB takes milliseconds, for which `close`
    does not keep the interpreter's lock: `run` is to do that in a thread."""

    run: Callable[[Callable[[], None]], None]

    def __del__(self) -> None:
        self.run(self.close)


class BodyBuffer:
    """A buffer of at most `capacity` bytes. It takes what arrives without a copy of what is there,
    and goes back to the kernel in a thread, which `run` has, once nothing refers to it."""

    __slots__ = ("_memory", "_size")

    def __init__(self, capacity: int, run: Callable[[Callable[[], None]], None]) -> None:
        self._memory = _Memory(-1, max(1, capacity), flags=_FLAGS)
        self._memory.run = run
        self._size = 0

    def add(self, data: bytes) -> None:
        end = self._size + len(data)
        self._memory[self._size : end] = data
        self._size = end

    def finish(self) -> bytes | mmap:
        """Returns what was added."""
        if self._size <= _SMALL:
            return self._memory[: self._size]
        self._memory.resize(self._size)
        return self._memory
