"""What people type, as the types of options (`gateway.admin.typed` reads it). It must not know what
an amount is for."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import click

from gateway.admin.typed import NONE, read_count, read_moment, read_seconds, read_units


class Nothing(Enum):
    """What `none` and `never` stand for, so that it is not taken for an option left out."""

    NOTHING = "none"


NOTHING: Final = Nothing.NOTHING


def now_us() -> int:
    """The present time in Unix microseconds."""
    return time.time_ns() // 1000


def typed(read: Callable[[str], Any], *, optional: bool = True) -> Callable[[str], Any]:
    """An option's type over a reader; where it may be `none`, that is NOTHING."""

    def convert(text: str) -> Any:
        if optional and text in NONE:
            return NOTHING
        try:
            return read(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return convert


COUNT: Final = typed(read_count)
UNITS: Final = typed(read_units)
TEXT: Final = typed(str)
LATER: Final = typed(lambda text: read_moment(text, now_us(), 1))
EARLIER: Final = typed(lambda text: read_moment(text, now_us(), -1), optional=False)
LASTING: Final = typed(read_seconds, optional=False)
