"""Escaping of unprintable text."""

from __future__ import annotations

import orjson
import pytest

from gateway.core.text import NARROW_SPACE, escape_json, escape_unprintable


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


def test_json_has_the_same_values() -> None:
    every = "".join(map(chr, [*range(0xD800), 0x1F642]))
    escaped = escape_json(orjson.dumps([every]))
    assert orjson.loads(escaped) == [every]
    for character in "\x7f\x9b\u200b\u202e\u2028\u2066\ufeff":
        assert character.encode() not in escaped
    assert "模型🙂".encode() in escape_json(orjson.dumps("\u202e模型🙂"))
