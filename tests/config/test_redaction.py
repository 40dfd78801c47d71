"""What is taken out of an upstream's words, and what must stay."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.load import parse_config
from gateway.config.redaction import Redactor, config_secrets
from gateway.config.schema import Config

REDACTOR = Redactor(
    keys=["top-secret", "top-secret-longer", ""],
    hosts=["upstream.test", "model", "fe80::1"],
    accounts=["a1", "team.blue", "default", "main", "2024", "longestaccount"],
)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("with top-secret-longer!", "with [redacted]!"),
        ("key sk-live_0123456789, sk-a...xyz9", "key [redacted], [redacted]"),
        ("Authorization: Bearer abcdef0123456789==", "Authorization: [redacted]"),
        ("x-api-key: abc123", "x-api-key: [redacted]"),
        ("admin gwa_0123456789", "admin [redacted]"),
        ("GET /v1?key=abc123&x=1", "GET /v1?key=[redacted]&x=1"),
        ("api_key=abc API-KEY:def", "api_key=[redacted] API-KEY:[redacted]"),
        (r'{"error":"api_key=abc\"}"}', r'{"error":"api_key=[redacted]\"}"}'),
    ],
)
def test_secrets(text: str, kept: str) -> None:
    assert REDACTOR.redact_secrets(text) == kept
    assert REDACTOR.redact_all(text) == kept


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at https://upstream.test:8443/v1/x?y=1, sorry", "at [address], sorry"),
        ("host upstream.test is down", "host [address] is down"),
        ("connect 10.0.0.7:443 and localhost:80/a", "connect [address] and [address]"),
        ("account a1 of (team.blue)", "account [account] of ([account])"),
        ("account longestaccount", "account [account]"),
        ("at Upstream.TEST:9000, HTTP://UPSTREAM.test", "at [address], [address]"),
        ("(eu.upstream.test)", "(eu.[address])"),
        ("at model:8000 or http://model/v1", "at [address] or [address]"),
        ("[::1]:8080, http://[2001:db8::7]/v1, fe80::1", "[address], [address], [address]"),
        ("[1:2:3:4:5:6:7:8] fell", "[address] fell"),
        (r'{"error":"at https://upstream.test/v1\"}"}', r'{"error":"at [address]\"}"}'),
    ],
)
def test_addresses_and_names_are_only_for_the_operator(text: str, expected: str) -> None:
    assert REDACTOR.redact_all(text) == expected
    assert REDACTOR.redact_secrets(text) == text


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
        "the default model: main, since 2024",
        "myupstream.test and upstream.tests and upstream.test-2",
        "items[::2] of messages[1:2] at [12:30:45]",
    ],
)
def test_texts_that_stay(text: str) -> None:
    assert REDACTOR.redact_all(text) == text


def test_without_any_configuration() -> None:
    assert Redactor((), (), ()).redact_all("a text") == "a text"
    assert Redactor.from_config(Config()).redact_all("a text") == "a text"


def configured(**channel: Any) -> Redactor:
    account = {"name": "blue-7", "key": "key-for-tests"}
    channel = {
        "name": "chat-main",
        "format": "chat",
        "models": ["beta-5.4"],
        "accounts": [account],
    } | channel
    return Redactor.from_config(parse_config(orjson.dumps({"channels": [channel]}).decode()))


def test_secrets_of_a_configuration() -> None:
    headers = {"x-org": "org-for-tests", "x-fast": "true"}
    redactor = configured(base_url="https://Upstream.test:8443/v1", headers=headers)
    assert redactor.redact_all(
        "blue-7 with key-for-tests for org-for-tests, true, at upstream.test or "
        "https://upstream.test:8443/v1/x"
    ) == ("[account] with [redacted] for [redacted], true, at [address] or [address]")
    assert (
        redactor.redact_secrets("org-for-tests at upstream.test") == "[redacted] at upstream.test"
    )


def test_an_ipv6_upstream() -> None:
    redactor = configured(base_url="http://[::1]:8080/v1")
    assert redactor.redact_all("at [::1]:8080 or http://[::1]:8080/v1/x, sorry") == (
        "at [address] or [address], sorry"
    )


def test_a_proxy() -> None:
    redactor = configured(base_url="http://[::1]:8080/v1", proxy="http://Squid.test:3128")
    assert redactor.redact_all("squid.test:3128 says no") == "[address] says no"


KEY = "key-0123456789-abcdefghijklmnop-XYZ-7654321"


@pytest.mark.parametrize("size", range(len(KEY)))
def test_a_key_that_is_cut_by_the_end_of_the_text(size: int) -> None:
    """An upstream's text may end anywhere, and so may what is kept of it."""
    text = Redactor([KEY], (), ()).redact_secrets(f"your key is {KEY[:size]}")
    assert text == f"your key is {KEY[:size] if size < 4 else '[redacted]'}"


@given(st.data())
def test_fragments_of_keys(data: st.DataObject) -> None:
    """From twelve characters on, wherever they are and whatever is around them."""
    keys = [KEY, "another-of-the-keys-" * 3]
    redactor = Redactor(keys, (), ())
    pieces = []
    for _ in range(data.draw(st.integers(1, 4))):
        key = data.draw(st.sampled_from(keys))
        start = data.draw(st.integers(0, len(key) - 12))
        pieces.append(data.draw(st.text("aké <>-", max_size=9)))
        pieces.append(key[start : data.draw(st.integers(start + 12, len(key)))])
    text = "".join(pieces) + " end"
    redacted = redactor.redact_secrets(text)
    assert "[redacted]" in redacted
    assert redacted.endswith(" end")
    for key in keys:
        for start in range(len(key) - 11):
            assert key[start : start + 12] not in redacted
    # What is no fragment stays: between two of them, say.
    assert redactor.redact_secrets(f"a {KEY[:20]} b {KEY[5:18]} c") == (
        "a [redacted] b [redacted] c"
    )


@pytest.mark.parametrize("text", ["key-0123456", "0123456789-", "abcdefghijk", "XYZ-7654321"])
def test_shorter_fragments_stay(text: str) -> None:
    assert Redactor([KEY], (), ()).redact_secrets(f"{text} is not it") == f"{text} is not it"


def test_many_keys_and_long_texts_take_linear_time() -> None:
    """Among them texts that look like keys all the way."""
    keys = [f"{number:04}-{'a' * 60}" for number in range(2000)]
    redactor = Redactor(keys, (), ())

    def seconds(length: int) -> float:
        texts = ("a" * length, "x" * length, "0001-aaa" * (length // 8), "sk-" * (length // 3))
        started = time.process_time()
        for text in texts:
            redactor.redact_all(text)
        return time.process_time() - started

    seconds(60_000)
    assert seconds(60_000) < 12 * max(seconds(10_000), 0.002)
    assert len(redactor.redact_all("x" * 10_000_000)) == 64 * 1024
    assert redactor.redact_all("a" * 60_000) == "[redacted]"


def test_fragments_of_header_values_only_where_they_are_keys() -> None:
    headers = {"x-api-token": "token-for-tests-1234567", "x-media": "application/json"}
    redactor = configured(base_url="https://upstream.test/v1", headers=headers)
    assert redactor.redact_secrets("token-for-tests-, application/json, application/xml") == (
        "[redacted], [redacted], application/xml"
    )


def test_every_secret_of_a_configuration_is_known() -> None:
    hook = "https://hooks.test/services/T0/B0/wordless"
    text = {
        "metrics": {"token": "token-of-the-metrics"},
        "alerts": {"webhooks": [{"name": "a", "url": hook, "secret": "secret-of-the-hook"}]},
        "traces": {
            "headers": {"x-api-token": "token-of-the-traces", "x-region": "northern-lights"}
        },
    }
    secrets = config_secrets(parse_config(orjson.dumps(text).decode()))
    assert set(secrets.keys) == {
        "token-of-the-metrics",
        "secret-of-the-hook",
        "token-of-the-traces",
        "/services/T0/B0/wordless",
    }
    assert set(secrets.values) == {hook, "northern-lights"}


def test_headers_that_reveal_a_key() -> None:
    redactor = Redactor(["the-key-of-an-account"], [], [], ["northern-lights"])
    assert redactor.reveals("x the-key-of-an-account")
    assert redactor.reveals("key-of-an-acc")
    assert redactor.reveals("in northern-lights")
    assert not redactor.reveals("sk-0123456789 key-of-an")
