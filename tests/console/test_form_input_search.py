"""What is typed into the filters is read as it is meant, or told apart by its field."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest

from gateway.console.form_input import FILTER_FIELDS, parse_search
from gateway.store.logs import LogFilter
from gateway.store.records import ExchangeState
from tests.store.sample_rows import token

NOW = 1_800_000_000_000_000
HOUR = 3_600_000_000
TOKENS = [token(1, name="one"), token(2, name="twin"), token(3, name="twin")]


def test_nothing_typed_is_everything() -> None:
    sought = parse_search({"since": " ", "model": "", "before": "req_1"}, TOKENS, NOW)
    assert sought.log_filter == LogFilter()
    assert sought.texts == {}
    assert sought.errors == {}
    assert sought.query() == ""


def test_every_field_is_read() -> None:
    texts = {
        "since": "2h",
        "until": "1h",
        "key": "one",
        "group": "default",
        "model": "beta-5.4",
        "channel": "main",
        "account": "a1",
        "state": "error",
        "status": "5xx",
        "code": "server_is_overloaded",
        "id": "req_00",
        "text": " room ",
    }
    assert set(texts) == set(FILTER_FIELDS)
    sought = parse_search(texts, TOKENS, NOW)
    assert sought.errors == {}
    assert sought.log_filter == LogFilter(
        since=NOW - 2 * HOUR,
        until=NOW - HOUR,
        token_id="tok_1",
        group_name="default",
        model="beta-5.4",
        channel="main",
        account="a1",
        state=ExchangeState.ERROR,
        status=range(500, 600),
        error_code="server_is_overloaded",
        id="req_00",
        text="room",
    )


def test_a_key_that_is_gone_still_has_rows() -> None:
    assert parse_search({"key": "tok_gone"}, TOKENS, NOW).log_filter.token_id == "tok_gone"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("since", "soon"),
        ("until", "2026-13-01"),
        ("key", "nobody"),
        ("key", "twin"),
        ("state", "sleeping"),
        ("status", "700"),
        ("status", "50"),
    ],
)
def test_every_mistake_is_of_its_field(name: str, text: str) -> None:
    sought = parse_search({name: text, "since": text if name == "since" else "1h"}, TOKENS, NOW)
    assert list(sought.errors) == [name]
    assert sought.texts[name] == text


def test_all_mistakes_are_told_at_once() -> None:
    sought = parse_search({"since": "soon", "key": "nobody", "status": "x"}, TOKENS, NOW)
    assert set(sought.errors) == {"since", "key", "status"}


def test_addresses_look_for_the_same() -> None:
    sought = parse_search({"text": "a&b=c #ü", "since": "1h", "key": "one"}, TOKENS, NOW)
    assert parse_qs(sought.query(before="req_1")) == {
        "text": ["a&b=c #ü"],
        "since": ["1h"],
        "key": ["one"],
        "before": ["req_1"],
    }
    assert parse_qs(sought.api_query(format="csv")) == {
        "text": ["a&b=c #ü"],
        "since": [str(NOW - HOUR)],
        "token_id": ["tok_1"],
        "format": ["csv"],
    }
