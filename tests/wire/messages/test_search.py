"""Web searches that upstreams of other formats ran."""

from __future__ import annotations

import re

import pytest

from gateway.core.formats import Format
from gateway.core.parts import Opaque, ServerToolCall, ServerToolResult, Text
from gateway.wire.messages.search import Search, shown_id, was_foreign


def test_what_was_searched_and_found() -> None:
    search = Search(
        '{"type":"search","query":"Oslo","sources":['
        '{"type":"url","url":"https://a.example","title":"A"},{"url":"https://b.example"},{}]}'
    )
    assert search.query == "Oslo"
    assert [(found["title"], found["url"]) for found in search.results] == [
        ("A", "https://a.example"),
        ("https://b.example", "https://b.example"),
    ]


@pytest.mark.parametrize("arguments", ["", "{", "[]", '{"query":1,"sources":2}', '{"url":"x"}'])
def test_other_actions_are_no_search(arguments: str) -> None:
    search = Search(arguments)
    assert (search.query, search.results) == ("", [])


@pytest.mark.parametrize("call_id", ["ws_1", "ws-68f0", "", "x" * 200, "ø|"])
def test_their_ids_are_known_again(call_id: str) -> None:
    shown = shown_id(call_id)
    assert re.fullmatch(r"srvtoolu_[a-zA-Z0-9_]+", shown)
    assert was_foreign(ServerToolCall(shown, "web_search"))
    assert was_foreign(ServerToolResult(shown, "web_search", Opaque(Format.MESSAGES, {})))


def test_everything_else_is_not_theirs() -> None:
    assert not was_foreign(ServerToolCall("srvtoolu_01", "web_search"))
    assert not was_foreign(Text("srvtoolu_gw1_"))
