"""Lists of user agents."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import pytest

from gateway.admission.access import UserAgentRule
from tests.support.timing import SLACK


def rule(patterns: Sequence[str]) -> UserAgentRule:
    return UserAgentRule("the key", patterns, enforced=True)


def test_expressions_take_linear_time() -> None:
    """Clients choose the text: a backtracking engine would take years for this."""
    agents = rule([r"re:^(\w+[ /.]?)+$"])
    began = perf_counter()
    assert not agents.allows("a" * 299 + "!")
    assert perf_counter() - began < SLACK


def test_invalid_utf_8() -> None:
    assert rule(["re:^coder"]).allows("coder/\udcff")
    assert not rule(["re:^coder"]).allows("\udcffcoder")


@pytest.mark.parametrize("agent", ["", "curl/8.5.0"])
def test_an_empty_list_allows_no_user_agent(agent: str) -> None:
    assert not rule([]).allows(agent)


@pytest.mark.parametrize("agent", ["", "curl/8.5.0"])
def test_an_empty_prefix_matches_every_user_agent(agent: str) -> None:
    assert rule(["coder/", ""]).allows(agent)


@pytest.mark.parametrize(
    ("agent", "allowed"),
    [
        ("coder/1.2", True),
        ("coder/", True),
        ("Coder/1.2", False),
        ("my coder/1.2", False),
        ("coder", False),
        ("", False),
        ("desk 3", True),
    ],
)
def test_prefixes(agent: str, allowed: bool) -> None:
    assert rule(("coder/", "desk")).allows(agent) is allowed


@pytest.mark.parametrize(
    ("agent", "allowed"),
    [
        ("coder/1.2", True),
        ("coder/12", False),
        ("a coder/1.2 too", True),
        ("desk/4", True),
        ("the desk/4", False),
        ("Coder/1.2", False),
        ("", False),
    ],
)
def test_expressions_match_anywhere(agent: str, allowed: bool) -> None:
    assert rule([r"re:coder/\d\.\d", "re:^desk/"]).allows(agent) is allowed


def test_prefixes_and_expressions() -> None:
    agents = rule(["desk", "re:lamp$"])
    assert agents.allows("desk/1")
    assert agents.allows("a lamp")
    assert not agents.allows("lamp post")
    assert not agents.allows("re:lamp post")


def test_an_empty_expression_matches_every_user_agent() -> None:
    assert rule(["re:"]).allows("")
    assert rule(["re:"]).allows("curl/8.5.0")


def test_an_expression_can_begin_like_a_prefix() -> None:
    assert rule(["re:re:x"]).allows("a re:x")
    assert not rule(["re:re:x"]).allows("x")
