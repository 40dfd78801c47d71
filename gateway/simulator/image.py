"""Descriptions of images, from their first bytes; pixels are not read."""

from __future__ import annotations

import re
from base64 import b64decode
from urllib.parse import urlsplit

_SIGNATURES = {
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "GIF": rb"GIF8[79]a",
    "JPEG": rb"\xff\xd8\xff",
    "WebP": rb"RIFF....WEBP",
}


def describe_image(url: str) -> str:
    """Type and size in bytes of an image in a base64 data URI; the host of any other URL."""
    if not url.startswith("data:"):
        return f"an image at {_host(url) or 'an address without a host'}, which I do not fetch"
    try:
        data = b64decode(url.partition(",")[2])
    except ValueError:
        data = b""
    for kind, signature in _SIGNATURES.items():
        if re.match(signature, data, re.DOTALL):
            return f"a {kind} image of {len(data)} bytes"
    return "an image of a type that I do not know"


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
