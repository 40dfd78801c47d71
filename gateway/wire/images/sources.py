"""Sources of images and documents, and the size of an image in its file's first bytes.

The layouts are those of the public file formats PNG, GIF, JPEG and WebP.
"""

from __future__ import annotations

import binascii
from struct import error as StructError
from struct import unpack_from
from typing import Final

from gateway.core.parts import Source

_HEAD: Final = 64
_JPEG_HEAD: Final = 128 * 1024
"""Base64 characters that are decoded; a photograph may begin with a preview and metadata."""

_JPEG_SIZE_MARKERS: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}

Size = tuple[int, int]


def parse_source(url: str) -> Source:
    """A web address, or the payload of a data URL; a data URL that is not base64 stays a URL."""
    if not url.startswith("data:"):
        return Source(url=url)
    head, comma, data = url.partition(",")
    media_type, _, encoding = head[5:].rpartition(";")
    if not comma or encoding != "base64":
        return Source(url=url)
    return Source(data=data, media_type=media_type.partition(";")[0] or None)


def render_source(source: Source, default_type: str = "") -> str:
    """The web address, or a data URL; `default_type` is for data without a media type."""
    if source.data is None:
        return source.url or ""
    media_type = (source.media_type or default_type).replace("image/jpg", "image/jpeg")
    return f"data:{media_type};base64,{source.data}"


def image_size(data: str) -> Size | None:
    """Width and height in pixels of an image in base64; None where they cannot be read."""
    head = _decode(data[:_HEAD])
    try:
        if head.startswith(b"\x89PNG\r\n\x1a\n"):
            return unpack_from(">II", head, 16)
        if head.startswith(b"GIF8"):
            return unpack_from("<HH", head, 6)
        if head.startswith(b"\xff\xd8"):
            return _jpeg_size(_decode(data[:_JPEG_HEAD]))
        return _webp_size(head) if head.startswith(b"RIFF") else None
    except StructError:  # the file ends before its size
        return None


def _decode(data: str) -> bytes:
    try:
        return binascii.a2b_base64(data[: len(data) & ~3])
    except ValueError:
        return b""


def _webp_size(head: bytes) -> Size | None:
    match head[12:16]:
        case b"VP8 ":
            width, height = unpack_from("<HH", head, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (packed,) = unpack_from("<I", head, 21)
            return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width, width_high, height, height_high = unpack_from("<HBHB", head, 24)
            return (width_high << 16 | width) + 1, (height_high << 16 | height) + 1
        case _:
            return None


def _jpeg_size(head: bytes) -> Size | None:
    at = 2
    while True:
        fill, marker, length = unpack_from(">BBH", head, at)
        if fill != 0xFF:
            return None
        if marker in _JPEG_SIZE_MARKERS:
            height, width = unpack_from(">HH", head, at + 5)
            return width, height
        at += 2 + length
