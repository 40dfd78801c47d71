"""Descriptions of real images, and of URLs without one; images that upstreams reject."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable

import pytest

from gateway.simulator.errors import RequestError
from gateway.simulator.image import check_images, describe_image
from gateway.simulator.request import ModelRequest, Part, Turn
from tests.simulator.images import EXTENDED, GIF, JPEG, LOSSLESS, LOSSY, PNG, PROGRESSIVE
from tests.support import image_files as files
from tests.support.image_files import ACCEPTED, REFUSED, data_uri


@pytest.mark.parametrize(
    ("kind", "encoded"),
    [
        ("PNG", PNG),
        ("GIF", GIF),
        ("WebP", LOSSY),
        ("WebP", LOSSLESS),
        ("WebP", EXTENDED),
        ("JPEG", JPEG),
        ("JPEG", PROGRESSIVE),
    ],
)
def test_type_and_size(kind: str, encoded: str) -> None:
    size = len(b64decode(encoded))
    description = describe_image(f"data:image/any;base64,{encoded}")
    assert description == f"a {kind} image of {size} bytes"


@pytest.mark.parametrize(
    ("url", "description"),
    [
        ("https://example.com/cat.png", "an image at example.com, which I do not fetch"),
        ("", "an image at an address without a host, which I do not fetch"),
        ("http://[", "an image at an address without a host, which I do not fetch"),
        ("data:image/png;base64,!", "an image of a type that I do not know"),
        ("data:,", "an image of a type that I do not know"),
        ("data:image/bmp;base64,Qk0=", "an image of a type that I do not know"),
    ],
)
def test_other_urls(url: str, description: str) -> None:
    assert describe_image(url) == description


def request_with(format: str, *urls: str) -> ModelRequest:
    parts = tuple(Part("image", url) for url in urls)
    return ModelRequest(format=format, model="m", instructions="", turns=(Turn("user", parts),))


@pytest.fixture(params=["chat", "messages", "responses"])
def check(request: pytest.FixtureRequest) -> Callable[..., None]:
    return lambda *urls: check_images(request_with(request.param, *urls))


def test_good_images_are_accepted(check: Callable[..., None]) -> None:
    check(*(data_uri(*image) for image in ACCEPTED.values()), "https://example.com/cat.png", "")


@pytest.mark.parametrize(
    "url",
    [
        *(data_uri(file) for file, _ in REFUSED.values()),
        data_uri(files.PNG, "image/jpeg"),
        data_uri(files.PNG, "image/PNG"),
        data_uri(files.JPEG, "image/jpg"),
        "data:image/png;base64,iVBO!",
        "data:image/png;base64,",
        *("ftp://example.com/cat.png", "file:///etc/passwd", "cat.png", "javascript:alert(1)"),
    ],
)
def test_bad_images_are_rejected(check: Callable[..., None], url: str) -> None:
    with pytest.raises(RequestError) as rejected:
        check(url)
    assert rejected.value.status == 400


def test_animations_are_rejected_on_messages_only() -> None:
    url = data_uri(files.ANIMATED, "image/gif")
    for format in ("chat", "responses"):
        check_images(request_with(format, url))
    with pytest.raises(RequestError, match="animated"):
        check_images(request_with("messages", url))


@pytest.mark.large
@pytest.mark.parametrize(
    ("format", "most", "size"),
    [("chat", 250, 20 * 2**20), ("responses", 250, 20 * 2**20), ("messages", 100, 3 * 5 * 2**18)],
)
def test_limits(format: str, most: int, size: int) -> None:
    small, large = data_uri(files.PNG), data_uri(files.PNG.ljust(size + 3, b"x"))
    check_images(request_with(format, *[small] * most))
    check_images(request_with(format, data_uri(files.PNG.ljust(size, b"x"))))
    with pytest.raises(RequestError, match=f"{most + 1} > {most}"):
        check_images(request_with(format, *[small] * (most + 1)))
    with pytest.raises(RequestError, match="MB maximum"):
        check_images(request_with(format, large))
