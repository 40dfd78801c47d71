"""Recognises requests of clients with a wrong base address, and tells how to correct it."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from gateway.wire.registry import CODECS

_ENDPOINTS: Final = (*(codec.endpoint for codec in CODECS.values()), "/v1/models")
_NAMES: Final = tuple(endpoint.removeprefix("/v1") for endpoint in _ENDPOINTS)

_SLASHES: Final = re.compile("/{2,}")

_ADD_V1: Final = "add /v1 to the base address"
_HINTS: Final = (
    ("/v1/v1/", "remove /v1 from the base address"),
    ("/chat/completions", _ADD_V1),
    ("/responses", _ADD_V1),
    ("/models", _ADD_V1),
    ("/messages", _ADD_V1),
)

_MAX_BAD_PATHS: Final = 100
"""Entries, as clients choose their names."""

_OTHER_PRODUCTS: Final = "others"
_MAX_PRODUCT: Final = 60


def base_address_hint(path: str) -> tuple[str, str] | None:
    """Returns the part of a client's path that shows a wrong base address, and how to correct it;
    None if there is none."""
    plain = _SLASHES.sub("/", path).rstrip("/")
    for prefix, hint in _HINTS:
        if plain.startswith(prefix):
            return prefix, hint
    for endpoint in _ENDPOINTS:
        if plain == endpoint and plain != path:
            what = "the path" if path.endswith("/") else "the base address"
            return (
                "//" if "//" in path else f"{endpoint}/",
                f"remove the slash at the end of {what}",
            )
        name, rest = endpoint.removeprefix("/v1"), plain.removeprefix(endpoint)
        if plain.startswith(f"{endpoint}/") and rest.endswith(_NAMES):
            extra = endpoint if rest.startswith("/v1/") else name
            return f"{endpoint}/…", f"remove {extra} from the base address"
    if plain.endswith(_ENDPOINTS) and not plain.startswith("/v1/"):
        return "…/v1/", "remove what comes before /v1 from the base address"
    return None


def count_bad_path(bad_paths: Counter[tuple[str, str]], prefix: str, user_agent: str) -> None:
    """Counts by prefix and product; other products together once there are too many."""
    product = user_agent.partition("/")[0].strip()[:_MAX_PRODUCT]
    entry = prefix, product if product.isprintable() else ""
    if entry not in bad_paths and len(bad_paths) >= _MAX_BAD_PATHS:
        entry = prefix, _OTHER_PRODUCTS
    bad_paths[entry] += 1
