"""The default model catalog."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def default_models() -> tuple[dict[str, Any], ...]:
    """The specification's models as plain data, in its order."""
    text = files("gateway.config").joinpath("catalog.yaml").read_text(encoding="utf-8")
    return tuple(yaml.load(text, Loader=yaml.CSafeLoader))
