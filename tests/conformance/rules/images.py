"""Whether an image is what it says it is: vendors look. Independent of any format."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Final

_DATA: Final = re.compile(r"data:(image/[a-z]+);base64,([A-Za-z0-9+/]+={0,2})")
_STARTS: Final = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


def bad_image_url(url: str, place: str) -> Iterator[str]:
    if url.startswith(("http://", "https://")):
        return
    found = _DATA.fullmatch(url)
    if found is None:
        yield f"{place}: neither an address nor base64 data of an image"
    else:
        yield from bad_image(found[1], found[2], place)


def bad_image(media_type: str, data: str, place: str) -> Iterator[str]:
    start = _STARTS.get(media_type)
    if start is None or not b64decode(data, validate=True).startswith(start):
        yield f"{place}: the data is not of type {media_type}"
