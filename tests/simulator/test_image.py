"""Descriptions of real images, and of URLs without one; images that upstreams reject."""

from __future__ import annotations

from base64 import b64decode

import pytest

from gateway.simulator.image import check_images, describe_image
from gateway.simulator.request import ModelRequest, Part, RequestError, Turn
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


def check(*urls: str) -> None:
    turn = Turn("user", tuple(Part("image", url) for url in urls))
    check_images(ModelRequest(model="m", instructions="", turns=(turn,)))


def test_good_images_are_accepted() -> None:
    check(*(data_uri(*image) for image in ACCEPTED.values()), "https://example.com/cat.png", "")
    check(data_uri(files.ANIMATED, "image/gif"))


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
def test_bad_images_are_rejected(url: str) -> None:
    with pytest.raises(RequestError) as rejected:
        check(url)
    assert rejected.value.status == 400


@pytest.mark.large
def test_limits() -> None:
    size = 20 * 2**20
    small, large = data_uri(files.PNG), data_uri(files.PNG.ljust(size + 3, b"x"))
    check(*[small] * 250)
    check(data_uri(files.PNG.ljust(size, b"x")))
    with pytest.raises(RequestError, match="251 > 250"):
        check(*[small] * 251)
    with pytest.raises(RequestError, match="MB maximum"):
        check(large)
