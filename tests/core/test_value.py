"""Values: equal and hashable by their fields, and copied with changes."""

from __future__ import annotations

import dataclasses

import pytest

from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.value import replace

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
