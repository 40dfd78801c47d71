"""What requests state of themselves: sources, their order, lengths, hashes, numbers of values."""

from __future__ import annotations

import logging

import pytest
from multidict import CIMultiDict

from gateway.admission import dimensions
from gateway.admission.dimensions import (
    MAX_CHARS,
    NO_DIMENSIONS,
    Dimensions,
    DistinctValues,
    TrustedDimensions,
    parse_trust,
)
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.store.records import DAY_US, DIMENSIONS
from tests.store.sample_rows import START

EVERYTHING = ("end-user", "session", "agent", "tag")
AGENT_USER = '{"device_id":"dev","account_uuid":"acc","session_id":"ses"}'


def read(
    *trust: str, user: str | None = None, cache_key: str | None = None, **headers: str
) -> Dimensions:
    prompt = Prompt(format=Format.CHAT, model="m", turns=(), user=user, cache_key=cache_key)
    named = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    return TrustedDimensions(trust, None).read(named, prompt)


def test_the_fields_are_the_columns() -> None:
    assert Dimensions._fields == DIMENSIONS


def test_only_what_is_trusted_is_read() -> None:
    stated = {"X_Gateway_Tag": "nightly", "x_session_id": "s", "x_openai_subagent": "review"}
    everything = Dimensions("alice", "s", "review", "nightly")
    assert read(*EVERYTHING, user="alice", **stated) == everything
    for item, name in zip(EVERYTHING, DIMENSIONS, strict=True):
        expected = NO_DIMENSIONS._replace(**{name: getattr(everything, name)})
        assert read(item, user="alice", **stated) == expected
    assert read(*EVERYTHING) == NO_DIMENSIONS
    assert TrustedDimensions(EVERYTHING, None).read({}, None) == NO_DIMENSIONS


def test_headers_come_before_fields_in_the_order_of_the_trust() -> None:
    email = {"x_openwebui_user_email": "a@example.org", "x_mail": "b@example.org"}
    assert read("end-user", user="c", **email).end_user == "a@example.org"
    assert read("end-user=x-mail", "end-user", user="c", **email).end_user == "b@example.org"
    assert read("end-user", "end-user=X-Mail", user="c", x_mail="b").end_user == "b"
    assert read("end-user=x-mail", user="c").end_user is None  # this header alone
    assert read("session", cache_key="cached", session_id="header").session == "header"


@pytest.mark.parametrize(
    ("user", "person", "session"),
    [
        ("alice", "alice", None),
        (AGENT_USER, "acc", "ses"),
        (AGENT_USER.replace('"acc"', '""'), "dev", "ses"),
        ("user_1f_account_2e_session_3d-4c", "user_1f_account_2e", "3d-4c"),
        ('{"device_id":1}', None, None),
        ("{not json", "{not json", None),
        ("x" * 70_000, None, None),
    ],
)
def test_the_person_and_the_session_of_agents(
    user: str, person: str | None, session: str | None
) -> None:
    found = read(*EVERYTHING, user=user, cache_key="cached")
    assert found == Dimensions(person, session or "cached")


@pytest.mark.parametrize(
    ("headers", "agent"),
    [
        ({"request_class": "main"}, "main"),
        (
            {"request_class": "subagent", "agent_type": "Explore", "agent_id": "a1"},
            "subagent/Explore",
        ),
        ({"agent_id": "a1"}, "subagent"),
        ({"agent_type": "Explore"}, None),
    ],
)
def test_the_agents_of_a_coding_agent(headers: dict[str, str], agent: str | None) -> None:
    named = {f"x_claude_code_{name}": value for name, value in headers.items()}
    assert read("agent", **named).agent == agent


def test_values_are_cut_and_printable() -> None:
    assert read("tag", x_gateway_tag=" a\tb\x00\ud800é ").tag == "a?b??é"
    assert read("tag", x_gateway_tag="x" * 9000).tag == "x" * MAX_CHARS
    assert read("tag", x_gateway_tag="  ").tag is None


def test_end_users_are_hashed_with_a_key() -> None:
    long, other = "x" * MAX_CHARS + "1", "x" * MAX_CHARS + "2"
    hashes = []
    for key in ("key one", "key two"):
        trusted = TrustedDimensions(EVERYTHING, key)
        for user in (long, other, long):
            prompt = Prompt(format=Format.CHAT, model="m", turns=(), user=user, cache_key="s")
            found = trusted.read({}, prompt)
            assert found.session == "s"
            assert found.end_user is not None
            assert len(found.end_user) == 24
            hashes.append(found.end_user)
    assert hashes[0] == hashes[2]
    assert len({*hashes}) == 4


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("end-user", ("end_user", None)),
        ("end_user", ("end_user", None)),
        ("tag=X-Team", ("tag", "x-team")),
    ],
)
def test_items_of_a_trust(text: str, found: tuple[str, str | None]) -> None:
    assert parse_trust(text) == found


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("user", "must be one of end-user, session, agent, tag"),
        ("tag=", "must name a header"),
        ("tag=a b", "must name a header"),
        ("tag=Authorization", "credential"),
        ("end-user=x-api-key", "credential"),
        ("session=cookie", "credential"),
    ],
)
def test_invalid_items_of_a_trust(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse_trust(text)


def test_values_of_a_key_and_day_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dimensions, "MAX_VALUES", 2)
    monkeypatch.setattr(dimensions, "MAX_ALL_VALUES", 5)
    values = DistinctValues()

    def limit(key: str, now: int = START, **stated: str) -> tuple[Dimensions, list[str]]:
        return values.limit(key, Dimensions(**stated), now)

    for name in "abba":
        assert limit("tok_0", tag=name) == (Dimensions(tag=name), [])
    with caplog.at_level(logging.WARNING):
        for name in "cdc":
            folded = limit("tok_0", tag=name, session="s")
            assert folded == (Dimensions(session="s", tag="other"), ["tag"])
    assert [each.message for each in caplog.records] == [
        "key tok_0: too many values of tag today: later ones are recorded as 'other'"
    ]
    assert limit("tok_1", tag="c", session="t") == (Dimensions(session="t", tag="c"), [])
    assert limit("tok_2", tag="e") == (Dimensions(tag="other"), ["tag"])  # of all keys
    assert limit("tok_0", tag="a") == (Dimensions(tag="a"), [])
    assert limit("tok_0", START + DAY_US, tag="c") == (Dimensions(tag="c"), [])
