"""How a client hears of what could not cross between formats, and how it forbids that.

It must not know what may be lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

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
