"""How a client hears of what could not cross between formats, and how it forbids that.

It must not know what may be lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import Final

from aiohttp import web

from gateway.errors import CannotConvert

DROPPED: Final = "x-gateway-dropped"
STRICT: Final = "x-gateway-strict"

_ON: Final = frozenset({"1", "true"})
_UNPRINTABLE: Final = re.compile(r"[^\x21-\x2b\x2d-\x7e]")
"""A client's own field may be called anything; commas stand between names."""
_LONGEST_NAME: Final = 64
_MOST_NAMES: Final = 32


def spelled(names: Iterable[str]) -> str | None:
    """The names as header and row tell them; None where there are none."""
    told = sorted({_UNPRINTABLE.sub("?", name)[:_LONGEST_NAME] for name in names})
    if len(told) > _MOST_NAMES:
        told[_MOST_NAMES:] = ["..."]
    return ", ".join(told) or None


def told(names: Iterable[str]) -> dict[str, str]:
    """The header of an answer."""
    text = spelled(names)
    return {DROPPED: text} if text else {}


def check_strict(request: web.Request, dropped: Set[str]) -> None:
    """Raises `CannotConvert` where something would be lost and the client will not have it."""
    if dropped and request.headers.get(STRICT, "").strip().lower() in _ON:
        reason = f"would be lost on the way to the model's upstream, which {STRICT} forbids"
        raise CannotConvert(spelled(dropped) or "", reason)
