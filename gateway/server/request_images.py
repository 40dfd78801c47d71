"""The images of requests: judged once, then adapted to the upstream of each candidate.

Requests without images never come here. What has to change is changed in the client's body, so that
both lanes send it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from yarl import URL

from gateway.config.channel import ChannelImages
from gateway.core.formats import Format
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
from gateway.server.image_fit import CannotFit, can_fit, fit_in_process
from gateway.server.record.client_request import ClientRequest
from gateway.server.record.deadlines import AbortableTimeout
from gateway.server.record.exchange import Exchange
from gateway.upstream.image_download import DownloadFailed, DownloadTooLarge
from gateway.wire.image_check import (
    IMAGE_LIMITS,
    KINDS,
    check_count,
    check_image,
    check_images,
    check_size,
    is_oversized,
)
from gateway.wire.image_files import HEIC, encode
from gateway.wire.image_parts import ImagePart, find_images, replace_images
from gateway.wire.object_edit import edit_object

DOWNLOAD_TIME: Final = 30.0
"""Seconds for all images of a request."""
MAX_FITTED: Final = 16
"""Images of a request that are made smaller or static: each takes up to a second of a processor."""
_LARGE_BODY: Final = 1024 * 1024


async def check_request_images(exchange: Exchange, request: ClientRequest) -> ClientRequest:
    """The request with its images, corrected where they have to be. Raises `InvalidImage`."""
    if exchange.turns:
        return await exchange.run_in_turn(_check, request)
    return _check(request)


def _check(request: ClientRequest) -> ClientRequest:
    format = request.codec.format
    images = check_images(find_images(request.body, format), format)
    if not request.snapshot.config.images.fit:
        for image in images:
            check_size(image, format)
    request = replace(request, images=images)
    return _with_images(request, [image for image in images if image.changed])


def _with_images(request: ClientRequest, changed: Iterable[ImagePart]) -> ClientRequest:
    """The request with these images in their positions."""
    changes = {image.position: image for image in changed}
    if not changes:
        return request
    codec = request.codec
    body = replace_images(request.body, codec.format, changes.values())
    return replace(
        request,
        images=[changes.get(image.position, image) for image in request.images],
        raw_body=edit_object(request.raw_body, request.body, body) or write_object(body),
        body=body,
        prompt=replace(request.prompt, turns=codec.parse_prompt(body).turns),
    )


class ImageAdapter:
    """Adapts one request to its candidates, most of which want the same."""

    __slots__ = ("_adapted", "_exchange", "_for", "_request")

    def __init__(self, exchange: Exchange, request: ClientRequest) -> None:
        self._exchange, self._request = exchange, request
        self._for: tuple[Format, ChannelImages] | None = None
        self._adapted = request

    async def adapt(self, candidate: Candidate) -> ClientRequest:
        """The request as the candidate's upstream takes it. Raises `InvalidImage`,
        `ImageDownloadFailed`, or what `Exchange.book_body` raises."""
        request, target = self._request, candidate.format
        options = request.snapshot.upstream.channel(candidate).images
        if self._for != (target, options):
            check_count(request.images, request.codec.format, target)
            images = await self._without_urls(options, target)
            images = await self._fitted(images, options, target)
            pairs = zip(images, request.images, strict=True)
            changed = [image for image, before in pairs if image is not before]
            if changed:
                request = await self._exchange.run_in_thread(_with_images, request, changed)
                if len(request.raw_body) > _LARGE_BODY:
                    self._exchange.turns = self._exchange.runtime.worker
            self._for, self._adapted = (target, options), request
        return self._adapted

    async def _without_urls(self, options: ChannelImages, target: Format) -> list[ImagePart]:
        """The images, downloaded where the channel wants that."""
        images = list(self._request.images)
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
        """By address the image there, which has data."""
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
        exchange, settings = self._exchange, self._request.snapshot.config.images
        limits = IMAGE_LIMITS[Format.CHAT if settings.fit else target]
        downloads = exchange.runtime.image_downloads
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
        """The images, made smaller or static if they have to be and that is configured."""
        fit, fitted = self._request.snapshot.config.images.fit, 0
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
        async with exchange.runtime.image_turns.turn(exchange.key):
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
