"""Makes images smaller, and animations static, with Pillow, the extra "images".

It decodes what clients send: the size in pixels is checked before, a JPEG is decoded at the size
that is needed, and each image in a process of its own, whose memory is limited and returns to the
system. As a program this module is that process: it reads base64 and writes the media type of the
smaller image and its file, or why there is none, with exit status 1.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE
from io import BytesIO
from typing import TYPE_CHECKING, Final

from gateway.wire.images.files import GIF, JPEG, PNG, WEBP, decode
from gateway.wire.images.parts import ImagePart
from gateway.wire.images.sources import Size, image_size

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS: Final = 50_000_000
"""Pixels of an image that is decoded: 200 MB of memory."""
MAX_WEBP_PIXELS: Final = 20_000_000
"""Its decoder has four copies of the pixels."""
MAX_MEMORY: Final = 450 * 1024 * 1024
MAX_SECONDS: Final = 30.0
"""Bytes and seconds of a process."""
_MAX_SIDE, _MIN_SIDE = 4096, 64
"""Pixels of the longer side: models see no more than some 1500."""
_STRIP: Final = 64
"""Rows of the smaller image that are made at once."""
_QUALITY: Final = 85
_FORMATS: Final = {PNG: "PNG", JPEG: "JPEG", WEBP: "WEBP", GIF: "GIF"}


class CannotFit(Exception):
    """The text says why an image cannot be made small enough."""


def can_fit(image: ImagePart) -> bool:
    return image.data is not None and image.media_type in _FORMATS


async def fit_in_process(data: str, media_type: str, max_bytes: int) -> tuple[str, bytes]:
    """Fits an image like `fit_image`, in a process that knows nothing but the image."""
    _check_pixels(image_size(data), media_type)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-Ps", "-m", __name__, media_type, str(max_bytes)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        async with asyncio.timeout(MAX_SECONDS):
            written, _ = await process.communicate(data[:].encode())  # all of a `LongText`
    except TimeoutError:
        raise CannotFit("it takes too long to be made smaller") from None
    finally:
        if process.returncode is None:
            process.kill()
    head, _, file = written.partition(b"\n")
    if process.returncode:
        raise CannotFit(head.decode() or "it takes too much memory to be made smaller")
    return head.decode(), file


def fit_image(data: str, media_type: str, max_bytes: int) -> tuple[str, bytes]:
    """Media type and file of at most `max_bytes`, with a longer side of at most 4096 pixels, of an
    image in base64: JPEG, or WebP where it has transparent parts. Raises `CannotFit`."""
    from PIL import Image

    _check_pixels(image_size(data), media_type)  # opening some kinds takes memory for all pixels
    try:
        image = Image.open(BytesIO(decode(data)), formats=[_FORMATS[media_type]])
        _check_pixels(image.size, media_type)
        return _written(image, max_bytes)
    except CannotFit:
        raise
    except MemoryError:
        raise CannotFit("it takes too much memory to be made smaller") from None
    except Exception as error:  # whatever a decoder raises for a damaged file
        raise CannotFit(f"the image cannot be decoded: {type(error).__name__}") from None


def _check_pixels(size: Size | None, media_type: str) -> None:
    if size is None:
        raise CannotFit("too large, and its size in pixels cannot be read")
    width, height = size
    if width * height > (MAX_WEBP_PIXELS if media_type == WEBP else MAX_PIXELS):
        raise CannotFit(f"too many pixels to be made smaller: {width}x{height}")


def _written(image: Image.Image, max_bytes: int) -> tuple[str, bytes]:
    """Writes the image, half as wide and high each time until it fits."""
    from PIL import ImageOps

    has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    factor = -(-max(image.size) // _MAX_SIDE)
    image.draft("RGB", (image.width // factor, image.height // factor))
    image = ImageOps.exif_transpose(_reduced(image, "RGBA" if has_alpha else "RGB"))
    side = max(image.size)
    while True:
        image.thumbnail((side, side))
        written = BytesIO()
        image.save(written, "WEBP" if has_alpha else "JPEG", quality=_QUALITY)
        if written.tell() <= max_bytes:
            return WEBP if has_alpha else JPEG, written.getvalue()
        side //= 2
        if side < _MIN_SIDE:
            raise CannotFit("the image cannot be made small enough")


def _reduced(image: Image.Image, mode: str) -> Image.Image:
    """A copy that is not too wide or high, made in strips: converted and filtered as a whole, an
    image would be in memory up to three times."""
    from PIL import Image

    factor = -(-max(image.size) // _MAX_SIDE)
    width, height = image.size
    reduced = Image.new(mode, (-(-width // factor), -(-height // factor)))
    for top in range(0, height, _STRIP * factor):
        strip = image.crop((0, top, width, min(height, top + _STRIP * factor))).convert(mode)
        reduced.paste(strip.reduce(factor), (0, top // factor))
    reduced.info["exif"] = image.info.get("exif", b"")
    return reduced


def main() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
    try:
        media_type, file = fit_image(sys.stdin.read(), sys.argv[1], int(sys.argv[2]))
    except CannotFit as error:
        print(error)
        sys.exit(1)
    sys.stdout.buffer.write(media_type.encode() + b"\n" + file)


if __name__ == "__main__":
    main()
