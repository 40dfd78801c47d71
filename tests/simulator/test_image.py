"""Descriptions of real images, and of URLs without one."""

from __future__ import annotations

from base64 import b64decode

import pytest

from gateway.simulator.image import describe_image
from tests.simulator.images import EXTENDED, GIF, JPEG, LOSSLESS, LOSSY, PNG, PROGRESSIVE


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
