"""Small image files of every kind, written here byte by byte. Independent of the gateway."""

from __future__ import annotations

import zlib
from base64 import b64encode
from struct import pack

WIDTH, HEIGHT = 12, 7


def chunk(kind: bytes, data: bytes) -> bytes:
    return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))


def png(width: int = WIDTH, height: int = HEIGHT, *, padding: int = 0) -> bytes:
    """A black picture in grey; `padding` bytes of text come first. Its pixels are those of a
    picture of 12x7, however large it claims to be."""
    header = pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = b"\0" * ((min(width, 4096) + 1) * min(height, 4096))
    text = chunk(b"tEXt", b"Comment\0" + b"x" * (padding - 20)) if padding else b""
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            text,
            chunk(b"IDAT", zlib.compress(rows)),
            chunk(b"IEND", b""),
        ]
    )


def segment(marker: int, data: bytes) -> bytes:
    return pack(">BBH", 0xFF, marker, len(data) + 2) + data


def jpeg(*, padding: int = 0, preview: bool = False) -> bytes:
    """The markers of a JPEG around pixels that no decoder could read; `preview`: its metadata have
    an image of their own, with an end."""
    exif = b"Exif\0\0" + (b"\xff\xd8\xff\xda\0\0\xff\xd9" if preview else b"")
    frame = pack(">BHH", 8, HEIGHT, WIDTH) + b"\1\1\x11\0"
    pixels = b"\x12\x34" * (20 + padding // 2)
    return b"".join(
        [
            b"\xff\xd8",
            segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0"),
            segment(0xE1, exif),
            segment(0xC0, frame),
            segment(0xDA, b"\1\1\0\0\x3f\0"),
            pixels,
            b"\xff\xd9",
        ]
    )


_GIF_HEAD = b"GIF89a" + pack("<HHBBB", WIDTH, HEIGHT, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
_GIF_CONTROL = b"\x21\xf9\x04\x00\x0a\x00\x00\x00"
_GIF_LOOP = b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"


def gif_frame(color: int = 0, blocks: int = 1) -> bytes:
    """A frame of 12x7 pixels; more than one sub-block are nonsense of one byte each."""
    pixels = b"\x02\x06\x84\x8f\xa9\xcb\xed\x05" if blocks == 1 else b"\x02" + b"\x01\x55" * blocks
    return b"\x2c" + pack("<HHHHB", 0, 0, WIDTH, HEIGHT, 0) + pixels + bytes([0])


def gif(frames: int = 1, *, blocks: int = 1, comments: int = 0) -> bytes:
    loop = _GIF_LOOP if frames > 1 else b""
    comment = b"\x21\xfe\x03abc\x00"
    images = (_GIF_CONTROL + gif_frame(at, blocks) for at in range(frames))
    return _GIF_HEAD + loop + b"".join(images) + comment * comments + b";"


def riff(kind: bytes, data: bytes) -> bytes:
    body = b"WEBP" + kind + pack("<I", len(data)) + data
    return b"RIFF" + pack("<I", len(body)) + body


def webp(*, padding: int = 0) -> bytes:
    """Lossless, of 12x7 pixels."""
    size = pack("<I", WIDTH - 1 | HEIGHT - 1 << 14)
    return riff(b"VP8L", b"\x2f" + size + bytes(9 + padding))


def iso_media(brand: bytes, *compatible: bytes) -> bytes:
    """The head of a file in the container of HEIC and AVIF."""
    brands = brand + bytes(4) + b"".join(compatible)
    return pack(">I", 8 + len(brands)) + b"ftyp" + brands + pack(">I", 8) + b"mdat"


PNG, JPEG, GIF, WEBP = png(), jpeg(), gif(), webp()
ANIMATED = gif(3)
HEIC = iso_media(b"heic", b"mif1", b"heic")
ACCEPTED = {
    "png": (PNG, "image/png"),
    "jpeg": (JPEG, "image/jpeg"),
    "jpeg with a preview": (jpeg(preview=True), "image/jpeg"),
    "gif": (GIF, "image/gif"),
    "gif of 1987": (b"GIF87a" + GIF[6:], "image/gif"),
    "webp": (WEBP, "image/webp"),
    "png with more behind it": (PNG + b"x" * 100, "image/png"),
    "jpeg with a film behind it": (JPEG + b"ftypmp42" * 1000, "image/jpeg"),
}
"""name → file, media type"""
REFUSED = {
    "tiff": (b"II*\0" + bytes(60), "TIFF"),
    "tiff, big-endian": (b"MM\0*" + bytes(60), "TIFF"),
    "svg": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
    "svg with a head": (b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- x -->\n<svg />", "SVG"),
    "bmp": (b"BM" + pack("<I", 90) + bytes(84), "BMP"),
    "ico": (b"\0\0\1\0\1\0" + bytes(60), "ICO"),
    "avif": (iso_media(b"avif", b"mif1"), "AVIF"),
    "avif of another brand": (iso_media(b"mif1", b"miaf", b"avif"), "AVIF"),
    "jpeg 2000": (b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(20), "JPEG 2000"),
    "jpeg xl": (b"\xff\x0a" + bytes(60), "JPEG XL"),
    "pdf": (b"%PDF-1.7\n" + bytes(60), "PDF"),
    "text": (b"Hello, this is no picture at all", "known type"),
    "html": (b"<!doctype html><html><body>404</body></html>", "known type"),
    "zeros": (bytes(100), "known type"),
}
"""name → file, what the error calls it"""
TRUNCATED = {
    "png": PNG[:-12],
    "png, half": PNG[: len(PNG) // 2],
    "jpeg": JPEG[:-2],
    "jpeg, only its head": JPEG[:20],
    "jpeg with a whole preview": jpeg(preview=True)[:-2],
    "gif": GIF[:-6],
    "gif, only its head": GIF[:10],
    "webp": WEBP[:-5],
}


def encoded(file: bytes) -> str:
    return b64encode(file).decode()


def data_uri(file: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{encoded(file)}"
