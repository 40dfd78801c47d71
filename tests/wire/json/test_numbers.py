"""Long integers keep their digits."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.json.numbers import parse_json
from tests.support.hypothesis_profiles import examples

LONG = st.integers(10**18, 10**60).map(lambda number: number * 10)
ANY = st.recursive(
    st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | st.integers() | LONG,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@examples(5)
@given(ANY, st.booleans())
def test_values_are_written_as_they_were_read(value: object, spaced: bool) -> None:
    raw = json.dumps(value, separators=(", ", ": ") if spaced else (",", ":")).encode()
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        return  # a lone surrogate
    assert json.loads(orjson.dumps(parse_json(raw))) == value


@examples(5)
@given(st.integers(0, 50), st.sampled_from(["", "-", "1,", "\n", "{}, -"]), LONG)
def test_long_integers_are_found_anywhere(position: int, before: str, number: int) -> None:
    raw = f"{' ' * position}[{before}{number}]".encode()
    assert orjson.dumps(parse_json(raw)) == b"".join(raw.split())


def test_the_shortest_long_integers_are_found_beside_dates_and_line_numbers() -> None:
    log = '"2026-01-02T03:04:05.123456 line 1234567890 took 20 ms",'
    for position in range(40):
        for number in (b"-9999999999999999999", b"18446744073709551616"):
            raw = f"[{log * 3}{' ' * position}".encode() + number + f",{log * 3}1]".encode()
            assert number in orjson.dumps(parse_json(raw))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("9223372036854775807", int),
        ("-9223372036854775808", int),
        ("18446744073709551615", int),
        ("18446744073709551616", orjson.Fragment),
        ("-9223372036854775809", orjson.Fragment),
        ("9" * 300, orjson.Fragment),
    ],
)
def test_64_bits(text: str, kind: type) -> None:
    (value,) = parse_json(f"[{text}]".encode())
    assert type(value) is kind
    assert orjson.dumps([value]) == f"[{text}]".encode()


def test_deep_nesting_is_read_without_the_digits() -> None:
    deep = b"[" * 1000 + b"18446744073709551616" + b"]" * 1000
    assert isinstance(parse_json(deep), list)
