"""What can be said about an image without looking at its pixels: its type and its size.

This room must not know where the image stood, and it never opens a connection.
"""

from __future__ import annotations

import binascii
import struct
from base64 import b64decode
from urllib.parse import urlsplit

Size = tuple[int, int]
"""Width and height in pixels."""

_JPEG_NOT_FRAMES = {0xC4, 0xC8, 0xCC}


def describe(url: str) -> str:
    """Names an image's type and size from a base64 data URI, or the host of an address."""
    if not url.startswith("data:"):
        return f"an image at {_host(url) or 'an address without a host'}, which I do not fetch"
    measured = measure(_payload(url))
    if measured is None:
        return "an image of a type that I do not know"
    kind, (width, height) = measured
    return f"a {kind} image of {width}×{height} pixels"


def measure(data: bytes) -> tuple[str, Size] | None:
    """The type and size that the first bytes of an image state; None where they state neither."""
    for kind, measurer in (("PNG", _png), ("GIF", _gif), ("JPEG", _jpeg), ("WebP", _webp)):
        try:
            size = measurer(data)
        except (struct.error, IndexError):  # the image ends before its size
            continue
        if size is not None:
            return kind, size
    return None


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _payload(data_uri: str) -> bytes:
    try:
        return b64decode(data_uri.partition(",")[2])
    except (binascii.Error, ValueError):
        return b""


def _png(data: bytes) -> Size | None:
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> Size | None:
    if not data.startswith((b"GIF87a", b"GIF89a")):
        return None
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _jpeg(data: bytes) -> Size | None:
    if not data.startswith(b"\xff\xd8"):
        return None
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _JPEG_NOT_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None


def _webp(data: bytes) -> Size | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = struct.unpack_from("<I", data, 21)[0]
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width, wide, height, high = struct.unpack_from("<HBHB", data, 24)
            return (wide << 16 | width) + 1, (high << 16 | height) + 1
        case _:
            return None
