"""Models that channels with `discover` have taken from their upstreams' lists, in a document."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import orjson

FILE_NAME: Final = "models.json"
"""In the state directory: what was found last, for starts without the upstreams."""

MAX_MODELS: Final = 10_000
"""Of one channel."""

_MAX_FILE_SIZE: Final = 64 * 1024 * 1024
_MAX_CONTEXT: Final = 10**9
_MAX_NAME: Final = 200
_MAX_PRICE: Final = 1e6
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
_CONTEXT_FIELDS: Final = (
    "context",
    "context_length",
    "context_window",
    "max_model_len",
    "max_input_tokens",
    "max_context_length",
)
_PRICE_FIELDS: Final = {
    "input": "prompt",
    "output": "completion",
    "cache_read": "input_cache_read",
    "cache_write": "input_cache_write",
}

Discovered = Mapping[str, Mapping[str, Any]]
"""Of each channel: its `base_url`, and `models`, as `parse_models` returns them."""


def parse_models(entries: Iterable[object]) -> list[dict[str, Any]]:
    """Returns the usable entries of an upstream's list, as models of a configuration without a
    family: `id`, and what the list has of `context`, `display_name` and `price`. An upstream may
    send anything: what cannot be an id is left out. Of what it has returned it returns the same."""
    models: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if not isinstance(entry, dict) or len(models) == MAX_MODELS:
            continue
        id = entry.get("id")
        if isinstance(id, str) and _ID.fullmatch(id):
            models.setdefault(id, {"id": id, **_details(entry)})
    return list(models.values())


def _details(entry: Mapping[str, Any]) -> dict[str, Any]:
    details: dict[str, Any] = {}
    for context in map(entry.get, _CONTEXT_FIELDS):
        if type(context) is int and 0 < context <= _MAX_CONTEXT:
            details["context"] = context
            break
    name = entry.get("display_name") or entry.get("name")
    if isinstance(name, str) and name.isprintable() and 0 < len(name) <= _MAX_NAME:
        details["display_name"] = name
    pricing, own = entry.get("pricing"), entry.get("price")
    price = {}
    if isinstance(own, dict):
        price = {name: _dollars(own.get(name), 1) for name in _PRICE_FIELDS}
    elif isinstance(pricing, dict):
        price = {name: _dollars(pricing.get(field), 1e6) for name, field in _PRICE_FIELDS.items()}
    if price.get("input") is not None and price.get("output") is not None:
        details["price"] = {name: value for name, value in price.items() if value is not None}
    return details


def _dollars(price: Any, tokens: float) -> float | None:
    """The price of a million tokens, of one that is for a million divided by `tokens`."""
    with suppress(TypeError, ValueError):
        value = float(price) * tokens
        if math.isfinite(value) and 0 <= value <= _MAX_PRICE:
            return round(value, 9)
    return None


def read_discovered(state_dir: Path) -> Discovered:
    """Returns what was found last; nothing where that cannot be read."""
    with suppress(OSError, ValueError):
        with (state_dir / FILE_NAME).open("rb") as file:
            found = orjson.loads(file.read(_MAX_FILE_SIZE))
        if isinstance(found, dict):
            return {name: channel for name, channel in found.items() if isinstance(channel, dict)}
    return {}


def select_models(patterns: Sequence[str], models: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the ids that match a pattern, in the order of the list."""
    ids = [model["id"] for model in models]
    if "*" in patterns:
        return ids
    return [id for id in ids if any(fnmatchcase(id, pattern) for pattern in patterns)]


def add_discovered(channel: dict[str, Any], discovered: Discovered) -> dict[str, dict[str, Any]]:
    """Adds the models that the channel has discovered to those that it states. Returns what their
    upstream says of them, by id. `models: all` means `discover: ["*"]`."""
    if channel.get("models") == "all":
        channel["models"] = []
        channel.setdefault("discover", ["*"])
    patterns = channel.get("discover")
    if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
        return {}
    channel.setdefault("family", "alpha" if channel.get("format") == "messages" else "beta")
    stated = channel.setdefault("models", [])
    found = discovered.get(str(channel.get("name")), {})
    if found.get("base_url") != channel.get("base_url"):
        return {}
    models = {model["id"]: model for model in parse_models(found.get("models", ()))}
    names = select_models(patterns, models.values())
    if isinstance(stated, list):
        known = {each for each in stated if isinstance(each, str)}
        channel["models"] = [*stated, *(name for name in names if name not in known)]
    elif isinstance(stated, dict):
        channel["models"] = {**{name: name for name in names}, **stated}
    return {name: models[name] for name in names}
