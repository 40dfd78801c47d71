"""A body's buffer grows without copies and is given back once nothing refers to it."""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap

from gateway.server.http.body_buffer import BodyBuffer

MIB = 2**20


def test_what_was_added() -> None:
    for count in (0, 1, 3):
        buffer = BodyBuffer(64 * MIB, lambda close: close())
        for number in range(count):
            buffer.add(bytes([number]) * MIB)
        body = buffer.finish()
        assert bytes(body) == b"".join(bytes([number]) * MIB for number in range(count))
        assert isinstance(body, bytes if count <= 1 else mmap)


def test_it_is_closed_elsewhere_and_not_before_the_last_view_is_gone() -> None:
    later: list[Callable[[], None]] = []
    buffer = BodyBuffer(2 * MIB, later.append)
    buffer.add(b"x" * 2 * MIB)
    body = buffer.finish()
    view = memoryview(body)[5:]
    del buffer, body
    assert not later
    assert bytes(view[:3]) == b"xxx"
    del view
    (close,) = later
    close()
