"""A mistake in the configuration and its place. It must not know how mistakes are found.

No text of a mistake contains a value of the file: a value may be a secret in the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

Path = tuple[str | int, ...]
"""Keys and indexes that lead to a place in the file."""

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_QUOTABLE_KEY: Final = re.compile(r"[A-Za-z0-9._:/@+-]{1,64}")


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing to mend. `line` and `column` count from 1; 0: the file as a whole, or no column.

    `path` is the key path as people write it, such as `channels[0].accounts[1].key`; empty where
    the file could not be read that far.
    """

    path: str
    file: str
    line: int
    text: str
    column: int = 0

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return ": ".join(part for part in (place, self.path, self.text) if part)


class ConfigMistakes(Exception):
    """Everything that is wrong with the configuration, in the order of the file."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda each: (each.line, each.column)))
        super().__init__("\n".join(map(str, self.mistakes)))


def spell_path(path: Path) -> str:
    """`("channels", 0, "name")` as `channels[0].name`; what looks like a pasted key is masked."""
    spelled = ""
    for step in path:
        if isinstance(step, int):
            spelled += f"[{step}]"
        elif step.startswith("sk-") or not _QUOTABLE_KEY.fullmatch(step):
            spelled += "[…]"
        elif _PLAIN_KEY.fullmatch(step):
            spelled += f".{step}" if spelled else step
        else:
            spelled += f'["{step}"]'
    return spelled
