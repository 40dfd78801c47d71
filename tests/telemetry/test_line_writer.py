"""Lines are written by a thread, in order; a reader that does not read costs lines, never time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from gateway.telemetry import line_writer
from gateway.telemetry.line_writer import LineWriter

PIPE_SIZE = 64 * 1024


class Pipe:
    """A pipe and the writer to it. `read` returns all lines after the writer was closed."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        self._is_closed = False
        self.writer = LineWriter(self.writing, lambda count: b"dropped %d\n" % count)

    def put(self, line: bytes, *, urgent: bool = False) -> None:
        self.writer.put(lambda: line + b"\n", len(line), urgent=urgent)

    def start_reading(self) -> None:
        self._read = bytearray()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while chunk := os.read(self._reading, 1 << 20):
            self._read += chunk

    def lines(self) -> list[bytes]:
        self.writer.close(5)
        os.close(self.writing)
        self._is_closed = True
        self._thread.join(5)
        return bytes(self._read).splitlines()

    def close(self) -> None:
        """Ends the writer's thread before its descriptor can belong to another test."""
        os.close(self._reading)
        self.writer.close(5)
        while not self.writer.flush(5):
            time.sleep(0.01)
        if not self._is_closed:
            os.close(self.writing)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_everything_is_written_in_order(pipe: Pipe) -> None:
    pipe.start_reading()
    sent = [b"%d" % number for number in range(5000)]
    for number, line in enumerate(sent):
        pipe.put(line, urgent=number % 7 == 0)
    assert pipe.lines() == sent


def test_a_pipe_that_nobody_reads_blocks_nobody(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_writer, "MAX_WAITING", 100)
    stalled = b"x" * (2 * PIPE_SIZE)
    pipe.put(stalled, urgent=True)
    time.sleep(0.1)
    started = time.perf_counter()
    for number in range(200):
        pipe.put(b"minor %d" % number)
    for number in range(50):
        pipe.put(b"urgent %d" % number, urgent=True)
    assert time.perf_counter() - started < 0.1
    assert not pipe.writer.flush(0.01)
    pipe.start_reading()
    first, *lines, note = pipe.lines()
    assert first == stalled
    assert lines == [
        *(b"minor %d" % number for number in range(80)),
        *(b"urgent %d" % number for number in range(20)),
    ]
    assert note == b"dropped 150"


def test_what_waits_is_limited_in_size(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_writer, "MAX_SIZE", 10_000)
    pipe.put(b"x" * (2 * PIPE_SIZE - 1), urgent=True)  # dropped: it alone is too large
    pipe.put(b"y" * 9_000, urgent=True)
    pipe.start_reading()
    assert sorted(map(len, pipe.lines())) == [len(b"dropped 1"), 9_000]


def test_closing_does_not_wait_for_ever(pipe: Pipe) -> None:
    pipe.put(b"x" * (2 * PIPE_SIZE), urgent=True)
    started = time.perf_counter()
    pipe.writer.close(0.2)
    pipe.put(b"after the end")
    assert not pipe.writer.flush(5)
    assert time.perf_counter() - started < 2


def test_after_the_end_lines_are_written_at_once(pipe: Pipe) -> None:
    pipe.start_reading()
    pipe.put(b"before")
    pipe.writer.close(5)
    pipe.put(b"after")
    assert pipe.lines() == [b"before", b"after"]


def test_a_closed_file_costs_only_its_lines() -> None:
    reading, writing = os.pipe()
    os.close(reading)  # writing fails now
    writer = LineWriter(writing, lambda count: b"dropped %d\n" % count)
    try:
        for _ in range(3):
            writer.put(lambda: b"lost\n", 5, urgent=True)
            assert writer.flush(5)
        reading, again = os.pipe()
        os.dup2(again, writing)  # somebody reads again
        writer.put(lambda: b"kept\n", 5, urgent=True)
        assert writer.flush(5)
        assert os.read(reading, 100) == b"kept\ndropped 3\n"
    finally:
        writer.close(5)


def test_a_pipe_that_does_not_block(pipe: Pipe) -> None:
    os.set_blocking(pipe.writing, False)
    line = b"x" * (4 * PIPE_SIZE)
    pipe.put(line, urgent=True)
    time.sleep(0.05)
    pipe.start_reading()
    assert pipe.lines() == [line]


def test_a_line_that_cannot_be_rendered_is_counted(pipe: Pipe) -> None:
    pipe.start_reading()
    pipe.put(b"before", urgent=True)
    pipe.writer.put(lambda: bytes([1 // 0]), 5, urgent=True)
    pipe.writer.flush(5)
    pipe.put(b"after", urgent=True)
    assert pipe.lines() == [b"before", b"after", b"dropped 1"]


def test_a_loop_that_logs_takes_bounded_memory(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand lines while the reader is slow: those that fit are whole and in order."""
    monkeypatch.setattr(line_writer, "MAX_WAITING", 1000)
    pipe.start_reading()
    for number in range(100_000):
        pipe.put(b"line %d" % number, urgent=True)
    *lines, note = pipe.lines()
    if not note.startswith(b"dropped"):
        lines.append(note)
    numbers = [int(line.split()[1]) for line in lines if line.startswith(b"line")]
    assert numbers == sorted(numbers)
    dropped = sum(int(line.split()[1]) for line in [*lines, note] if line.startswith(b"dropped"))
    assert len(numbers) + dropped == 100_000
