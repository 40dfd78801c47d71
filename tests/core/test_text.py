"""Escaping of unprintable text."""

from __future__ import annotations

import pytest

from gateway.core.text import NARROW_SPACE, escape_unprintable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no room", "no room"),
        ("größer 模型 🙂", "größer 模型 🙂"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("gnp.\u202eexe", "gnp.\\u202eexe"),
        ("a\nb\tc\0", "a\\nb\\tc\\x00"),
        ("\u200bhidden\ufeff", "\\u200bhidden\\ufeff"),
        (f"1{NARROW_SPACE}000", f"1{NARROW_SPACE}000"),
        ("", ""),
    ],
)
def test_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    assert escape_unprintable(text) == shown


def test_the_result_is_printable() -> None:
    every = "".join(map(chr, range(0xD800)))
    assert escape_unprintable(every).replace(NARROW_SPACE, "").isprintable()
