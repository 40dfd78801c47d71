"""Tools that are added and removed in the conversation, for upstreams that know no such changes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.target import Target
from gateway.errors import InvalidRequest
from gateway.wire.messages import CODEC
from gateway.wire.registry import CODECS

TARGET = Target(model="upstream-model", origin="here")
USER = {"role": "user", "content": "hi"}
REPLY = {"role": "assistant", "content": "Hello."}
MCP = {"type": "mcp_toolset_reference", "mcp_server_name": "x"}


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object", "properties": {}}}


def change(kind: str, named: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"tool_{kind}", "tool": named}


def reference(name: str) -> dict[str, Any]:
    return {"type": "tool_reference", "name": name}


def definition(name: str) -> dict[str, Any]:
    return {"type": "tool_definition", "definition": tool(name)}


def request_of(*messages: Any) -> dict[str, Any]:
    tools = [tool("a"), tool("b")]
    return {"model": "m", "max_tokens": 9, "tools": tools, "messages": [USER, *messages, USER]}


def system(*blocks: Any) -> dict[str, Any]:
    return {"role": "system", "content": [*blocks]}


def offered(body: dict[str, Any], to: Format) -> list[str]:
    rendering = CODECS[to].render_prompt(CODEC.parse_prompt(body), TARGET)
    assert not {name for name in rendering.dropped if name.startswith("tool")}
    assert "tool_removal" not in str(rendering.body)
    tools = rendering.body.get("tools", ())
    return [each["function"]["name"] if to is Format.CHAT else each["name"] for each in tools]


ADD_C = change("addition", definition("c"))
REMOVE_A = change("removal", reference("a"))
CASES: list[tuple[list[Any], list[str]]] = [
    ([], ["a", "b"]),
    ([system(REMOVE_A)], ["b"]),
    ([system(ADD_C)], ["a", "b", "c"]),
    ([system(REMOVE_A, ADD_C)], ["b", "c"]),
    ([system(REMOVE_A), REPLY, USER, system(change("addition", reference("a")))], ["b", "a"]),
    ([system(ADD_C), REPLY, USER, system(change("removal", reference("c")))], ["a", "b"]),
    ([system(change("removal", reference("unknown")), change("removal", MCP))], ["a", "b"]),
    (
        [{"role": "assistant", "content": [{"type": "compaction", "tool_changes": [REMOVE_A]}]}],
        ["b"],
    ),
    ([system(REMOVE_A, change("removal", reference("b")))], []),
]


@pytest.mark.parametrize("to", [Format.CHAT, Format.RESPONSES])
@pytest.mark.parametrize(("messages", "names"), CASES)
def test_tools_that_are_left(messages: list[Any], names: list[str], to: Format) -> None:
    assert offered(request_of(*messages), to) == names


def test_a_translated_request_of_this_format_has_the_tools_that_are_left() -> None:
    assert offered(request_of(system(REMOVE_A, ADD_C)), Format.MESSAGES) == ["b", "c"]


def test_changes_of_mcp_servers_stay() -> None:
    addition = change("addition", MCP)
    prompt = CODEC.parse_prompt(request_of(system(addition)))
    rendered = CODEC.render_prompt(prompt, TARGET).body["messages"]
    assert addition in [block for message in rendered for block in message["content"]]


def test_native_requests_keep_the_changes() -> None:
    body = request_of(system(REMOVE_A, ADD_C))
    assert CODEC.patch_prompt(body, CODEC.parse_prompt(body), TARGET) == body | {
        "model": "upstream-model"
    }


def test_a_malformed_definition_is_named() -> None:
    broken = change("addition", {"type": "tool_definition", "definition": {"name": "c"}})
    with pytest.raises(InvalidRequest) as refused:
        CODEC.parse_prompt(request_of(system(broken)))
    assert refused.value.param == "tool_addition.tool.definition.input_schema"


def test_system_texts_are_shown_until_the_next_user_message() -> None:
    hint = {"role": "system", "content": "Be brief.", "clear_at": "next_user_message"}
    for to in Format:
        for messages, shown in (([USER, hint, REPLY], True), ([USER, hint, REPLY, USER], False)):
            body = {"model": "m", "max_tokens": 9, "messages": messages}
            rendering = CODECS[to].render_prompt(CODEC.parse_prompt(body), TARGET)
            assert ("Be brief." in str(rendering.body)) is shown
            assert not {name for name in rendering.dropped if "clear_at" in name}
