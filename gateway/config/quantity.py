"""Sizes and durations as an operator writes them: `64MiB`, `2m`, or a bare number.

It must not know which option it reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)")
_BYTES: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _parser(units: Mapping[str, float], kind: type[int | float]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        written = _QUANTITY.fullmatch(value)
        if written is None or written[2] not in units:
            raise PydanticCustomError(
                "quantity", f"must be a number, alone or with a unit: {', '.join(units)}"
            )
        return kind(float(written[1]) * units[written[2]])

    return read


def _json_schema(units: Mapping[str, float], kind: str) -> WithJsonSchema:
    pattern = rf"^\d+(\.\d+)? ?({'|'.join(units)})$"
    return WithJsonSchema({"anyOf": [{"type": kind}, {"type": "string", "pattern": pattern}]})


Bytes = Annotated[
    int, BeforeValidator(_parser(_BYTES, int)), Field(gt=0), _json_schema(_BYTES, "integer")
]
Seconds = Annotated[
    float,
    BeforeValidator(_parser(_SECONDS, float)),
    Field(gt=0, allow_inf_nan=False),
    _json_schema(_SECONDS, "number"),
]
