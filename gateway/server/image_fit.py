"""Makes images smaller with Pillow, the extra "images".

It decodes what clients send: the size in pixels is checked before, one image is decoded at a time,
and a JPEG is decoded at the size that is needed.
"""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import Final

from gateway.wire.image_files import GIF, JPEG, PNG, WEBP
from gateway.wire.image_parts import ImagePart

MAX_PIXELS: Final = 50_000_000
"""Of an image that is decoded: 200 MB of memory."""
_SIDES: Final = (4096, 2048, 1024, 512)
"""Pixels of the longer side that are tried; models see no more than some 1500."""
_QUALITY: Final = 85
_FORMATS: Final = {PNG: "PNG", JPEG: "JPEG", WEBP: "WEBP", GIF: "GIF"}


class CannotFit(Exception):
    """The text says why an image cannot be made small enough."""


def can_fit(image: ImagePart) -> bool:
    return image.data is not None and image.media_type in _FORMATS


def fit_image(file: bytes, media_type: str, max_bytes: int) -> tuple[str, bytes]:
    """Media type and file of at most `max_bytes`, with a longer side of at most 4096 pixels:
    JPEG, or WebP where the image has transparent parts. Raises `CannotFit`."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image: Image.Image = Image.open(BytesIO(file), formats=[_FORMATS[media_type]])
        if image.width * image.height > MAX_PIXELS:
            raise CannotFit(f"too many pixels to be made smaller: {image.width}x{image.height}")
        image.draft("RGB", (_SIDES[0], _SIDES[0]))
        has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
        image.thumbnail((_SIDES[0], _SIDES[0]))
        image = ImageOps.exif_transpose(image).convert("RGBA" if has_alpha else "RGB")
        for side in _SIDES:
            image.thumbnail((side, side))
            written = BytesIO()
            image.save(written, "WEBP" if has_alpha else "JPEG", quality=_QUALITY)
            if written.tell() <= max_bytes:
                return WEBP if has_alpha else JPEG, written.getvalue()
    except CannotFit:
        raise
    except Exception as error:  # whatever a decoder raises for a damaged file
        raise CannotFit(f"the image cannot be decoded: {type(error).__name__}") from None
    raise CannotFit("the image cannot be made small enough")
