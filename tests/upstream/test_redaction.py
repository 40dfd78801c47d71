"""What is taken out of an upstream's words, and what must stay."""

from __future__ import annotations

import pytest

from gateway.upstream.redaction import Redactor

REDACTOR = Redactor(
    keys=["top-secret", "top-secret-longer", ""],
    hosts=["upstream.test", "upstream.test:8443"],
    accounts=["a1", "team.blue"],
)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("with top-secret-longer!", "with [redacted]!"),
        ("key sk-live_0123456789, sk-a...xyz9", "key [redacted], [redacted]"),
        ("Authorization: Bearer abcdef0123456789==", "Authorization: [redacted]"),
        ("x-api-key: abc123", "x-api-key: [redacted]"),
        ("GET /v1?key=abc123&x=1", "GET /v1?key=[redacted]&x=1"),
        ("api_key=abc API-KEY:def", "api_key=[redacted] API-KEY:[redacted]"),
    ],
)
def test_secrets(text: str, kept: str) -> None:
    assert REDACTOR.secrets(text) == kept
    assert REDACTOR.everything(text) == kept


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at https://upstream.test:8443/v1/x?y=1, sorry", "at [address], sorry"),
        ("host upstream.test is down", "host [address] is down"),
        ("connect 10.0.0.7:443 and localhost:80/a", "connect [address] and [address]"),
        ("account a1 of (team.blue)", "account [account] of ([account])"),
    ],
)
def test_places_and_names_are_for_the_operator_only(text: str, shown: str) -> None:
    assert REDACTOR.everything(text) == shown
    assert REDACTOR.secrets(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "messages.0.content: Field required",
        "a1b2 and b-a1 are other names",
        "version 1.2.3 of sk-",
        "see https://docs.example.com/errors",
        "the skill is risk-free",
    ],
)
def test_what_stays(text: str) -> None:
    assert REDACTOR.everything(text) == text


def test_without_any_configuration() -> None:
    assert Redactor((), (), ()).everything("a text") == "a text"
