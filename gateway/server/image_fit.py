"""Makes images smaller with Pillow, the extra "images".

It decodes what clients send: the size in pixels is checked before, one image is decoded at a time,
and a JPEG is decoded at the size that is needed.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final

from gateway.wire.image_files import GIF, JPEG, PNG, WEBP, decode
from gateway.wire.image_parts import ImagePart
from gateway.wire.images import Size, image_size

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS: Final = 50_000_000
"""Of an image that is decoded: 200 MB of memory."""
_MAX_SIDE, _MIN_SIDE = 4096, 64
"""Pixels of the longer side: models see no more than some 1500."""
_QUALITY: Final = 85
_FORMATS: Final = {PNG: "PNG", JPEG: "JPEG", WEBP: "WEBP", GIF: "GIF"}


class CannotFit(Exception):
    """The text says why an image cannot be made small enough."""


def can_fit(image: ImagePart) -> bool:
    return image.data is not None and image.media_type in _FORMATS


def fit_image(data: str, media_type: str, max_bytes: int) -> tuple[str, bytes]:
    """Media type and file of at most `max_bytes`, with a longer side of at most 4096 pixels, of an
    image in base64: JPEG, or WebP where it has transparent parts. Raises `CannotFit`."""
    from PIL import Image

    size = image_size(data)  # opening some kinds takes memory for all pixels
    if size is None:
        raise CannotFit("too large, and its size in pixels cannot be read")
    _check_pixels(size)
    try:
        image = Image.open(BytesIO(decode(data)), formats=[_FORMATS[media_type]])
        _check_pixels(image.size)
        return _written(image, max_bytes)
    except CannotFit:
        raise
    except Exception as error:  # whatever a decoder raises for a damaged file
        raise CannotFit(f"the image cannot be decoded: {type(error).__name__}") from None


def _check_pixels(size: Size) -> None:
    width, height = size
    if width * height > MAX_PIXELS:
        raise CannotFit(f"too many pixels to be made smaller: {width}x{height}")


def _written(image: Image.Image, max_bytes: int) -> tuple[str, bytes]:
    """Half as wide and high until it fits."""
    from PIL import ImageOps

    has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    side = min(_MAX_SIDE, max(image.size))
    image.draft("RGB", (side, side))
    image.thumbnail((side, side))
    image = ImageOps.exif_transpose(image).convert("RGBA" if has_alpha else "RGB")
    while side >= _MIN_SIDE:
        image.thumbnail((side, side))
        written = BytesIO()
        image.save(written, "WEBP" if has_alpha else "JPEG", quality=_QUALITY)
        if written.tell() <= max_bytes:
            return WEBP if has_alpha else JPEG, written.getvalue()
        side //= 2
    raise CannotFit("the image cannot be made small enough")
