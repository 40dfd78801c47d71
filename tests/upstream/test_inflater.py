"""gzip and deflate in pieces of any size, and of any number of members."""

from __future__ import annotations

import gzip
import zlib

import pytest

from gateway.upstream.inflater import Inflater

TEXT = b"data: {}\n\n" * 5000


def inflate(inflater: Inflater, data: bytes, size: int, limit: int) -> bytes:
    """All that comes of the data in pieces of that size."""
    out = b""
    for start in range(0, len(data), size):
        piece = inflater.feed(data[start : start + size], limit)
        assert len(piece) <= limit
        out += piece
        while inflater.has_more:
            piece = inflater.feed(b"", limit)
            assert len(piece) <= limit
            out += piece
    return out


@pytest.mark.parametrize("size", [1, 7, 10**6])
@pytest.mark.parametrize("limit", [10, 1000, 10**6])
@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        (b"gzip", gzip.compress(TEXT)),
        (b"gzip", gzip.compress(TEXT[:100]) + gzip.compress(b"") + gzip.compress(TEXT[100:])),
        (b"deflate", zlib.compress(TEXT)),
        (b"deflate", zlib.compress(TEXT, wbits=-15)),
    ],
    ids=["gzip", "members", "deflate", "raw"],
)
def test_pieces(coding: bytes, packed: bytes, size: int, limit: int) -> None:
    inflater = Inflater(coding)
    assert not inflater.is_complete
    assert inflate(inflater, packed, size, limit) == TEXT
    assert inflater.is_complete
    assert not inflate(Inflater(coding), b"", size, limit)


def test_many_empty_members_are_decompressed_a_few_at_a_time() -> None:
    inflater = Inflater(b"gzip")
    assert inflater.feed(gzip.compress(b"") * 1000, 100) == b""
    assert inflater.has_more
    turns = 0
    while inflater.has_more:
        inflater.feed(b"", 100)
        turns += 1
    assert turns >= 10
    assert inflater.is_complete


def test_what_comes_before_an_error_is_not_lost() -> None:
    inflater = Inflater(b"gzip")
    assert inflater.feed(gzip.compress(b"text") + b"no gzip", 100) == b"text"
    assert inflater.has_more
    with pytest.raises(ValueError, match="header"):
        inflater.feed(b"", 100)
