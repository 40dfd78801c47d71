"""Kinds of image files by their first bytes, and their base64.

Nothing else is decoded. The layouts are those of the public file formats.
"""

from __future__ import annotations

import binascii
import re
from typing import Final

from gateway.wire.json.long_texts import LongText

PNG: Final = "image/png"
JPEG: Final = "image/jpeg"
GIF: Final = "image/gif"
WEBP: Final = "image/webp"
HEIC: Final = "image/heic"

_HEAD: Final = 2048
"""Base64 characters that are decoded to tell the kind of a file."""
PIECE: Final = 256 * 1024
"""Base64 characters that are read in one step, within which the interpreter's lock is kept."""
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_REPAIRS: Final = str.maketrans("-_", "+/", " \t\r\n")

_DELAYED_FRAME: Final = re.compile(rb"\x21\xf9\x04.{4}\x00\x2c", re.DOTALL)
"""The start of a GIF's frame that has a delay: 9 bytes that compressed pixels hardly contain."""

_KINDS: Final = (
    (PNG, re.compile(rb"\x89PNG\r\n\x1a\n")),
    (JPEG, re.compile(rb"\xff\xd8\xff")),
    (GIF, re.compile(rb"GIF8[79]a")),
    (WEBP, re.compile(rb"RIFF....WEBP", re.DOTALL)),
    ("AVIF", re.compile(rb".{4}ftyp(?:.{4}){0,16}?avi[fs]", re.DOTALL)),
    (HEIC, re.compile(rb".{4}ftyp(?:hei[cxms]|hev[cxms]|mif1|msf1)", re.DOTALL)),
    ("TIFF", re.compile(rb"II[*+]\x00|MM\x00[*+]")),
    ("BMP", re.compile(rb"BM.{4}\x00{4}", re.DOTALL)),
    ("ICO", re.compile(rb"\x00\x00[\x01\x02]\x00")),
    ("JPEG 2000", re.compile(rb"\x00\x00\x00\x0cjP  |\xff\x4f\xff\x51")),
    ("JPEG XL", re.compile(rb"\xff\x0a|\x00\x00\x00\x0cJXL ")),
    ("PDF", re.compile(rb"%PDF-")),
    (
        "SVG",
        re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<svg[\s>]|<(?:\?xml|!).*?<svg[\s>])", re.I | re.S),
    ),
)
"""A media type that some upstream accepts, or the name of another kind of file."""


def repair_base64(data: str) -> str | None:
    """`data` where it is base64; else without line breaks, with the usual alphabet and padding;
    None where that is no base64 either."""
    if _is_base64(data):
        return data
    if not data.isascii():
        return None
    data = data.translate(_REPAIRS).rstrip("=")
    data += "=" * (-len(data) % 4)
    return data if data and _is_base64(data) else None


def _is_base64(data: str) -> bool:
    if isinstance(data, LongText):
        return True
    if len(data) % 4 or not data.isascii():
        return False
    end = len(data) - 4
    pieces = (data[at : min(at + PIECE, end)] for at in range(0, end, PIECE))
    if any(piece.encode().translate(None, _ALPHABET) for piece in pieces):
        return False
    last = data[end:].encode().translate(None, _ALPHABET)
    return last in (b"", b"=", b"==") and data.endswith(last.decode())


def image_bytes(data: str) -> int:
    """Bytes of a file in base64."""
    return len(data) * 3 // 4 - data.count("=", -2)


def decode(data: str) -> bytes:
    """The file of valid base64."""
    pieces = range(0, len(data), PIECE)
    return b"".join([binascii.a2b_base64(data[at : at + PIECE]) for at in pieces])


def encode(file: bytes) -> str:
    """The base64 of a file."""
    step = PIECE // 4 * 3
    pieces = [
        binascii.b2a_base64(file[at : at + step], newline=False) for at in range(0, len(file), step)
    ]
    return b"".join(pieces).decode()


def image_kind(data: str) -> str | None:
    """A media type, or the name of another kind of file; None where it is unknown."""
    head = decode(data[: min(len(data), _HEAD) & ~3])
    return next((kind for kind, pattern in _KINDS if pattern.match(head)), None)


def is_animated(gif: str) -> bool:
    """Tell whether a GIF in base64 has a second frame."""
    frames, end = 0, b""
    for at in range(0, len(gif), PIECE):
        piece = end + decode(gif[at : at + PIECE])
        frames += len(_DELAYED_FRAME.findall(piece))
        if frames > 1:
            return True
        end = piece[-8:]
    return False
