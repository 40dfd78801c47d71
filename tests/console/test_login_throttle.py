"""How often somebody may try to sign in."""

from __future__ import annotations

import pytest

from gateway.console.login_throttle import MAX_PER_ADDRESS, MAX_TOTAL, WINDOW, LoginThrottle

NOW = 1_700_000_000_000_000
SECOND = 1_000_000


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "203.0.113.7", ""])
def test_five_tries_of_an_address_in_any_minute(address: str) -> None:
    knocks = LoginThrottle()
    for number in range(MAX_PER_ADDRESS):
        assert knocks.check(address, NOW + number * SECOND) == 0
    assert knocks.check(address, NOW + 10 * SECOND) == 50
    assert knocks.check(address, NOW + WINDOW - 1) == 1
    assert knocks.check(address, NOW + WINDOW) == 0
    assert knocks.check(address, NOW + WINDOW) == 1


def test_twenty_tries_in_all() -> None:
    knocks = LoginThrottle()
    for number in range(MAX_TOTAL):
        assert knocks.check(f"203.0.113.{number}", NOW + number * SECOND) == 0
    assert knocks.check("198.51.100.1", NOW + 20 * SECOND) == 40
    assert knocks.check("198.51.100.1", NOW + WINDOW) == 0
    assert knocks.check("198.51.100.1", NOW + WINDOW) == 1


def test_what_was_refused_was_no_try() -> None:
    knocks = LoginThrottle()
    for _ in range(1000):
        knocks.check("203.0.113.7", NOW)
    assert knocks.check("198.51.100.1", NOW) == 0
    assert knocks.check("203.0.113.7", NOW + WINDOW) == 0


def test_who_is_let_in_was_not_guessing() -> None:
    knocks = LoginThrottle()
    for _ in range(MAX_PER_ADDRESS):
        knocks.check("203.0.113.7", NOW)
    knocks.check("198.51.100.1", NOW)
    knocks.reset("203.0.113.7")
    for _ in range(MAX_PER_ADDRESS):
        assert knocks.check("203.0.113.7", NOW) == 0
    assert knocks.check("203.0.113.7", NOW) == 60


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("203.0.113.7", "::ffff:203.0.113.7", True),
        ("::ffff:203.0.113.7", "::ffff:203.0.113.8", False),
    ],
)
def test_who_counts_as_one(one: str, other: str, same: bool) -> None:
    knocks = LoginThrottle()
    for _ in range(MAX_PER_ADDRESS):
        knocks.check(one, NOW)
    assert (knocks.check(other, NOW) > 0) is same
