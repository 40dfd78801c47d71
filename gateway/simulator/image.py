"""Images, judged and described by their first bytes; pixels are not read.

What real upstreams reject is rejected here too, so that a gateway in front shows whether it does so
first. Other than there, a file is not read to its end.
"""

from __future__ import annotations

import re
from base64 import b64decode
from urllib.parse import urlsplit

from gateway.simulator.request import ModelRequest, RequestError

_SIGNATURES = {
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "GIF": rb"GIF8[79]a",
    "JPEG": rb"\xff\xd8\xff",
    "WebP": rb"RIFF....WEBP",
}
_MOST_IMAGES = 250
_MOST_MEGABYTES = 20


def check_images(request: ModelRequest) -> None:
    """Raise a RequestError for too many images, and for one that is none, too large or
    mislabelled."""
    images = [part.text for turn in request.turns for part in turn.parts if part.kind == "image"]
    if len(images) > _MOST_IMAGES:
        message = f"Too many images: {len(images)} > {_MOST_IMAGES}."
        raise RequestError(message, code="too_many_images")
    for number, url in enumerate(filter(None, images), 1):
        _check_image(url, f"Image {number}")


def _check_image(url: str, name: str) -> None:
    if not url.startswith("data:"):
        if not url.startswith(("http://", "https://")):
            raise RequestError(f"{name}: not an http or https URL.", code="invalid_image_url")
        return
    head, _, encoded = url.partition(",")
    try:
        data = b64decode(encoded, validate=True)
    except ValueError:
        raise RequestError(f"{name}: invalid base64.", code="invalid_base64_image") from None
    kind = _kind(data)
    if kind is None:
        message = f"{name}: unsupported type; use JPEG, PNG, GIF or WebP."
        raise RequestError(message, code="invalid_image_format")
    if head != f"data:image/{kind.lower()};base64":
        message = f"{name}: it is {kind}, and not what its media type says."
        raise RequestError(message, code="invalid_image_format")
    if len(data) > _MOST_MEGABYTES * 2**20:
        message = f"{name}: image exceeds {_MOST_MEGABYTES} MB maximum: {len(data)} bytes."
        raise RequestError(message, code="image_too_large")


def _kind(data: bytes) -> str | None:
    found = (kind for kind, sign in _SIGNATURES.items() if re.match(sign, data, re.DOTALL))
    return next(found, None)


def describe_image(url: str) -> str:
    """Type and size in bytes of an image in a base64 data URI; the host of any other URL."""
    if not url.startswith("data:"):
        return f"an image at {_host(url) or 'an address without a host'}, which I do not fetch"
    try:
        data = b64decode(url.partition(",")[2])
    except ValueError:
        data = b""
    kind = _kind(data)
    return (
        f"a {kind} image of {len(data)} bytes" if kind else "an image of a type that I do not know"
    )


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
