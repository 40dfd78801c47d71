"""Bytes that are in several places, and are not copied into one."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.core.value import value


@value
class Buffers:
    """What these have one after the other."""

    parts: list[bytes | memoryview]

    def __len__(self) -> int:
        """In bytes."""
        return sum(map(len, self.parts))

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)

    def pieces(self, size: int) -> Iterator[bytes | memoryview]:
        """All of it, in pieces of at most `size` bytes."""
        for part in self.parts:
            for start in range(0, len(part), size):
                yield part[start : start + size]
