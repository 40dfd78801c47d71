"""First frames of animated GIFs."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.gif_frames import first_frame
from gateway.wire.image_files import decode
from tests.support import image_files as files
from tests.support.image_files import ACCEPTED, TRUNCATED, encoded


def static(file: bytes) -> bytes | None:
    frame = first_frame(encoded(file))
    return None if frame is None else decode(frame)


@pytest.mark.parametrize("name", [name for name in ACCEPTED if "gif" in name])
def test_static_files(name: str) -> None:
    assert static(ACCEPTED[name][0]) is None


@pytest.mark.parametrize("name", [name for name in TRUNCATED if "gif" in name])
def test_truncated_files(name: str) -> None:
    assert static(TRUNCATED[name]) is None


def large_frame(sub_blocks: int, last: int = 7) -> bytes:
    """As encoders write it."""
    full = (b"\xff" + bytes(range(255))) * sub_blocks
    return files.gif_frame()[:10] + b"\x08" + full + bytes([last]) + b"x" * last + b"\0"


HEAD = files.GIF[:19]


@pytest.mark.large
@pytest.mark.parametrize("sub_blocks", [1, 10, 766, 767, 768, 769, 3000, 60_000])
@pytest.mark.parametrize("last", [1, 254])
def test_large_frames(sub_blocks: int, last: int) -> None:
    """Longer than what is decoded at a time, wherever that ends."""
    frame = large_frame(sub_blocks, last)
    assert static(HEAD + frame + b";") is None
    assert static(HEAD + frame + files.gif_frame() + b";") == HEAD + frame + b";"
    assert static(HEAD + frame[:-2]) is None


def test_the_first_frame_of_an_animation() -> None:
    frame = static(files.ANIMATED)
    assert frame is not None
    assert static(frame) is None
    assert frame == files.gif(1)
    assert b"NETSCAPE" not in frame


def test_an_animation_that_is_cut_in_its_second_frame_has_a_first() -> None:
    assert static(files.ANIMATED[:-15]) == files.gif(1)


def test_a_frame_without_the_end_of_the_file_is_static() -> None:
    assert static(files.GIF[:-1]) is None


@pytest.mark.parametrize(
    "contents",
    [{"blocks": 1_000_000}, {"comments": 1_000_000}, {"frames": 2, "blocks": 300_000}],
    ids=["sub-blocks", "extensions", "frames of sub-blocks"],
)
def test_gifs_of_countless_blocks(contents: dict[str, int]) -> None:
    file = files.gif(**contents)
    started = time.thread_time()
    assert static(file) is None
    assert time.thread_time() - started < 0.5


def test_gifs_that_are_none() -> None:
    for file in (files.GIF[:19] + b"?" + bytes(40), files.GIF[:19] + b";"):
        assert static(file) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_no_crash(end: bytes) -> None:
    for start in (files.GIF[:13], HEAD, HEAD + b"\x2c", files.GIF[:-10]):
        static(start + end)
