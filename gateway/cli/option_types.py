"""Types of options: amounts, times and durations."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import click

from gateway.admin.text_fields import TEXT_FIELDS
from gateway.admin.units import NONE_WORDS, parse_duration, parse_time

CLEARED: Final = object()
"""The value of `none` and `never`; the value of an omitted option is None."""


def now_us() -> int:
    """The current time in Unix microseconds."""
    return time.time_ns() // 1000


def option_type(parse: Callable[[str], Any], *, optional: bool = True) -> Callable[[str], Any]:
    """The type of an option from a function that raises ValueError. `none` clears an optional
    one."""

    def convert(text: str) -> Any:
        if optional and text in NONE_WORDS:
            return CLEARED
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return convert


def field_type(name: str) -> Callable[[str], Any]:
    """The type of the option that sets a field of a key or a group."""
    return option_type(lambda text: TEXT_FIELDS[name].parse(text, now_us()))


TEXT: Final = option_type(str)
PAST_TIME: Final = option_type(lambda text: parse_time(text, now_us(), -1), optional=False)
DURATION: Final = option_type(parse_duration, optional=False)
