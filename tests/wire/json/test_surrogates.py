"""Halves of surrogate pairs in JSON texts."""

from __future__ import annotations

import json
from time import process_time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.json.limits import load_json
from gateway.wire.json.surrogates import replace_lone_surrogates

_PIECES = st.sampled_from(
    ["\ud83d", "\ude00", "\U0001f600", "\\", "u", "ud83d", "a", '"', "\n", "\u00e9", "\ufffd"]
)


@given(st.lists(_PIECES).map("".join), st.booleans())
def test_only_halves_are_replaced(text: str, upper: bool) -> None:
    """Whatever stands beside them; escaped or encoded."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for ascii in (True, False):
        raw = json.dumps({"text": text}, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
        if upper and "\\" not in text:
            raw = raw.replace(b"\\ud8", b"\\uD8").replace(b"\\ude", b"\\uDE")
        replaced = replace_lone_surrogates(raw)
        expected = (
            whole if ascii else "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
        )
        assert orjson.loads(replaced) == {"text": expected}
        if not any("\ud800" <= c <= "\udfff" for c in text):
            assert replaced is raw
        assert load_json(raw) == {"text": expected}


@pytest.mark.large
@pytest.mark.parametrize(
    "raw",
    [b"\\" * 999_999, b"\\ud83d" * 150_000, b"\\n" * 500_000, b"x" * 999_999, b"\xed" * 999_999],
)
def test_time_grows_with_the_length(raw: bytes) -> None:
    def seconds(count: int) -> float:
        begun = process_time()
        replace_lone_surrogates(raw * count)
        return process_time() - begun

    assert min(seconds(4) for _ in range(3)) < 12 * max(min(seconds(1) for _ in range(3)), 0.005)


def test_slices_keep_escapes_whole() -> None:
    half, pair, text = b"\\ud83d", b"\\ud83d\\ude00", b"\xc3\xa9"
    raw = b'"' + (half + pair + text) * 40_000 + b'"'
    assert orjson.loads(replace_lone_surrogates(raw)) == "\ufffd\U0001f600\u00e9" * 40_000
