"""Searches of the gateway in a history: calls and results in turns of their own."""

from __future__ import annotations

from typing import Any

from gateway.core.formats import Format
from gateway.core.parts import (
    Part,
    ProviderData,
    ServerToolCall,
    ServerToolResult,
    Text,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import Role, Turn
from gateway.wire.prompt.history import pair_tool_results
from gateway.wire.search.history import CALL_PREFIX, is_own_search
from gateway.wire.search.results import SearchResult, error_part, pack_block, result_part

ID = f"{CALL_PREFIX}1"
OTHER = f"{CALL_PREFIX}2"
USER = Turn(Role.USER, (Text("Hello"),))
WEATHER = ToolCall("w", "get_weather", "{}")
SUNNY = ToolResult("w", (Text("sunny"),))


def call(id: str = ID, query: str = "q") -> ServerToolCall:
    extra = ProviderData(Format.MESSAGES, {})
    return ServerToolCall(id, "web_search", f'{{"query":"{query}"}}', extra=extra)


def result(id: str = ID, text: str = "found") -> ServerToolResult:
    return result_part(id, [SearchResult("https://a.org", "A", text)])


def assistant(*parts: Part) -> Turn:
    return Turn(Role.ASSISTANT, parts)


def story(*turns: Turn) -> list[tuple[str, list[str]]]:
    def name(part: Part) -> str:
        match part:
            case Text(text):
                return text
            case ToolCall(id=id):
                return f"call {id}"
            case ToolResult(call_id=id, parts=(Text(text),)):
                return f"result {id}: {text.splitlines()[-1]}"
        return type(part).__name__

    return [(turn.role.value, [*map(name, turn.parts)]) for turn in pair_tool_results(turns)]


def test_a_search_between_texts() -> None:
    turn = assistant(Text("one"), call(), result(), Text("two"))
    assert story(USER, turn, USER) == [
        ("user", ["Hello"]),
        ("assistant", ["one", f"call {ID}"]),
        ("user", [f"result {ID}: found"]),
        ("assistant", ["two"]),
        ("user", ["Hello"]),
    ]


def test_several_searches() -> None:
    turn = assistant(call(), result(), call(OTHER), result(OTHER, "more"), Text("two"))
    assert story(USER, turn) == [
        ("user", ["Hello"]),
        ("assistant", [f"call {ID}"]),
        ("user", [f"result {ID}: found"]),
        ("assistant", [f"call {OTHER}"]),
        ("user", [f"result {OTHER}: more"]),
        ("assistant", ["two"]),
    ]


def test_calls_of_the_client_come_last() -> None:
    turn = assistant(WEATHER, call(), result(), Text("two"))
    assert story(USER, turn, Turn(Role.USER, (SUNNY,))) == [
        ("user", ["Hello"]),
        ("assistant", [f"call {ID}"]),
        ("user", [f"result {ID}: found"]),
        ("assistant", ["two"]),
        ("assistant", ["call w"]),
        ("user", ["result w: sunny"]),
    ]


def test_a_search_without_its_result() -> None:
    (_, _, (role, (answer,)), *_) = story(USER, assistant(call(), Text("two")))
    assert (role, answer) == ("user", f"result {ID}: Nothing was found.")


def test_a_search_that_failed() -> None:
    turns = story(USER, assistant(call(), error_part(ID, "unavailable"), Text("two")))
    assert turns[2] == ("user", [f"result {ID}: The search failed: unavailable."])


def test_a_result_without_its_search() -> None:
    assert story(USER, assistant(result(), Text("two"))) == [
        ("user", ["Hello"]),
        ("assistant", ["ServerToolResult", "two"]),
    ]


def item(**fields: Any) -> ServerToolCall:
    data = {"type": "web_search_call", "id": "ws_gw_1_0"} | fields
    return ServerToolCall(
        str(data["id"]), "web_search", '{"query":"q"}', extra=ProviderData(Format.RESPONSES, data)
    )


def test_items_of_a_responses_client() -> None:
    packed = pack_block(result().content.data)
    turns = [USER, assistant(item(encrypted_content=packed)), assistant(Text("two")), USER]
    assert story(*turns) == [
        ("user", ["Hello"]),
        ("assistant", ["call ws_gw_1_0"]),
        ("user", ["result ws_gw_1_0: found"]),
        ("assistant", ["two"]),
        ("user", ["Hello"]),
    ]


def test_searches_of_upstreams_stay() -> None:
    vendor = ServerToolCall("srvtoolu_1", "web_search", "{}")
    for part in (vendor, item(), item(encrypted_content="gw1.x"), Text("x"), WEATHER):
        assert not is_own_search(part)
    turn = assistant(vendor, Text("two"))
    assert pair_tool_results([USER, turn]) == [USER, turn]
