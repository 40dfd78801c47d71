"""Limits of attempts to sign in."""

from __future__ import annotations

import pytest

from gateway.console.login_throttle import MAX_PER_ADDRESS, MAX_TOTAL, WINDOW, LoginThrottle

NOW = 1_700_000_000_000_000
SECOND = 1_000_000


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "203.0.113.7", ""])
def test_limit_of_an_address(address: str) -> None:
    throttle = LoginThrottle()
    for number in range(MAX_PER_ADDRESS):
        assert throttle.check(address, NOW + number * SECOND) == 0
    assert throttle.check(address, NOW + 10 * SECOND) == 50
    assert throttle.check(address, NOW + WINDOW - 1) == 1
    assert throttle.check(address, NOW + WINDOW) == 0
    assert throttle.check(address, NOW + WINDOW) == 1


def test_limit_of_all_addresses() -> None:
    throttle = LoginThrottle()
    for number in range(MAX_TOTAL):
        assert throttle.check(f"203.0.113.{number}", NOW + number * SECOND) == 0
    assert throttle.check("198.51.100.1", NOW + 20 * SECOND) == 40
    assert throttle.check("198.51.100.1", NOW + WINDOW) == 0
    assert throttle.check("198.51.100.1", NOW + WINDOW) == 1


def test_rejected_attempts_do_not_count() -> None:
    throttle = LoginThrottle()
    for _ in range(1000):
        throttle.check("203.0.113.7", NOW)
    assert throttle.check("198.51.100.1", NOW) == 0
    assert throttle.check("203.0.113.7", NOW + WINDOW) == 0


def test_a_success_resets_the_address() -> None:
    throttle = LoginThrottle()
    for _ in range(MAX_PER_ADDRESS):
        throttle.check("203.0.113.7", NOW)
    throttle.check("198.51.100.1", NOW)
    throttle.reset("203.0.113.7")
    for _ in range(MAX_PER_ADDRESS):
        assert throttle.check("203.0.113.7", NOW) == 0
    assert throttle.check("203.0.113.7", NOW) == 60


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("203.0.113.7", "::ffff:203.0.113.7", True),
        ("::ffff:203.0.113.7", "::ffff:203.0.113.8", False),
    ],
)
def test_addresses_of_one_network(one: str, other: str, same: bool) -> None:
    throttle = LoginThrottle()
    for _ in range(MAX_PER_ADDRESS):
        throttle.check(one, NOW)
    assert (throttle.check(other, NOW) > 0) is same
