"""Input items beyond plain conversations."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Text, Thinking, ToolCall, ToolResult, UnknownPart
from gateway.core.prompt import Role, Turn
from gateway.core.target import Target
from gateway.errors import InvalidRequest
from gateway.wire.prompt import signatures
from gateway.wire.registry import CODECS
from gateway.wire.responses.input_items import parse_item
from gateway.wire.responses.parse_prompt import parse_prompt


def native(data: Any) -> ProviderData:
    return ProviderData(Format.RESPONSES, data)


def parse_thinking(item: Any) -> Thinking:
    (part,) = parse_item(item, "input.0").parts
    assert isinstance(part, Thinking)
    return part


def reasoning(encrypted: str, *texts: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {
        "type": "reasoning",
        "id": "rs_gw_a_0",
        "summary": summary,
        "content": None,
        "encrypted_content": encrypted,
    }


def test_wrapped_reasoning() -> None:
    signature = ProviderData(Format.MESSAGES, "c2ln")
    packed = signatures.wrap(signature, "here")
    assert parse_thinking(reasoning(packed, "Hm.")) == Thinking("Hm.", signature, origin="here")
    redacted = signatures.wrap(signature, "here", redacted=True)
    assert parse_thinking(reasoning(redacted)) == Thinking(
        "", signature, redacted=True, origin="here"
    )


def test_unsigned_reasoning() -> None:
    packed = signatures.wrap(None, "here")
    assert parse_thinking(reasoning(packed, "Hm.")) == Thinking("Hm.", origin="here")


def test_malformed_wrapped_reasoning() -> None:
    part = parse_thinking(reasoning("gw1.???", "Hm."))
    assert (part.text, part.signature) == ("Hm.", None)
    assert part.origin is not None


def test_native_reasoning() -> None:
    item = reasoning("ZW5j", "Hm.") | {"id": "rs_1"}
    part = parse_thinking(item)
    assert part.signature == native({"id": "rs_1", "encrypted_content": "ZW5j"})
    assert (part.origin, part.extra) == (None, native(item))


def test_message_with_an_unknown_part() -> None:
    part = {"type": "part_of_tomorrow"}
    item = {"role": "user", "content": [part], "id": "msg_1"}
    assert parse_item(item, "input.0") == Turn(
        Role.USER,
        (UnknownPart("part_of_tomorrow", native(part)),),
        extra=native({"id": "msg_1", "type": "message"}),
    )


def test_client_tool_call() -> None:
    item = {
        "type": "shell_call",
        "id": "sh_1",
        "call_id": "call_1",
        "status": "completed",
        "action": {"commands": ["ls"]},
    }
    assert parse_item(item, "input.0") == Turn(
        Role.ASSISTANT,
        (ToolCall("call_1", "shell", '{"commands":["ls"]}', extra=native(item)),),
    )
    answer = {"type": "shell_call_output", "call_id": "call_1", "output": [{"stdout": "a"}]}
    assert parse_item(answer, "input.1") == Turn(
        Role.USER, (ToolResult("call_1", (Text('[{"stdout":"a"}]'),), extra=native(answer)),)
    )


def test_failed_patch() -> None:
    item = {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no"}
    (result,) = parse_item(item, "input.0").parts
    assert isinstance(result, ToolResult)
    assert result.is_error


def test_output_with_only_its_own_id() -> None:
    (result,) = parse_item(
        {"type": "local_shell_call_output", "id": "call_1", "output": "a"}, "input.0"
    ).parts
    assert isinstance(result, ToolResult)
    assert result.call_id == "call_1"
    with pytest.raises(InvalidRequest) as refused:
        parse_item({"type": "shell_call", "action": {}}, "input.0")
    assert refused.value.message == "input.0.id: Field required"


FOUND_TOOL = {"type": "function", "name": "found", "parameters": {"type": "object"}}
SEARCHED = {"type": "tool_search_output", "call_id": "call_1", "execution": "client"}


def test_found_tools() -> None:
    prompt = parse_prompt({"model": "m", "input": [SEARCHED | {"tools": [FOUND_TOOL]}]})
    (tool,) = prompt.tools
    assert (tool.name, tool.schema) == ("found", {"type": "object"})
    assert tool.definition is None, "the item itself goes along"
    (turn,) = prompt.turns
    (result,) = turn.parts
    assert isinstance(result, ToolResult)
    assert result.parts == (Text("Tools found: found"),)


def test_invalid_found_tools() -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_prompt({"model": "m", "input": [SEARCHED | {"tools": [{"type": "function"}]}]})
    assert refused.value.message == "input.0.tools.0.name: Field required"


def test_too_deeply_nested_output() -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    item = {"type": "local_shell_call_output", "call_id": "c", "output": deep}
    with pytest.raises(InvalidRequest, match=r"^input\.0\.output: .*nested too deeply"):
        parse_item(item, "input.0")


@pytest.mark.parametrize("named", [{}, {"name": "clock"}, {"call_id": None}])
def test_output_without_a_call(named: dict[str, Any]) -> None:
    """The id is optional in the client library; other formats get a text."""
    item = {"type": "function_call_output", "output": "noon"} | named
    body = {"model": "m", "input": [{"role": "user", "content": "When?"}, item]}
    prompt = CODECS[Format.RESPONSES].parse_prompt(body)
    target = Target(model="m", origin="o")
    rendered = CODECS[Format.RESPONSES].render_prompt(prompt, target).body["input"]
    assert rendered[-1] == item
    for format in (Format.CHAT, Format.MESSAGES):
        text = str(CODECS[format].render_prompt(prompt, target).body["messages"])
        assert f"[tool result for {named.get('name', '')}]" in text and "noon" in text


def test_tool_search_without_ids() -> None:
    (call,) = parse_item({"type": "tool_search_call", "arguments": {}}, "input.0").parts
    assert isinstance(call, ToolCall) and call.id == "tool_search"
