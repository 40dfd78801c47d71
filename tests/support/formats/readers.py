"""What a client may be sent, format by format: the grammars of the three formats as their public
references give them, narrowed by everything that the stock client libraries break on.

`check` takes the bytes of one stream and `check_body` a whole reply; both raise `AssertionError`.
`errored` streams must end in the format's error, all others in its proper end: nothing passes for
both. Independent of the gateway: it judges bytes alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.support.formats import chat, messages, responses
from tests.support.formats.frames import Object

READERS: Final[dict[str, Any]] = {"chat": chat, "messages": messages, "responses": responses}


def check(
    format: str, raw: bytes, *, errored: bool = False, include_usage: bool | None = None
) -> Object:
    """The whole reply, or what came of it. `include_usage`: whether a chat client asked for usage;
    None where that is not known."""
    options = {"include_usage": include_usage} if format == "chat" else {}
    with _refusing():
        body: Object = READERS[format].check(raw, errored=errored, **options)
        return body


def check_body(format: str, body: Object) -> None:
    with _refusing():
        READERS[format].check_body(body)


@contextmanager
def _refusing() -> Iterator[None]:
    """What the stock types refuse, and what is too odd to be looked at, is refused alike."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error
