"""How values that are more than one number or text stand in a row: lists as JSON, limits as six
columns of their names. It must not know whose row it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import orjson

from gateway.core.limits import LIMIT_NAMES, Limits


def to_columns(fields: Mapping[str, Any], lists: Iterable[str]) -> dict[str, Any]:
    """The fields of a record as its row has them; those of `lists` are tuples, or None."""
    columns = dict(fields)
    columns |= asdict(columns.pop("limits"))
    for name in lists:
        if columns[name] is not None:
            columns[name] = orjson.dumps(columns[name]).decode()
    return columns


def from_columns(columns: Mapping[Any, Any], lists: Iterable[str]) -> dict[str, Any]:
    """And back."""
    fields = dict(columns)
    fields["limits"] = Limits(**{name: fields.pop(name) for name in LIMIT_NAMES})
    for name in lists:
        if fields[name] is not None:
            fields[name] = tuple(orjson.loads(fields[name]))
    return fields
