"""Sources of images and files: web addresses and data URLs."""

from __future__ import annotations

import pytest

from gateway.core.parts import Source
from gateway.wire.images.sources import parse_source


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("https://example.org/a.png", Source(url="https://example.org/a.png")),
        ("data:image/png;base64,iVBO", Source(data="iVBO", media_type="image/png")),
        ("data:text/plain;charset=x;base64,aGk=", Source(data="aGk=", media_type="text/plain")),
        ("data:;base64,aGk=", Source(data="aGk=")),
        ("data:text/plain,hi", Source(url="data:text/plain,hi")),
        ("data:image/png;base64", Source(url="data:image/png;base64")),
    ],
)
def test_sources(url: str, source: Source) -> None:
    assert parse_source(url) == source
