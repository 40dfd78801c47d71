"""A mistake in the configuration and its place. It must not know how mistakes are found.

No text of a mistake contains a value of the file: a value may be a secret in the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

KeyPath = tuple[str | int, ...]
"""Keys and indexes that lead to a place in the file."""

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_QUOTED_KEY: Final = re.compile(r"[A-Za-z0-9._:/@+-]{1,64}")


@dataclass(frozen=True, slots=True)
class ConfigProblem:
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


class ConfigError(Exception):
    """Everything that is wrong with the configuration, in the order of the file."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda each: (each.line, each.column)))
        super().__init__("\n".join(map(str, self.problems)))


def format_path(path: KeyPath) -> str:
    """`("channels", 0, "name")` as `channels[0].name`; what looks like a pasted key is masked."""
    spelled = ""
    for step in path:
        if isinstance(step, int):
            spelled += f"[{step}]"
        elif step.startswith("sk-") or not _QUOTED_KEY.fullmatch(step):
            spelled += "[…]"
        elif _PLAIN_KEY.fullmatch(step):
            spelled += f".{step}" if spelled else step
        else:
            spelled += f'["{step}"]'
    return spelled
