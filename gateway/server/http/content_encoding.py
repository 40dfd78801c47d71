"""Compressed request bodies. They are decompressed in small steps, in turns of their keys, and
within the limits of uncompressed ones."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Generator, Iterator
from itertools import islice
from mmap import mmap
from typing import Final

import brotli

from gateway.core.zstandard import zstd
from gateway.errors import InvalidRequest, RequestTooLarge
from gateway.server.http.body_buffer import BodyBuffer
from gateway.wire.json.limits import Raw

MAX_RATIO: Final = 200
"""Decompressed to compressed size. Conversations compress to a third, repetitive ones to a 30th."""

_RATIO_APPLIES: Final = 1024 * 1024
"""Bytes of a decompressed body from which its ratio matters."""

_STEP: Final = 128 * 1024
"""Bytes that one step reads, and that it writes, at most: less than a millisecond."""

_STEPS_OF_TURN: Final = 8

_MAX_PARTS: Final = 100
"""Parts of a body, each compressed by itself; more would be steps without output."""

_MAX_ZSTD_WINDOW: Final[dict[int, int]] = {zstd.DecompressionParameter.window_log_max: 23}
"""8 MiB (RFC 9659, 3)."""

_SLOW_START: Final = "br"
"""The first step fills a window of up to 16 MiB, which takes up to 40 ms."""

_GZIP_WINDOW: Final = zlib.MAX_WBITS | 16


class _BrokenBody(Exception):
    """An error of a body that is not valid in its encoding."""


async def decompress(
    compressed: Raw,
    encoding: str,
    max_size: int,
    book: Callable[[int], None],
    run: Callable[..., Awaitable[list[bytes]]],
    buffer: Callable[[int], BodyBuffer],
) -> bytes | mmap:
    """The body; `encoding` is one of `ENCODINGS`. `book` is called with the size of each step's
    output, and raises where there is no memory for it. Bodies of several steps, or with
    a slow first one, take a `buffer`, and `run` runs their steps.

    Raises `InvalidRequest`, `RequestTooLarge`, or what `book` raises.
    """
    size, max_size = 0, min(max_size, max(_RATIO_APPLIES, len(compressed) * MAX_RATIO))

    def count(output: bytes) -> bytes:
        nonlocal size
        size += len(output)
        book(len(output))
        if size > max_size:
            reason = f"decompressed, it has more than {max_size:,} bytes"
            raise RequestTooLarge(f"{RequestTooLarge.text}: {reason}")
        return output

    steps = ENCODINGS[encoding](memoryview(compressed))
    try:
        first = [] if encoding == _SLOW_START else [count(each) for each in islice(steps, 2)]
        if len(first) == 1:
            return first[0]
        body = buffer(max_size)
        for output in first:
            body.add(output)
        while outputs := await run(list, islice(steps, _STEPS_OF_TURN)):
            for output in outputs:
                body.add(count(output))
    except (_BrokenBody, zlib.error, brotli.error, zstd.ZstdError) as error:
        reason = f"content-encoding: the body is not valid {encoding}: {error}"
        raise InvalidRequest(reason, param="content-encoding") from None
    return body.finish()


def _gunzip(data: memoryview) -> Iterator[bytes]:
    for _ in range(_MAX_PARTS):
        data = yield from _inflate(data, _GZIP_WINDOW)
        if not data:
            return
    raise _BrokenBody("it has too many members")


def _inflate_any(data: memoryview) -> Iterator[bytes]:
    """Inflates zlib data, also without the header and the checksum that belong to it: some clients
    send neither."""
    has_header = (
        len(data) > 1 and data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2]) % 31 == 0
    )
    if (yield from _inflate(data, zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)):
        raise _BrokenBody("bytes follow its end")


def _inflate(data: memoryview, window: int) -> Generator[bytes, None, memoryview]:
    """Returns what follows the end."""
    inflater = zlib.decompressobj(window)
    while not inflater.eof:
        piece = data[:_STEP]
        output = inflater.decompress(piece, _STEP)
        rest = len(inflater.unused_data if inflater.eof else inflater.unconsumed_tail)
        if not (output or len(piece) > rest or inflater.eof):
            raise _BrokenBody("it ends too early")
        data = data[len(piece) - rest :]
        yield output
    return data


def _decompress_brotli(data: memoryview) -> Iterator[bytes]:
    decompressor = brotli.Decompressor()
    while not decompressor.is_finished():
        piece = data[:_STEP] if decompressor.can_accept_more_data() else data[:0]
        data = data[len(piece) :]
        output = decompressor.process(piece, output_buffer_limit=_STEP)
        if not (output or piece or decompressor.is_finished()):
            raise _BrokenBody("it ends too early")
        yield output
    if data:
        raise _BrokenBody("bytes follow its end")


def _decompress_zstd(data: memoryview) -> Iterator[bytes]:
    for _ in range(_MAX_PARTS):
        decompressor = zstd.ZstdDecompressor(options=_MAX_ZSTD_WINDOW)
        start = 0
        while not decompressor.eof:
            piece = data[start : start + _STEP] if decompressor.needs_input else data[:0]
            if decompressor.needs_input and not piece:
                raise _BrokenBody("it ends too early")
            start += len(piece)
            yield decompressor.decompress(piece, _STEP)
        data = data[start - len(decompressor.unused_data) :]
        if not data:
            return
    raise _BrokenBody("it has too many frames")


ENCODINGS: Final[dict[str, Callable[[memoryview], Iterator[bytes]]]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate_any,
    "br": _decompress_brotli,
    "zstd": _decompress_zstd,
}
"""The accepted content encodings."""
