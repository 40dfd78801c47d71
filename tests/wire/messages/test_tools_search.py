"""Web searches that upstreams of other formats ran."""

from __future__ import annotations

import re

import pytest

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, ServerToolCall, ServerToolResult, Text
from gateway.wire.messages.tools import ForeignSearch, foreign_search_id, is_foreign_search


def test_query_and_results() -> None:
    search = ForeignSearch(
        '{"type":"search","query":"Oslo","sources":['
        '{"type":"url","url":"https://a.example","title":"A"},{"url":"https://b.example"},{}]}'
    )
    assert search.query == "Oslo"
    assert [(result["title"], result["url"]) for result in search.results] == [
        ("A", "https://a.example"),
        ("https://b.example", "https://b.example"),
    ]


@pytest.mark.parametrize("arguments", ["", "{", "[]", '{"query":1,"sources":2}', '{"url":"x"}'])
def test_other_actions_are_not_searches(arguments: str) -> None:
    search = ForeignSearch(arguments)
    assert (search.query, search.results) == ("", [])


@pytest.mark.parametrize("call_id", ["ws_1", "ws-68f0", "", "x" * 200, "ø|"])
def test_ids_are_recognised(call_id: str) -> None:
    client_id = foreign_search_id(call_id)
    assert re.fullmatch(r"srvtoolu_[a-zA-Z0-9_]+", client_id)
    assert is_foreign_search(ServerToolCall(client_id, "web_search"))
    assert is_foreign_search(
        ServerToolResult(client_id, "web_search", ProviderData(Format.MESSAGES, {}))
    )


def test_other_parts_are_not_foreign() -> None:
    assert not is_foreign_search(ServerToolCall("srvtoolu_01", "web_search"))
    assert not is_foreign_search(Text("srvtoolu_gw1_"))
