"""Frames do not depend on the chunks, and keep their bytes."""

from __future__ import annotations

import re
from itertools import pairwise
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.stream.sse import Frame, Framer, FrameTooLarge, replace_data, write_frame
from tests.support.hypothesis_profiles import examples
from tests.wire.stream_cases import STREAMS, frames_of

BOM = b"\xef\xbb\xbf"
SOUP = st.lists(
    st.sampled_from(
        [
            *(b"data", b"event", b"id", b":", b": ", b" ", b"a", b"{}", "ü".encode()),
            *(b"\n", b"\r", b"\r\n", b"\n\n", b"data: x\n\n", b"data: x\r\n\r\n"),
            b"event: e\ndata: x\n\n",
        ]
    ),
    max_size=30,
).map(b"".join)


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({0, len(raw), *(place % (len(raw) + 1) for place in places)})
    return [raw[start:stop] for start, stop in pairwise(marks)]


def naive(raw: bytes) -> list[tuple[bytes, bytes | None]]:
    """The standard's grammar, line by line, without any regard for speed or for cuts."""
    found: list[tuple[bytes, bytes | None]] = []
    name, data, fresh = b"", [], True
    for line in re.split(rb"\r\n|\n|\r", raw.removeprefix(BOM)):
        if line:
            fresh = False
            field, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            name = value if field == b"event" else name
            data += [value] if field == b"data" else []
        elif not fresh:
            found.append((name, b"\n".join(data) if data else None))
            name, data, fresh = b"", [], True
    if not fresh:
        found.append((name, b"\n".join(data) if data else None))
    return found


@pytest.mark.parametrize(
    ("raw", "frames"),
    [
        (b"data: x\n\n", [(b"", b"x")]),
        (b"data:x\n\n", [(b"", b"x")]),
        (b"data:  x\n\n", [(b"", b" x")]),
        (b"event: e\ndata: x\n\n", [(b"e", b"x")]),
        (b"data: x\nevent: e\n\n", [(b"e", b"x")]),
        (b"event:e\ndata:x\n\n", [(b"e", b"x")]),
        (b"data: x\r\n\r\n", [(b"", b"x")]),
        (b"data: x\r\r", [(b"", b"x")]),
        (b"data: x\r\n\n", [(b"", b"x")]),
        (b"data: x\ndata: y\n\n", [(b"", b"x\ny")]),
        (b"data\n\n", [(b"", b"")]),
        (b"data:\n\n", [(b"", b"")]),
        (b": comment\n\n", [(b"", None)]),
        (b"event: e\n\n", [(b"e", None)]),
        (b": c\nid: 1\nretry: 5\ndata: x\n\n", [(b"", b"x")]),
        (b"Data: x\n\n", [(b"", None)]),
        (BOM + b"data: x\n\n", [(b"", b"x")]),
        (b"data: x\n\ndata: y", [(b"", b"x"), (b"", b"y")]),
        (b"data: x\n", [(b"", b"x")]),
        (b"\n\n", []),
        (b"", []),
    ],
)
def test_reads(raw: bytes, frames: list[tuple[bytes, bytes | None]]) -> None:
    assert [(frame.name, frame.data) for frame in frames_of([raw]) if frame.raw.strip()] == frames


@examples(10)
@given(
    mark=st.sampled_from([b"", BOM]), soup=SOUP, places=st.lists(st.integers(0, 300), max_size=8)
)
def test_reads_like_the_standard_for_any_split(mark: bytes, soup: bytes, places: list[int]) -> None:
    raw = mark + soup
    complete = frames_of([raw])
    assert frames_of(cut(raw, places)) == complete
    if complete and not complete[0].raw.removeprefix(BOM).strip(b"\r\n"):
        del complete[0]  # blank lines before anything else belong to no frame
    assert [(frame.name, frame.data) for frame in complete if frame.raw.strip(b"\r\n")] == naive(
        raw
    )


@examples(10)
@given(
    raw=st.sampled_from([path.read_bytes() for _, path in STREAMS]),
    places=st.lists(st.integers(0, 10_000), max_size=12),
)
def test_frames_do_not_depend_on_the_split(raw: bytes, places: list[int]) -> None:
    complete = frames_of([raw])
    assert frames_of(cut(raw, places)) == complete
    assert b"".join(frame.raw for frame in complete) == raw


def test_frames_beyond_the_limit_fail() -> None:
    framer = Framer(limit=100)
    assert framer.complete_frames(b"data: " + b"x" * 90) == b""
    with pytest.raises(FrameTooLarge):
        framer.complete_frames(b"y" * 10)


def test_the_limit_is_per_frame() -> None:
    framer = Framer(limit=100)
    block = b"data: " + b"x" * 90 + b"\n\n"
    assert framer.complete_frames(block * 5) == block * 5


@pytest.mark.parametrize(
    ("name", "expected"), [(b"", b"data: {}\n\n"), (b"e", b"event: e\ndata: {}\n\n")]
)
def test_write_frame(name: bytes, expected: bytes) -> None:
    assert write_frame(name, b"{}") == expected
    assert frames_of([expected]) == [Frame(expected, name, b"{}")]


@pytest.mark.parametrize(
    ("raw", "after"),
    [
        (b"data: {}\n\n", b"data: [1]\n\n"),
        (b"data:{}\r\n\r\n", b"data:[1]\r\n\r\n"),
        (b": {}\nevent: e\ndata: {}\nid: 4\n\n", b": {}\nevent: e\ndata: [1]\nid: 4\n\n"),
        (BOM + b"data: {}\n\n", BOM + b"data: [1]\n\n"),
        (b'event: e\ndata: {"a":\ndata: 1}\n\n', b"event: e\ndata: [1]\n\n"),
    ],
)
def test_replaced_data(raw: bytes, after: bytes) -> None:
    (frame,) = frames_of([raw])
    assert replace_data(frame, b"[1]") == after


def test_replaced_data_of_several_lines() -> None:
    (frame,) = frames_of([b'data: {"a":\ndata: 1}\n\n'])
    assert replace_data(frame, b'{"a":\n2}') == b'data: {"a": 2}\n\n'


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_long_frame_in_small_pieces_is_not_copied_for_each(end: bytes) -> None:
    """Twice the lines take about twice the time: ten times as many far less than a hundred."""

    def seconds(lines: int) -> float:
        framer, piece = Framer(), b"data: 12345678" * 10 + end
        began = thread_time()
        for _ in range(lines):
            assert framer.complete_frames(piece) == b""
        return thread_time() - began

    few = min(seconds(2_000) for _ in range(3))
    many = min(seconds(20_000) for _ in range(3))
    assert many < 40 * few + 0.005
