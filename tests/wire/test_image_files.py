"""Kinds of image files, their ends, and the frames of GIFs."""

from __future__ import annotations

import time
from base64 import b64encode, urlsafe_b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.image_files import (
    MalformedImage,
    decode,
    encode,
    first_frame,
    image_bytes,
    image_kind,
    is_whole,
    repair_base64,
)
from tests.support import image_files as files
from tests.support.image_files import ACCEPTED, REFUSED, TRUNCATED, encoded


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_files(name: str) -> None:
    file, media_type = ACCEPTED[name]
    data = encoded(file)
    assert repair_base64(data) is data
    assert image_kind(data) == media_type
    assert is_whole(data, media_type)
    if media_type == "image/gif":
        assert first_frame(file) is None


@pytest.mark.parametrize("name", REFUSED)
def test_other_files(name: str) -> None:
    file, kind = REFUSED[name]
    assert image_kind(encoded(file)) == (None if kind == "known type" else kind)


def test_heic() -> None:
    for brand in (b"heic", b"heix", b"hevc", b"mif1"):
        assert image_kind(encoded(files.iso_media(brand, b"heic"))) == "image/heic"


@pytest.mark.parametrize("name", TRUNCATED)
def test_truncated_files(name: str) -> None:
    file = TRUNCATED[name]
    data = encoded(file)
    kind = image_kind(data) or ""
    if kind == "image/gif":
        with pytest.raises(MalformedImage, match="truncated"):
            first_frame(file)
    else:
        assert not is_whole(data, kind)


def test_large_files_are_judged_by_their_ends() -> None:
    """More than what is decoded of each end."""
    for file, kind in (
        (files.jpeg(padding=3_000_000), "image/jpeg"),
        (files.png(padding=3_000_000), "image/png"),
        (files.webp(padding=3_000_000), "image/webp"),
    ):
        assert is_whole(encoded(file), kind)
        assert encode(file) == encoded(file)
        assert not is_whole(encoded(file[:2_000_001]), kind)


def test_the_first_frame_of_an_animation() -> None:
    frame = first_frame(files.ANIMATED)
    assert frame is not None
    assert first_frame(frame) is None
    assert frame == files.gif(1)
    assert b"NETSCAPE" not in frame


def test_an_animation_that_is_cut_in_its_second_frame_has_a_first() -> None:
    assert first_frame(files.ANIMATED[:-15]) == files.gif(1)


def test_a_frame_without_the_end_of_the_file_is_static() -> None:
    assert first_frame(files.GIF[:-1]) is None


@pytest.mark.parametrize(
    "file",
    [files.gif(blocks=1_000_000), files.gif(comments=1_000_000), files.gif(2, blocks=300_000)],
    ids=["sub-blocks", "extensions", "frames of sub-blocks"],
)
def test_gifs_of_countless_blocks(file: bytes) -> None:
    started = time.thread_time()
    with pytest.raises(MalformedImage, match="too many blocks"):
        first_frame(file)
    assert time.thread_time() - started < 0.5


def test_gifs_that_are_none() -> None:
    for file in (files.GIF[:19] + b"?" + bytes(40), files.GIF[:19] + b";"):
        with pytest.raises(MalformedImage):
            first_frame(file)


@given(st.binary(max_size=200))
def test_any_bytes_are_no_crash(end: bytes) -> None:
    for name, (file, _) in ACCEPTED.items():
        for data in (encoded(file[:12] + end), encoded(file[:30] + end)):
            kind = image_kind(data)
            assert kind is None or isinstance(is_whole(data, kind), bool), name
    with suppress(MalformedImage):
        first_frame(files.GIF[:13] + end)


@given(st.binary(min_size=1, max_size=300))
def test_base64(file: bytes) -> None:
    data = encoded(file)
    assert repair_base64(data) is data
    assert decode(data) == file
    assert encode(file) == data
    assert image_bytes(data) == len(file)
    wrapped = "\r\n".join(data[at : at + 76] for at in range(0, len(data), 76)) + "\n"
    for other in (wrapped, data.rstrip("="), urlsafe_b64encode(file).decode()):
        assert repair_base64(other) == data


@pytest.mark.parametrize(
    "data", ["A", "AAA=A", "====", "AA=A", "AAA!", "AAA\u00e9", "\ud800AAA", "AAAAA"]
)
def test_what_is_no_base64(data: str) -> None:
    assert repair_base64(data) is None


def test_wrong_characters_are_found_anywhere() -> None:
    data = b64encode(bytes(3_000_000)).decode()
    for at in (0, 1_000_000, len(data) - 1):
        assert repair_base64(data[:at] + "!" + data[at + 1 :]) is None
