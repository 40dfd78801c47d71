"""What an upstream has signed, so that it knows its own when it comes back. One for all formats."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class IssuedIds:
    """`signed_thinking`: the readable text by its signature or ciphertext; `items`: the ciphertext
    of a reasoning item by its id; `ids`: of all other items."""

    signed_thinking: dict[str, str] = field(default_factory=dict)
    items: dict[str, str] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
