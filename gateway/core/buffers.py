"""Bytes that are in several places, and are not copied into one."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.core.value import value


@value
class Buffers:
    """Buffers whose bytes follow one another."""

    parts: list[bytes | memoryview]

    def __len__(self) -> int:
        """Returns the length in bytes."""
        return sum(map(len, self.parts))

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)

    def pieces(self, size: int) -> Iterator[bytes | memoryview]:
        """Yields all bytes, in pieces of at most `size` bytes."""
        for part in self.parts:
            for start in range(0, len(part), size):
                yield part[start : start + size]
