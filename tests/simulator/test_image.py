"""Sizes of real images, whole or with only their first bytes."""

from __future__ import annotations

from base64 import b64decode

import pytest

from gateway.simulator.image import describe, measure
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
def test_measures(kind: str, encoded: str) -> None:
    data = b64decode(encoded)
    assert measure(data) == (kind, (12, 7))
    for end in range(len(data)):
        assert measure(data[:end]) in (None, (kind, (12, 7)))


def test_describes() -> None:
    assert describe(f"data:image/png;base64,{PNG}") == "a PNG image of 12×7 pixels"
    assert "example.com" in describe("https://example.com/cat.png")
    for unreadable in (
        "data:image/png;base64,!",
        "data:,",
        "data:image/bmp;base64,Qk0=",
        "",
        "http://[",
    ):
        assert describe(unreadable).startswith("an image")
