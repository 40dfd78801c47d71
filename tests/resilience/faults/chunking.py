"""Ways in which one and the same stream may come; what they mean is the same to any reader.

It must not know formats: a shape only cuts and spells bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Pieces = Sequence[bytes]


def _crlf(pieces: Pieces) -> Pieces:
    return [piece.replace(b"\n", b"\r\n") for piece in pieces]


def _without_event_lines(pieces: Pieces) -> Pieces:
    body = b"".join(pieces).splitlines(keepends=True)
    return [b"".join(line for line in body if not line.startswith(b"event:"))]


def _by_byte(pieces: Pieces) -> Pieces:
    return [bytes([byte]) for byte in b"".join(pieces)]


SHAPES: dict[str, Callable[[Pieces], Pieces]] = {
    "frame": lambda pieces: pieces,
    "one": lambda pieces: [b"".join(pieces)],
    "byte": _by_byte,
    "crlf": _crlf,
    "crlf_byte": lambda pieces: _by_byte(_crlf(pieces)),
    "cr": lambda pieces: [piece.replace(b"\n", b"\r") for piece in pieces],
    "bom": lambda pieces: [b"\xef\xbb\xbf", *pieces],
    "comments": lambda pieces: [b": still here\n\n" + piece for piece in pieces],
    "no_space": lambda pieces: [piece.replace(b"data: ", b"data:") for piece in pieces],
    "no_events": _without_event_lines,
    "no_blank": lambda pieces: [*pieces[:-1], pieces[-1].rstrip(b"\n") + b"\n"],
}
"""`no_blank` leaves the final blank line out, `no_events` the `event:` lines."""
