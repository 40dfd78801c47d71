"""Hashing and verifying the console's password."""

from __future__ import annotations

import statistics
import time

import pytest

from gateway.admin.access.passwords import hash_password, verify_password


def test_only_the_password_is_recognised() -> None:
    digest = hash_password("correct horse battery")
    assert verify_password("correct horse battery", digest)
    for other in ("", "correct horse batter", "Correct horse battery", "correct horse battery "):
        assert not verify_password(other, digest)


def test_the_stored_hash_names_its_cost() -> None:
    one, other = hash_password("correct horse battery"), hash_password("correct horse battery")
    assert one.startswith("scrypt$32768$8$1$")
    assert one != other
    assert "horse" not in one


@pytest.mark.parametrize(("typed", "set_as"), [("pa\u00dfw\u00f6rt", "pa\u00dfwo\u0308rt")])
def test_unicode_is_normalized(typed: str, set_as: str) -> None:
    assert verify_password(typed, hash_password(set_as))


def test_unencodable_passwords_are_refused() -> None:
    assert not verify_password("\ud800", hash_password("correct horse battery"))


@pytest.mark.slow("hashes many passwords")
def test_a_missing_password_takes_as_long_as_a_wrong_one() -> None:
    digest = hash_password("correct horse battery")

    def took(kept: str | None) -> float:
        begun = time.thread_time()
        assert not verify_password("wrong", kept)
        return time.thread_time() - begun

    wrong = statistics.median(took(digest) for _ in range(5))
    none = statistics.median(took(None) for _ in range(5))
    assert 0.7 < none / wrong < 1.4
