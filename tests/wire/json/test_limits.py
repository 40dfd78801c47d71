"""Counting what makes a JSON text expensive, without parsing it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.json import limits
from gateway.wire.json.limits import MAX_VALUES, JsonTooComplex, check_complexity, load_json

texts = st.text(max_size=20) | st.sampled_from(['"', "\\", '\\"', "[{,", "\x00"])
scalars = st.none() | st.booleans() | st.integers(-9, 9) | texts
documents = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner), max_leaves=30
)


def _values(value: Any) -> int:
    """Containers, and commas."""
    if isinstance(value, dict):
        value = [*value.values()]
    if not isinstance(value, list):
        return 0
    return 1 + max(0, len(value) - 1) + sum(map(_values, value))


@given(documents, st.integers(1, 40))
def test_values_are_counted_in_slices_of_any_size(document: Any, size: int) -> None:
    raw = orjson.dumps(document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "_SLICE", size)
        patch.setattr(limits, "MAX_NAMES", 0)
        if _has_names(document):
            with pytest.raises(JsonTooComplex, match="names of members"):
                check_complexity(raw)
        else:
            assert check_complexity(raw) == _values(document)


def _has_names(value: Any) -> bool:
    if isinstance(value, dict):
        return any(value) or any(map(_has_names, value.values()))
    return isinstance(value, list) and any(map(_has_names, value))


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("[" * (MAX_VALUES + 1), "200,000 values"),
        ('"' * (5 * MAX_VALUES), "200,000 values"),
        ("[" + "1," * (MAX_VALUES + 1), "200,000 values"),
    ],
)
def test_limits_of_embedded_texts(text: str, limit: str) -> None:
    with pytest.raises(JsonTooComplex, match=limit):
        load_json(text + " " * limits.MAX_NAMES)


def test_punctuation_in_a_string_counts_nothing() -> None:
    text = orjson.dumps(["{[,:" * MAX_VALUES])
    assert load_json(text) == ["{[,:" * MAX_VALUES]
