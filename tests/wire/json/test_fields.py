"""Strict readers of request fields, and the paths in their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.errors import InvalidRequest, MissingField
from gateway.wire.json import fields

READERS: list[tuple[Callable[..., Any], Any, Any, str]] = [
    (fields.optional_str, "x", 5, "Input should be a string"),
    (fields.optional_bool, False, 0, "Input should be true or false"),
    (fields.optional_int, 0, 1.0, "Input should be an integer"),
    (fields.optional_int, 7, True, "Input should be an integer"),
    (fields.optional_number, 1.5, "1", "Input should be a number"),
    (fields.optional_number, 2, False, "Input should be a number"),
    (fields.optional_object, {}, [], "Input should be an object"),
    (fields.optional_list, [], {}, "Input should be an array"),
]


@pytest.mark.parametrize(("reader", "good", "bad", "reason"), READERS)
def test_readers(reader: Callable[..., Any], good: Any, bad: Any, reason: str) -> None:
    assert reader({"a": good}, "a") == good
    assert reader({}, "a") is None
    assert reader({"a": None}, "a") is None
    with pytest.raises(InvalidRequest) as refused:
        reader({"a": bad}, "a", "messages.0")
    assert refused.value.message == f"messages.0.a: {reason}"
    assert refused.value.param == "messages.0.a"
    assert refused.value.code == "invalid_value"


@pytest.mark.parametrize("body", [{}, {"model": None}])
def test_required(body: dict[str, Any]) -> None:
    with pytest.raises(MissingField) as refused:
        fields.required_str(body, "model")
    assert refused.value.message == "model: Field required"
    assert (refused.value.status, refused.value.param) == (400, "model")
    assert fields.required({"model": False}, "model") is False


def test_minimum() -> None:
    assert fields.optional_int({"n": 1}, "n", minimum=1) == 1
    with pytest.raises(InvalidRequest, match="n: Input should be greater than or equal to 1"):
        fields.optional_int({"n": 0}, "n", minimum=1)


def test_paths() -> None:
    assert fields.join_path("", "a") == "a"
    assert fields.join_path("a", 0) == "a.0"
    with pytest.raises(InvalidRequest, match="body: Input should be an object"):
        fields.as_object([], "")


@pytest.mark.parametrize(
    ("counts", "counted"),
    [
        ({"n": 5}, 5),
        ({"n": 0}, 0),
        ({"n": -5}, 0),
        ({"n": "5"}, 0),
        ({"n": 5.0}, 0),
        ({"n": True}, 0),
        ({"n": None}, 0),
        ({"n": 10**18}, 0),
        ({}, 0),
        (None, 0),
        ([], 0),
    ],
)
def test_token_counts(counts: object, counted: int) -> None:
    assert fields.token_count(counts, "n") == counted
