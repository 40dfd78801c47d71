"""The files of the clients: complete, and without a name that nothing knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.doctor.clients import checks, profile
from gateway.doctor.clients.profile import CLIENTS, TEXTS, Request, fill, load_profile
from tests.support.paths import ROOT

REPLY_VALUES = {"$id", "$history", "$results"}


def requests_of(client: str) -> Iterator[Request]:
    loaded = load_profile(client)
    for step in (*loaded.once, *loaded.steps):
        yield from step.requests


def placeholders(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set().union(*map(placeholders, value.values()))
    if isinstance(value, list):
        return set().union(*map(placeholders, value))
    return {value} if isinstance(value, str) and "$" in value else set()


def test_every_file_is_a_client() -> None:
    files = {path.stem for path in (ROOT / "gateway/doctor/clients").glob("*.yaml")}
    assert files == set(CLIENTS)


@pytest.mark.parametrize("client", CLIENTS)
def test_checks_and_placeholders_exist(client: str) -> None:
    known = checks.OF_ANY_ANSWER | checks.OF_BODIES | checks.OF_REPLIES
    for request in requests_of(client):
        assert request.expect in known
        assert placeholders(request.body) <= {"$model", *TEXTS, *REPLY_VALUES}
        if "$results" in placeholders(request.body):
            assert placeholders(request.result) == {"$call_id", "$file"}
            assert placeholders(request.cancelled) == {"$call_id"}


def test_every_check_is_used() -> None:
    used = {request.expect for client in CLIENTS for request in requests_of(client)}
    assert used == {*checks.OF_ANY_ANSWER, *checks.OF_BODIES, *checks.OF_REPLIES}


def test_cost_counts_requests_and_their_output_limits() -> None:
    assert load_profile("aider").cost(2) == (2 + 3 * 2, (128 + 64 + 64) * 2)
    assert load_profile("openai").cost(1)[0] == 3 + 11


def test_lists_in_place_of_an_item_become_items() -> None:
    body = {"a": "$x", "b": ["$x", ["$x"], "$y"], "c": None}
    filled = fill(body, {"$x": [1, 2], "$y": "z"})
    assert filled == {"a": [1, 2], "b": [1, 2, [1, 2], "z"], "c": None}


def test_unknown_fields_are_an_error() -> None:
    with pytest.raises(TypeError, match="expects"):
        profile._step({"name": "x", "expects": "text"}, {})
