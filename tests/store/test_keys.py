"""Keys: their shape, their checksum, what is shown and what is kept of them."""

from __future__ import annotations

import hashlib
import re

import pytest

from gateway.store import keys


def test_a_new_key_has_the_documented_form_and_checksum() -> None:
    fields = {keys.generate_key() for _ in range(200)}
    assert len(fields) == 200
    assert all(re.fullmatch(r"sk-[0-9A-Za-z]{48}", key) for key in fields)
    assert all(map(keys.well_formed, fields))


def test_a_changed_character_is_detected() -> None:
    key = keys.generate_key()
    for position in range(3, len(key)):
        other = "a" if key[position] != "a" else "b"
        assert not keys.well_formed(key[:position] + other + key[position + 1 :])


@pytest.mark.parametrize("key", ["", "sk-", "sk-" + "é" * 48, "sk-" + "a" * 48, "pk-" + "a" * 48])
def test_other_strings_are_not_well_formed(key: str) -> None:
    assert not keys.well_formed(key)


def test_the_digest_is_sha256_and_takes_any_header_value() -> None:
    assert keys.digest("sk-abc") == hashlib.sha256(b"sk-abc").digest()
    assert len(keys.digest("\udcff' OR 1=1--")) == 32


def test_the_display_shows_eight_characters_and_of_short_keys_two() -> None:
    key = keys.generate_key()
    assert keys.display(key) == f"sk-{key[3:7]}...{key[-4:]}"
    assert keys.display("sk-secret") == "sk-se..."
    assert keys.display("abc") == "sk-ab..."
