"""How a client hears of what could not cross between formats, and how it forbids that.

It must not know what may be lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import Final

from aiohttp import web

from gateway.errors import UnsupportedField

DROPPED_HEADER: Final = "x-gateway-dropped"
STRICT_HEADER: Final = "x-gateway-strict"

_TRUE: Final = frozenset({"1", "true"})
_UNPRINTABLE: Final = re.compile(r"[^\x21-\x2b\x2d-\x7e]")
"""A client's own field may be called anything; commas stand between names."""
_MAX_NAME: Final = 64
_MAX_NAMES: Final = 32


def format_dropped(names: Iterable[str]) -> str | None:
    """The names as header and row tell them; None where there are none."""
    told = sorted({_UNPRINTABLE.sub("?", name)[:_MAX_NAME] for name in names})
    if len(told) > _MAX_NAMES:
        told[_MAX_NAMES:] = ["..."]
    return ", ".join(told) or None


def dropped_header(names: Iterable[str]) -> dict[str, str]:
    """The header of an answer."""
    text = format_dropped(names)
    return {DROPPED_HEADER: text} if text else {}


def check_strict(request: web.Request, dropped: Set[str]) -> None:
    """Raises `CannotConvert` where something would be lost and the client will not have it."""
    if dropped and request.headers.get(STRICT_HEADER, "").strip().lower() in _TRUE:
        reason = f"would be lost on the way to the model's upstream, which {STRICT_HEADER} forbids"
        raise UnsupportedField(format_dropped(dropped) or "", reason)
