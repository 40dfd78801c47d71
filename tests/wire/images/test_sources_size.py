"""Image sizes from the first bytes of a file."""

from __future__ import annotations

import base64
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.images.sources import image_size
from tests.simulator import images

WIDTH, HEIGHT = 1568, 700


def riff(kind: bytes, data: bytes) -> bytes:
    return b"RIFF" + pack("<I", 99) + b"WEBP" + kind + pack("<I", len(data)) + data


def segment(marker: int, data: bytes) -> bytes:
    return pack(">BBH", 0xFF, marker, len(data) + 2) + data


FRAME = segment(0xC2, pack(">BHH", 8, HEIGHT, WIDTH) + bytes(10))
FILES = {
    "png": b"\x89PNG\r\n\x1a\n" + pack(">I4sII", 13, b"IHDR", WIDTH, HEIGHT) + bytes(40),
    "gif": b"GIF89a" + pack("<HH", WIDTH, HEIGHT) + bytes(40),
    "jpeg": b"\xff\xd8" + segment(0xE0, b"JFIF" + bytes(10)) + FRAME,
    "jpeg with a preview": b"\xff\xd8" + segment(0xE1, bytes(60_000)) + FRAME,
    "webp": riff(b"VP8 ", bytes(6) + pack("<HH", WIDTH, HEIGHT | 0x4000)),
    "webp, lossless": riff(b"VP8L", b"\x2f" + pack("<I", WIDTH - 1 | HEIGHT - 1 << 14)),
    "webp, extended": riff(
        b"VP8X", bytes(4) + pack("<HBHB", WIDTH - 1, 0, HEIGHT - 1, 0) + bytes(4)
    ),
}
NONE = {
    "nothing": b"",
    "text": b"Hello, this is no picture at all",
    "cut": FILES["png"][:18],
    "jpeg, cut": FILES["jpeg"][:-12],
    "jpeg, broken": b"\xff\xd8" + bytes(100),
    "webp, unknown": riff(b"VP9 ", bytes(20)),
}


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_sizes(file: bytes) -> None:
    assert image_size(base64.b64encode(file).decode()) == (WIDTH, HEIGHT)


@pytest.mark.parametrize("file", NONE.values(), ids=NONE)
def test_unreadable_sizes(file: bytes) -> None:
    assert image_size(base64.b64encode(file).decode()) is None


@pytest.mark.parametrize(
    "data",
    [
        images.PNG,
        images.GIF,
        images.JPEG,
        images.PROGRESSIVE,
        images.LOSSY,
        images.LOSSLESS,
        images.EXTENDED,
    ],
)
def test_real_images(data: str) -> None:
    assert image_size(data) == (12, 7)


@given(
    st.text(max_size=300) | st.binary(max_size=300).map(lambda raw: base64.b64encode(raw).decode())
)
def test_any_bytes(data: str) -> None:
    image_size(data)


@given(st.sampled_from(sorted(FILES)), st.binary(max_size=80))
def test_truncated_image(name: str, end: bytes) -> None:
    image_size(base64.b64encode(FILES[name][:14] + end).decode())
