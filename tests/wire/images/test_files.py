"""Kinds of image files, and their base64."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.images.files import (
    PIECE,
    decode,
    encode,
    image_bytes,
    image_kind,
    is_animated,
    repair_base64,
)
from tests.support import image_files as files
from tests.support.image_files import ACCEPTED, REFUSED, encoded


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_files(name: str) -> None:
    file, media_type = ACCEPTED[name]
    data = encoded(file)
    assert repair_base64(data) is data
    assert image_kind(data) == media_type


@pytest.mark.parametrize("name", REFUSED)
def test_other_files(name: str) -> None:
    file, kind = REFUSED[name]
    assert image_kind(encoded(file)) == (None if kind == "known type" else kind)


def test_heic() -> None:
    for brand in (b"heic", b"heix", b"hevc", b"mif1"):
        assert image_kind(encoded(files.iso_media(brand, b"heic"))) == "image/heic"


def test_large_files() -> None:
    """More than what is read in one step."""
    file = files.png(padding=3_000_000)
    assert encode(file) == encoded(file)


@given(st.binary(max_size=200))
def test_any_bytes_are_no_crash(end: bytes) -> None:
    for name, (file, _) in ACCEPTED.items():
        for data in (encoded(file[:12] + end), encoded(file[:30] + end)):
            assert image_kind(data) is None or name


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


@pytest.mark.parametrize("padding", [0, 3 * PIECE // 4 - 20, 3 * PIECE // 4 - 15, 2 * PIECE])
def test_animations(padding: int) -> None:
    """Wherever the second frame begins in what is decoded at a time."""
    first, second = files.gif(1)[:-1], files.gif(1)[13:]
    static = first + b"\x55" * padding
    assert not is_animated(encoded(static + b";"))
    assert is_animated(encoded(static + second))
