"""Values: equal and hashable by their fields, and copied with changes."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest

from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.value import by_position, replace

PROMPT = Prompt(format=Format.CHAT, model="m", turns=(Turn(Role.USER, (Text("Hi"),)),), stop=("x",))


def test_a_copy_has_the_changes_and_everything_else() -> None:
    changed = replace(PROMPT, stream=True, max_tokens=5)
    assert changed == dataclasses.replace(PROMPT, stream=True, max_tokens=5)
    assert (changed.stream, changed.max_tokens, PROMPT.stream) == (True, 5, False)
    assert hash(replace(PROMPT)) == hash(PROMPT)
    assert replace(PROMPT) is not PROMPT


def test_only_fields_can_be_changed() -> None:
    with pytest.raises(AttributeError):
        replace(PROMPT, colour="red")  # type: ignore[call-arg]


class Row(NamedTuple):
    one: int
    two: str
    three: int = 3


@by_position(Row)
def build(number: int) -> Row:
    return Row(two=str(number), one=number + len(Row._fields))


@by_position(Row)
def change(row: Row) -> Row:
    return row._replace(two=row.two + "!")


def build_wrong() -> Row:
    return Row(one=1, two="2", four=4)  # type: ignore[call-arg]  # the mistake to be found


def test_keywords_become_positions_and_defaults() -> None:
    assert build(1) == Row(4, "1", 3)
    assert change(Row(4, "1", 5)) == Row(4, "1!", 5)
    assert "_make" in build.__code__.co_names
    assert "_replace" not in change.__code__.co_names


def test_a_keyword_that_is_no_field_fails_at_the_start() -> None:
    with pytest.raises(TypeError, match="Row has no four"):
        by_position(Row)(build_wrong)
