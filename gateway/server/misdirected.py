"""Clients whose base address is a wrong one: what they are told, and how often they came.

It must not know what is served: only paths that nothing serves are asked about.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

_BASE_URL_HINTS: Final = (
    ("/v1/v1/", "remove /v1 from the base address"),
    ("/chat/completions", "add /v1 to the base address"),
    ("/responses", "add /v1 to the base address"),
    ("/models", "add /v1 to the base address"),
    ("/messages", "configure clients with the address alone"),
)

_MAX_BAD_PATHS: Final = 100
"""Entries: agents choose their names."""

_OTHER_PRODUCTS: Final = "others"
_MAX_PRODUCT: Final = 60


def base_url_hint(path: str) -> tuple[str, str] | None:
    """What the path begins with that tells of a wrong base address, and what to do about it."""
    if path.startswith("/v1/") and not path.startswith("/v1/v1/"):
        return None
    return next((each for each in _BASE_URL_HINTS if path.startswith(each[0])), None)


def count_bad_path(bad_paths: Counter[tuple[str, str]], prefix: str, user_agent: str) -> None:
    """One more of this product; when there are too many to tell apart, of the others."""
    entry = prefix, _product(user_agent)
    if entry not in bad_paths and len(bad_paths) >= _MAX_BAD_PATHS:
        entry = prefix, _OTHER_PRODUCTS
    bad_paths[entry] += 1


def _product(user_agent: str) -> str:
    """The name that a user agent begins with; its version tells nothing here."""
    name = user_agent.partition("/")[0].strip()[:_MAX_PRODUCT]
    return name if name.isprintable() else ""
