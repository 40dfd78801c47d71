"""Names that every upstream accepts, equal in all turns."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.prompt.tool_names import conversation_key, sanitize_name, shorten_user

LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


@pytest.mark.parametrize("name", ["call_1", "a", "A-b_9", "x" * 64])
def test_valid_names_are_unchanged(name: str) -> None:
    assert sanitize_name(name) == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("functions.read:0", "functions_read_0_c216cab2"),
        ("x" * 65, "x" * 55 + "_9537c5fd"),
        ("", "_e3b0c442"),
        ("a\n", "a__87428fc5"),
    ],
)
def test_other_names_get_a_digest(name: str, expected: str) -> None:
    assert sanitize_name(name) == expected


@given(st.text() | st.text("abc.:|/", min_size=50, max_size=80))
def test_sanitizing_is_idempotent(name: str) -> None:
    assert LEGAL.match(sanitize_name(name))
    assert sanitize_name(sanitize_name(name)) == sanitize_name(name)


@given(
    st.lists(st.text("a.:|_", max_size=4) | st.text("ab", min_size=63, max_size=67), unique=True)
)
def test_different_names_stay_different(names: list[str]) -> None:
    assert len({sanitize_name(name) for name in names}) == len(names)


def test_lone_surrogates() -> None:
    assert LEGAL.match(sanitize_name("\ud800"))


def test_users_are_short_and_anonymous() -> None:
    assert shorten_user("u-1") == "u-1"
    for user in ("x" * 65, "ann@example.test", '{"device_id":"d"}'):
        assert re.fullmatch(r"[0-9a-f]{32}", shorten_user(user))


SESSION = "7b1c2a52-9f0d-4c8e-8a53-0d7c7b1f2a11"


@pytest.mark.parametrize(
    "user",
    [
        f'{{"device_id":"d","session_id":"{SESSION}"}}',
        f'{{"session":"{SESSION}","device":"other"}}',
        f"user_0a1b_account__session_{SESSION}",
    ],
)
def test_a_conversation_has_one_key(user: str) -> None:
    name = conversation_key(user)
    assert name == conversation_key(f'{{"session_id":"{SESSION}"}}')
    assert name is not None
    assert LEGAL.match(name)
    assert SESSION not in name


@pytest.mark.parametrize(
    "user", [None, "", "u-1", "{", "{}", '{"session_id":7}', '{"session_id":""}', "a_session_"]
)
def test_most_users_have_no_conversation(user: str | None) -> None:
    assert conversation_key(user) is None
