"""Clients whose base address is a wrong one: what they are told, and how often they came.

It must not know what is served: only paths that nothing serves are asked about.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

_HINTS: Final = (
    ("/v1/v1/", "remove /v1 from the base address"),
    ("/chat/completions", "add /v1 to the base address"),
    ("/responses", "add /v1 to the base address"),
    ("/models", "add /v1 to the base address"),
    ("/messages", "configure clients with the address alone"),
)

_MOST: Final = 100
"""Entries: agents choose their names."""

_OTHERS: Final = "others"
_LONGEST: Final = 60


def misdirection(path: str) -> tuple[str, str] | None:
    """What the path begins with that tells of a wrong base address, and what to do about it."""
    if path.startswith("/v1/") and not path.startswith("/v1/v1/"):
        return None
    return next((each for each in _HINTS if path.startswith(each[0])), None)


def count(misdirected: Counter[tuple[str, str]], beginning: str, agent: str) -> None:
    """One more of this product; when there are too many to tell apart, of the others."""
    entry = beginning, _product(agent)
    if entry not in misdirected and len(misdirected) >= _MOST:
        entry = beginning, _OTHERS
    misdirected[entry] += 1


def _product(agent: str) -> str:
    """The name that a user agent begins with; its version tells nothing here."""
    name = agent.partition("/")[0].strip()[:_LONGEST]
    return name if name.isprintable() else ""
