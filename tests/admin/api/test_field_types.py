"""Valid and invalid values of form fields."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from gateway.admin.api import field_types


def error_of(kind: Any, value: Any) -> str:
    with pytest.raises(ValidationError) as found:
        TypeAdapter(kind).validate_python(value)
    (error,) = found.value.errors()
    return str(error["msg"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.1.2.3", "10.1.2.3/32"),
        ("10.0.0.0/255.0.0.0", "10.0.0.0/8"),
        ("2001:DB8::/32", "2001:db8::/32"),
        ("::1", "::1/128"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("::ffff:10.0.0.1", "10.0.0.1/32"),
        ("::ffff:a00:0/104", "10.0.0.0/8"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::fffe:0:0/95", "::fffe:0:0/95"),
        ("::/0", "::/0"),
    ],
)
def test_addresses(text: str, expected: str) -> None:
    assert TypeAdapter(field_types.Network).validate_python(text) == expected


@pytest.mark.parametrize("text", ["", "10.0.0", "10.0.0.1/33", "host", "10.0.0.1 ", "*"])
def test_invalid_addresses(text: str) -> None:
    assert error_of(field_types.Network, text)


def test_an_address_with_host_bits_is_refused_with_a_hint() -> None:
    assert error_of(field_types.Network, "10.1.2.3/8") == (
        "has an address inside its network: write 10.0.0.0/8 for all of it or 10.1.2.3"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "1"),
        ("0", "0"),
        ("0.0", "0"),
        ("007.50", "7.5"),
        ("1000000", "1000000"),
        ("0.000000001", "0.000000001"),
        ("0.1", "0.1"),
    ],
)
def test_multipliers(text: str, expected: str) -> None:
    assert TypeAdapter(field_types.Multiplier).validate_python(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ".5", "5.", "+1", "-1", "1e3", "1000001", "0.1234567890", "٣", "1,5", "inf", "1\n"],
)
def test_invalid_multipliers(text: str) -> None:
    assert "at most 9 decimals" in error_of(field_types.Multiplier, text)


@pytest.mark.parametrize(
    "key", ["x" * 19, "a key with blanks 1234", "schlüssel-schlüssel-1", "tab\tin-a-key-of-ours-1"]
)
def test_invalid_keys_are_not_repeated(key: str) -> None:
    assert key not in error_of(field_types.ExistingKey, key)


@pytest.mark.parametrize("sign", ["=", "+", "-", "@"])
def test_formulas_are_refused(sign: str) -> None:
    formula = f"{sign}cmd|'/c_calc'!A1_and_more"
    for kind in (field_types.KeyName, field_types.ExistingKey):
        assert error_of(kind, formula) == "must not begin with = + - or @"
    assert TypeAdapter(field_types.KeyName).validate_python(f"a{formula}") == f"a{formula}"
    assert error_of(field_types.GroupName, formula)


def test_keys_may_start_with_base64_signs() -> None:
    for key in ("+abcdefghij/klmnopqrst==", "-abcdefghij_klmnopqrst"):
        assert TypeAdapter(field_types.ExistingKey).validate_python(key) == key


def test_keys_of_twenty_characters() -> None:
    assert TypeAdapter(field_types.ExistingKey).validate_python("x" * 20) == "x" * 20


def test_times_and_amounts_are_integers() -> None:
    for kind in (field_types.Count, field_types.Budget, field_types.Timestamp):
        assert TypeAdapter(kind).validate_python(0) == 0
        for wrong in (-1, 1.5, "1", True, 2**63):
            assert error_of(kind, wrong)
