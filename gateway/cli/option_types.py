"""What people type, as the types of options (`gateway.admin.units` reads it). It must not know what
an amount is for."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import click

from gateway.admin.text_fields import TEXT_FIELDS
from gateway.admin.units import NONE_WORDS, parse_duration, parse_time


class Cleared(Enum):
    """What `none` and `never` stand for, so that it is not taken for an option left out."""

    CLEARED = "none"


CLEARED: Final = Cleared.CLEARED


def now_us() -> int:
    """The present time in Unix microseconds."""
    return time.time_ns() // 1000


def option_type(read: Callable[[str], Any], *, optional: bool = True) -> Callable[[str], Any]:
    """An option's type over a reader; where it may be `none`, that is NOTHING."""

    def convert(text: str) -> Any:
        if optional and text in NONE_WORDS:
            return CLEARED
        try:
            return read(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return convert


def field_type(name: str) -> Callable[[str], Any]:
    """The type of the option that sets a field of a key or a group."""
    return option_type(lambda text: TEXT_FIELDS[name].parse(text, now_us()))


TEXT: Final = option_type(str)
PAST_TIME: Final = option_type(lambda text: parse_time(text, now_us(), -1), optional=False)
DURATION: Final = option_type(parse_duration, optional=False)
