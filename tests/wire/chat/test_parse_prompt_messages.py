"""What an assistant's former calls may look like; the rest is in `test_invalid_requests.py`."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, UnknownPart
from gateway.core.prompt import Role, Turn
from gateway.errors import GatewayError
from gateway.wire.chat.parse_prompt import parse_messages


def calling(*calls: Any) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "tool_calls": list(calls)}]}


def test_unknown_call_type_is_kept() -> None:
    call = {"id": "call_1", "type": "mcp", "mcp": {"name": "f"}}
    part = UnknownPart("mcp", ProviderData(Format.CHAT, call))
    assert parse_messages(calling(call)) == (Turn(Role.ASSISTANT, (part,)),)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ({"type": "text"}, "id"),
        ({"type": "mcp", "id": 1}, "id"),
        ({"type": 1, "id": "a"}, "type"),
        ({"id": "a"}, "function"),
        ({"id": "a", "type": "custom", "custom": {}}, "custom.name"),
        ({"id": "a", "function": {"name": "f", "arguments": {}}}, "function.arguments"),
    ],
)
def test_errors_name_the_field(call: Any, field: str) -> None:
    with pytest.raises(GatewayError) as refused:
        parse_messages(calling(call))
    assert refused.value.status == 400
    assert refused.value.param == f"messages.0.tool_calls.0.{field}"
