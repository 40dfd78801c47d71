"""Which images a request may have: kinds, sizes and numbers (Specification, "Limits").

Images are judged by their bytes: a wrong media type is corrected, as upstreams reject it, and so
are line breaks in base64.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from gateway.core.formats import Format
from gateway.core.value import replace, value
from gateway.errors import (
    EmptyImage,
    ImageTooLarge,
    InvalidImage,
    InvalidImageBase64,
    InvalidImageUrl,
    TooManyImages,
    UnsupportedImageType,
)
from gateway.wire.images.files import (
    GIF,
    HEIC,
    JPEG,
    PNG,
    WEBP,
    image_bytes,
    image_kind,
    is_animated,
    repair_base64,
)
from gateway.wire.images.parts import ImagePart
from gateway.wire.images.sources import image_size

_ACCEPTED: Final = frozenset({PNG, JPEG, WEBP, GIF, HEIC})
"""HEIC is left to the channels: some upstreams accept it."""
_SIZED: Final = frozenset({PNG, WEBP})
"""Their sizes are at their beginning; that of an animation's canvas may be 0."""
KINDS: Final = "only JPEG, PNG, WebP and static GIF are accepted"
_WEB_ADDRESS: Final = re.compile(
    r"https?://[^\x00-\x20\x7f/?#]+(?:[/?#][^\x00-\x1f\x7f]*)?", re.IGNORECASE
)
_MAX_SIGNATURE: Final = 64
"""Characters of bare base64 that tell it from a relative address."""
_FIELDS: Final = {Format.RESPONSES: "input"}


@value(kw_only=True)
class ImageLimits:
    """The limits of a format's upstreams: images per request, megabytes (of 2^20) of one file;
    `max_side` is in pixels, None: unknown. `rejects_animated`: animated GIFs are errors."""

    count: int
    megabytes: int
    max_side: int | None = None
    rejects_animated: bool = False

    @property
    def max_file(self) -> int:
        """The size of the largest file, in bytes."""
        return self.megabytes * 2**20


IMAGE_LIMITS: Final = {
    Format.CHAT: ImageLimits(count=250, megabytes=20),
    Format.MESSAGES: ImageLimits(count=100, megabytes=5, max_side=8000, rejects_animated=True),
    Format.RESPONSES: ImageLimits(count=250, megabytes=20),
}


def check_images(images: Sequence[ImagePart], format: Format) -> list[ImagePart]:
    """The images of a request as they may go to an upstream, without a look at their sizes. Raises
    `InvalidImage`."""
    check_count(images, format, format)
    return [check_image(image, format) for image in images]


def check_count(images: Sequence[ImagePart], format: Format, target: Format) -> None:
    """Raises `InvalidImage` where a request of `format` has more images than a `target` takes."""
    limit = IMAGE_LIMITS[target].count
    if len(images) > limit:
        field = _FIELDS.get(format, "messages")
        reason = f"too many images: {len(images)} > {limit} maximum"
        if target is not format:
            reason += " of the model's upstream"
        raise TooManyImages(field, reason)


def is_oversized(image: ImagePart, target: Format) -> bool:
    """Tells whether an image has more bytes or pixels than a `target` takes."""
    limits, data = IMAGE_LIMITS[target], image.data or ""
    if image_bytes(data) > limits.max_file:
        return True
    size = None if limits.max_side is None else image_size(data)
    return size is not None and max(size) > (limits.max_side or 0)


def check_size(image: ImagePart, target: Format) -> None:
    """Raises `InvalidImage` where an image has more bytes than a `target` takes."""
    limits = IMAGE_LIMITS[target]
    size = image_bytes(image.data or "")
    if size > limits.max_file:
        reason = (
            f"image exceeds {limits.megabytes} MB maximum: {size} bytes > {limits.max_file} bytes"
        )
        raise ImageTooLarge(image.path, reason)


def check_image(image: ImagePart, format: Format) -> ImagePart:
    """The image as base64 of the right media type, or as a web address. Raises `InvalidImage`."""
    read = image if image.url is None else _read_url(image, image.url)
    if read.data is None:
        return read
    return _check_data(read, read.data, format)


def _read_url(image: ImagePart, url: str) -> ImagePart:
    """Its data, of a data URI or bare base64; as it is where it is a web address."""
    if url[:5].lower() == "data:":
        head, comma, data = url.partition(",")
        media_type, _, encoding = head[5:].rpartition(";")
        if not comma or encoding.strip().lower() != "base64":
            reason = f"a data URI must be base64 of an image: {KINDS}"
            raise InvalidImageBase64(image.path, reason)
        return replace(image, url=None, data=data, media_type=media_type.partition(";")[0])
    if _WEB_ADDRESS.fullmatch(url) and _has_host(url):
        return image
    start = url[: min(len(url), _MAX_SIGNATURE) & ~3]
    if start and repair_base64(start) == start and image_kind(start) is not None:
        return replace(image, url=None, data=url, changed=True)
    reason = "Input should be an http or https address, a data URI or base64 of an image"
    raise InvalidImageUrl(image.path, reason)


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False


def _check_data(image: ImagePart, data: str, format: Format) -> ImagePart:
    """Raises `InvalidImage`."""
    if not data:
        raise EmptyImage(image.path, "the image is empty")
    right = repair_base64(data)
    if right is None:
        raise InvalidImageBase64(image.path, "not valid base64")
    kind = image_kind(right)
    if kind is None or kind not in _ACCEPTED:
        name = f"{kind} is not supported" if kind else "not an image of a known type"
        raise UnsupportedImageType(image.path, f"{name}: {KINDS}")
    if kind in _SIZED and not all(image_size(right) or (0,)):
        raise InvalidImage(image.path, "the image has no pixels")
    animated = kind == GIF and is_animated(right)
    if animated and IMAGE_LIMITS[format].rejects_animated:
        raise UnsupportedImageType(image.path, f"an animated GIF is not supported: {KINDS}")
    if animated:
        image = replace(image, animated=True)
    if right is data and kind == image.media_type:
        return image
    return replace(image, data=right, media_type=kind, changed=True)
