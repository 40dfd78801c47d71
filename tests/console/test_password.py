"""What is kept of a password, and how it is recognised."""

from __future__ import annotations

import statistics
import time

import pytest

from gateway.console.password import digested, recognised


def test_only_the_password_is_recognised() -> None:
    digest = digested("correct horse battery")
    assert recognised("correct horse battery", digest)
    for other in ("", "correct horse batter", "Correct horse battery", "correct horse battery "):
        assert not recognised(other, digest)


def test_what_is_kept_tells_its_cost_and_nothing_else() -> None:
    one, other = digested("correct horse battery"), digested("correct horse battery")
    assert one.startswith("scrypt$32768$8$1$")
    assert one != other
    assert "horse" not in one


@pytest.mark.parametrize(("typed", "set_as"), [("pa\u00dfw\u00f6rt", "pa\u00dfwo\u0308rt")])
def test_letters_are_the_same_however_they_are_composed(typed: str, set_as: str) -> None:
    assert recognised(typed, digested(set_as))


def test_what_no_keyboard_sends_is_refused_and_no_fault() -> None:
    assert not recognised("\ud800", digested("correct horse battery"))


def test_no_password_takes_as_long_as_a_wrong_one() -> None:
    digest = digested("correct horse battery")

    def took(kept: str | None) -> float:
        begun = time.thread_time()
        assert not recognised("wrong", kept)
        return time.thread_time() - begun

    wrong = statistics.median(took(digest) for _ in range(5))
    none = statistics.median(took(None) for _ in range(5))
    assert 0.7 < none / wrong < 1.4
