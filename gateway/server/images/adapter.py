"""The images of requests: judged once, then adapted to the upstream of each candidate.

Requests without images never come here. What has to change is changed in the client's body, so that
both lanes send it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from aiohttp import web
from yarl import URL

from gateway.config.channel import ChannelImages
from gateway.core.formats import Format
from gateway.core.prompt import Turn
from gateway.core.value import replace
from gateway.errors import (
    ImageDownloadFailed,
    ImageTooLarge,
    InvalidImage,
    InvalidImageUrl,
    ServiceUnavailable,
    UnsupportedImageType,
)
from gateway.routing.router import Candidate
from gateway.server.http.request_body import write_object
from gateway.server.images.fit import CannotFit, can_fit, fit_in_process
from gateway.server.proxy.incoming_request import IncomingRequest, Stage
from gateway.server.record.client_request import ClientRequest
from gateway.server.record.deadlines import AbortableTimeout
from gateway.server.record.exchange import Exchange
from gateway.upstream.image_download import DownloadFailed, DownloadTooLarge, ImageDownloader
from gateway.wire.codec import Codec
from gateway.wire.images.check import (
    IMAGE_LIMITS,
    KINDS,
    check_count,
    check_image,
    check_images,
    check_size,
    is_oversized,
)
from gateway.wire.images.files import HEIC, encode
from gateway.wire.images.parts import ESCAPED_ASCII, ImagePart, find_images, replace_images
from gateway.wire.json.edit import edit_object
from gateway.wire.json.fields import Payload

DOWNLOAD_TIME: Final = 30.0
"""Seconds for all images of a request."""
MAX_FITTED: Final = 16
"""Images of a request that are made smaller or static: each takes up to a second of a processor."""
_LARGE_BODY: Final = 1024 * 1024


async def check_request_images(incoming: IncomingRequest) -> None:
    """Corrects the images of a request if they have to be. Raises `InvalidImage`."""
    await incoming.exchange.run_sized(_check, incoming)


def _check(incoming: IncomingRequest) -> None:
    format = incoming.codec.format
    images = check_images(find_images(incoming.body, format), format)
    if not images:
        return
    exchange = incoming.exchange
    if not exchange.snapshot.config.images.fit:
        for image in images:
            check_size(image, format)
    if changed := [image for image in images if image.changed]:
        incoming.raw_body, incoming.body, turns = _with_images(
            incoming.codec, incoming.raw_body, incoming.body, changed
        )
        incoming.prompt = replace(incoming.prompt, turns=turns)
    work = incoming.request.app[IMAGE_WORK]
    incoming.adapters.append(ImageAdapter(exchange, images, work).adapt)


def _with_images(
    codec: Codec, raw_body: bytes, body: Payload, changed: Iterable[ImagePart]
) -> tuple[bytes, Payload, tuple[Turn, ...]]:
    """Return the body, as bytes and as JSON, and its turns with these images in their positions."""
    new = replace_images(body, codec.format, changed)
    edited = edit_object(raw_body, body, new) or write_object(new)
    return edited, new, codec.parse_prompt(new).turns


class KeyTurns:
    """Turns of at most `limit` pieces of work at once and one of each key, so that a key with many
    of them waits for itself; for one event loop."""

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)
        self._of_keys = WeakValueDictionary[str, asyncio.Lock]()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        own = self._of_keys.setdefault(key, asyncio.Lock())
        async with own, self._free:
            yield


class ImageWork:
    """The work for images of all requests: downloads, and turns of keys for those that are made
    smaller, as each takes much memory."""

    def __init__(self) -> None:
        self.downloads = ImageDownloader()
        self.fitting = KeyTurns(2)


IMAGE_WORK: Final = web.AppKey("image_work", ImageWork)


class ImageAdapter:
    """Adapts one request to its candidates, most of which want the same. `images` are those of its
    body."""

    __slots__ = ("_adapted", "_exchange", "_for", "_images", "_work")

    def __init__(self, exchange: Exchange, images: Sequence[ImagePart], work: ImageWork) -> None:
        self._exchange, self._images, self._work = exchange, images, work
        self._for: tuple[Format, ChannelImages] | None = None
        self._adapted: ClientRequest

    async def adapt(self, request: ClientRequest, candidate: Candidate) -> ClientRequest:
        """Return the request, always the same one, as the candidate's upstream takes it. Raises
        `InvalidImage`, `ImageDownloadFailed`, or what `Exchange.book_body` raises."""
        target = candidate.format
        options = request.snapshot.upstream.channel(candidate).images
        if self._for != (target, options):
            check_count(self._images, request.codec.format, target)
            images = await self._without_urls(options, target)
            images = await self._fitted(images, options, target)
            pairs = zip(images, self._images, strict=True)
            changed = [image for image, before in pairs if image is not before]
            if changed:
                raw_body, body, turns = await self._exchange.run_in_thread(
                    _with_images, request.codec, request.raw_body, request.body, changed
                )
                prompt = replace(request.prompt, turns=turns)
                request = replace(request, raw_body=raw_body, body=body, prompt=prompt)
                if len(request.raw_body) > _LARGE_BODY:
                    self._exchange.turns = self._exchange.runtime.worker
            self._for, self._adapted = (target, options), request
        return self._adapted

    async def _without_urls(self, options: ChannelImages, target: Format) -> list[ImagePart]:
        """The images, downloaded where the channel wants that."""
        images = list(self._images)
        by_url = {image.url: image for image in images if image.url is not None}
        if options.urls == "pass" or not by_url:
            return images
        if options.urls == "refuse":
            first = next(iter(by_url.values()))
            reason = "the model's upstream takes no addresses of images: send base64"
            raise InvalidImageUrl(first.path, reason)
        files = await self._download(by_url, target)
        return [
            image if image.url is None else _with_data(image, files[image.url]) for image in images
        ]

    async def _download(
        self, by_url: Mapping[str, ImagePart], target: Format
    ) -> dict[str, ImagePart]:
        """Downloads the images; returns each, with its data, by its address."""
        runtime, loop = self._exchange.runtime, asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._download_one(image, url, target))
            for url, image in by_url.items()
        ]
        try:
            with AbortableTimeout(runtime, loop.time() + DOWNLOAD_TIME):
                return dict(zip(by_url, await asyncio.gather(*tasks), strict=True))
        except TimeoutError:
            if runtime.aborting:
                raise ServiceUnavailable from None
            url, image = next(iter(by_url.items()))
            raise _download_failed(image, url, "all images together took too long") from None
        finally:
            for task in tasks:
                task.cancel()

    async def _download_one(self, image: ImagePart, url: str, target: Format) -> ImagePart:
        exchange, settings = self._exchange, self._exchange.snapshot.config.images
        limits = IMAGE_LIMITS[Format.CHAT if settings.fit else target]
        downloads = self._work.downloads
        try:
            file = await downloads.download(
                exchange.key, url, settings, limits.max_file, exchange.book_body
            )
            return await exchange.run_in_thread(_read_file, image, file, target)
        except DownloadTooLarge:
            reason = f"image exceeds {limits.megabytes} MB maximum"
            raise ImageTooLarge(image.path, reason) from None
        except (DownloadFailed, InvalidImage) as error:
            raise _download_failed(image, url, str(error)) from None

    async def _fitted(
        self, images: list[ImagePart], options: ChannelImages, target: Format
    ) -> list[ImagePart]:
        """Fits images that are too large or animated, if that is configured."""
        fit, fitted = self._exchange.snapshot.config.images.fit, 0
        for index, image in enumerate(images):
            if image.media_type == HEIC and not options.heic:
                reason = f"HEIC is not supported by the model's upstream: {KINDS}"
                raise UnsupportedImageType(image.path, reason)
            if fit and fitted < MAX_FITTED and can_fit(image) and _has_to_fit(image, target):
                images[index], fitted = await self._fit(image, target), fitted + 1
            else:
                check_size(image, target)
        return images

    async def _fit(self, image: ImagePart, target: Format) -> ImagePart:
        exchange, limit = self._exchange, IMAGE_LIMITS[target].max_file
        data, kind = image.data or "", image.media_type or ""
        async with self._work.fitting.turn(exchange.key):
            try:
                media_type, smaller = await fit_in_process(data, kind, limit)
            except CannotFit as error:
                if not is_oversized(image, target):
                    return image  # an animation, which its upstream has to judge
                raise ImageTooLarge(image.path, str(error)) from None
        return replace(image, data=encode(smaller), media_type=media_type, animated=False)


def _has_to_fit(image: ImagePart, target: Format) -> bool:
    return image.animated or is_oversized(image, target)


def _read_file(image: ImagePart, file: bytes, target: Format) -> ImagePart:
    """Raises `InvalidImage`."""
    data = encode(file)
    return check_image(replace(image, url=None, data=data), target)


def _with_data(image: ImagePart, file: ImagePart) -> ImagePart:
    kind, animated = file.media_type, file.animated
    return replace(image, url=None, data=file.data, media_type=kind, animated=animated)


def _download_failed(image: ImagePart, url: str, detail: str) -> ImageDownloadFailed:
    try:
        host = URL(url).host
    except ValueError:
        host = None
    return ImageDownloadFailed(image.path, host or "an invalid address", detail=detail)


def _may_have_images(incoming: IncomingRequest) -> bool:
    raw = incoming.raw_body  # searched from the back, which is twice as fast as `in`
    return raw.rfind(incoming.codec.image_mark) >= 0 or raw.rfind(ESCAPED_ASCII) >= 0


CHECK_IMAGES: Final = Stage(check_request_images, _may_have_images)
