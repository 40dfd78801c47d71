"""Texts of the logs page as a filter, or errors by field."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest

from gateway.console.form_input import FILTER_FIELDS, parse_search
from gateway.store.log.outcomes import Outcome
from gateway.store.log.pages import LogFilter
from gateway.store.records import ExchangeState
from tests.store.sample_rows import token

NOW = 1_800_000_000_000_000
HOUR = 3_600_000_000
TOKENS = [token(1, name="one"), token(2, name="twin"), token(3, name="twin")]


def test_without_texts_everything_matches() -> None:
    search = parse_search({"since": " ", "model": "", "before": "req_1"}, TOKENS, NOW)
    assert search.log_filter == LogFilter()
    assert search.texts == {}
    assert search.errors == {}
    assert search.query() == ""


def test_every_field_is_parsed() -> None:
    texts = {
        "since": "2h",
        "until": "1h",
        "key": "one",
        "group": "default",
        "model": "beta-5.4",
        "channel": "main",
        "account": "a1",
        "outcome": "upstream_error",
        "state": "error",
        "status": "5xx",
        "code": "server_is_overloaded",
        "attempts": "2",
        "ttft": "10s",
        "usd": "0.25",
        "id": "req_00",
        "text": " room ",
    }
    assert set(texts) == set(FILTER_FIELDS)
    search = parse_search(texts, TOKENS, NOW)
    assert search.errors == {}
    assert search.log_filter == LogFilter(
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
        outcome=Outcome.UPSTREAM_ERROR,
        min_attempts=2,
        min_first_event_us=10_000_000,
        min_usd_micro=250_000,
    )


def test_the_id_of_a_deleted_key() -> None:
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
        ("outcome", "good"),
        ("attempts", "some"),
        ("attempts", "-1"),
        ("ttft", "long"),
        ("usd", "much"),
    ],
)
def test_an_error_belongs_to_its_field(name: str, text: str) -> None:
    search = parse_search({name: text, "since": text if name == "since" else "1h"}, TOKENS, NOW)
    assert list(search.errors) == [name]
    assert search.texts[name] == text


def test_all_errors_are_reported() -> None:
    search = parse_search({"since": "soon", "key": "nobody", "status": "x"}, TOKENS, NOW)
    assert set(search.errors) == {"since", "key", "status"}


def test_query_strings() -> None:
    search = parse_search({"text": "a&b=c #ü", "since": "1h", "key": "one"}, TOKENS, NOW)
    assert parse_qs(search.query(before="req_1")) == {
        "text": ["a&b=c #ü"],
        "since": ["1h"],
        "key": ["one"],
        "before": ["req_1"],
    }
    assert search.query(text=None, key=None) == "since=1h"
    assert parse_qs(search.prefix("key") + "two") == parse_qs(search.query(key="two"))
    assert parse_qs(search.api_query(format="csv")) == {
        "text": ["a&b=c #ü"],
        "since": [str(NOW - HOUR)],
        "token_id": ["tok_1"],
        "format": ["csv"],
    }
