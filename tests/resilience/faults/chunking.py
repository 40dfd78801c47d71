"""Ways in which one and the same stream may come; what they mean is the same to any reader.

Independent of formats: a shape only cuts and spells bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Chunks = Sequence[bytes]


def _crlf(chunks: Chunks) -> Chunks:
    return [chunk.replace(b"\n", b"\r\n") for chunk in chunks]


def _without_event_lines(chunks: Chunks) -> Chunks:
    body = b"".join(chunks).splitlines(keepends=True)
    return [b"".join(line for line in body if not line.startswith(b"event:"))]


def _by_byte(chunks: Chunks) -> Chunks:
    return [bytes([byte]) for byte in b"".join(chunks)]


SHAPES: dict[str, Callable[[Chunks], Chunks]] = {
    "frame": lambda chunks: chunks,
    "one": lambda chunks: [b"".join(chunks)],
    "byte": _by_byte,
    "crlf": _crlf,
    "crlf_byte": lambda chunks: _by_byte(_crlf(chunks)),
    "cr": lambda chunks: [chunk.replace(b"\n", b"\r") for chunk in chunks],
    "bom": lambda chunks: [b"\xef\xbb\xbf", *chunks],
    "comments": lambda chunks: [b": still here\n\n" + chunk for chunk in chunks],
    "no_space": lambda chunks: [chunk.replace(b"data: ", b"data:") for chunk in chunks],
    "no_events": _without_event_lines,
    "no_blank": lambda chunks: [*chunks[:-1], chunks[-1].rstrip(b"\n") + b"\n"],
}
"""`no_blank` leaves the final blank line out, `no_events` the `event:` lines."""
