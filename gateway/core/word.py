"""Words of a fixed vocabulary. They are strings, and found in dictionaries as fast as strings are:
an enumeration's own hash is a call."""

from __future__ import annotations

from enum import StrEnum


class FastStrEnum(StrEnum):
    __hash__ = str.__hash__
