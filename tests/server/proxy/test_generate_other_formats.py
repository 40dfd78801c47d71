"""Bodies of one format on the path of another: served in their own, or refused with a hint."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from tests.server.key_limits import limit_key
from tests.support.gateway import ALPHA, BETA, PATHS, RunningGateway, request_body
from tests.support.upstream import ScriptedUpstream, fixture_reply, fixture_stream

pytestmark = pytest.mark.shared_gateway

TURN = {"role": "user", "content": "Hello"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT = {
    "model": BETA,
    "max_completion_tokens": 50,
    "messages": [
        TURN,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ],
}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
BLOCKS = [{"type": "tool_result", "tool_use_id": "c", "content": "done"}]
MESSAGES = {
    "model": ALPHA,
    "max_tokens": 50,
    "system": "Be brief",
    "messages": [
        TURN,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
        },
        {"role": "user", "content": BLOCKS},
    ],
}
RESPONSES = {"model": BETA, "input": "Hello"}
SIGNS = {
    Format.CHAT: b'"chat.completion',
    Format.MESSAGES: b'"message',
    Format.RESPONSES: b'"response',
}
BODIES = {Format.CHAT: CHAT, Format.MESSAGES: MESSAGES, Format.RESPONSES: RESPONSES}


async def post(gateway: RunningGateway, path: str, body: Any, *, version: bool = True) -> Any:
    headers = {"authorization": f"Bearer {gateway.key}"}
    if version:
        headers["anthropic-version"] = "2023-06-01"
    answer = await gateway.http.post(path, json=body, headers=headers)
    await answer.read()
    return answer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("door", Format)
async def test_a_body_is_served_in_its_own_format(
    gateway: RunningGateway, upstream: ScriptedUpstream, door: Format, format: Format, stream: bool
) -> None:
    if door is format:
        pytest.skip("its own path")
    upstream.respond_with(fixture_stream(format) if stream else fixture_reply(format))
    body = BODIES[format] | {"stream": stream}
    answer = await post(gateway, PATHS[door], body, version=format is Format.MESSAGES)
    assert answer.status == 200, await answer.text()
    assert SIGNS[format] in await answer.read()
    assert upstream.last_request.format is format, "on the native lane"
    row = await gateway.row()
    assert (row.endpoint, row.format, row.lane) == (PATHS[door], format.value, "native")
    assert f"a body of the {format} format on another path" in str(row.notes)


async def test_errors_are_in_the_format_of_the_body(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    limit_key(gateway, budget_day=1)
    answer = await post(gateway, PATHS[Format.CHAT], MESSAGES)
    body = await answer.json()
    assert (answer.status, body["type"], body["error"]["type"]) == (402, "error", "billing_error")
    assert answer.headers["anthropic-ratelimit-unified-status"] == "rejected"
    answer = await post(gateway, PATHS[Format.MESSAGES], RESPONSES)
    assert answer.status == 429
    assert (await answer.json())["error"]["code"] == "insufficient_quota"
    wrong = CHAT | {"temperature": "hot"}
    error = (await (await post(gateway, PATHS[Format.RESPONSES], wrong)).json())["error"]
    assert error["param"] == "temperature"
    assert not upstream.requests


@pytest.mark.parametrize(
    ("door", "body", "param", "hint"),
    [
        (Format.CHAT, {"model": BETA}, "messages", ""),
        (Format.CHAT, MESSAGES | {"tools": [TOOL]}, "tools", "belongs to /v1/messages"),
        (Format.CHAT, RESPONSES | {"messages": 5}, "messages", ""),
        (Format.RESPONSES, {"model": BETA}, "input", ""),
        (Format.MESSAGES, {"model": ALPHA, "messages": [TURN]}, "anthropic-version", ""),
        (Format.MESSAGES, MESSAGES | CHAT, "anthropic-version", ""),
    ],
)
async def test_what_may_be_of_several_formats_is_refused(
    gateway: RunningGateway, door: Format, body: dict[str, Any], param: str, hint: str
) -> None:
    answer = await post(gateway, PATHS[door], body, version=False)
    assert answer.status == 400
    message = (await answer.json())["error"]["message"]
    assert message.startswith(param)
    assert (hint in message) if hint else ("belongs to" not in message)
    assert (await gateway.row()).format == door.value


@pytest.mark.parametrize("door", Format)
async def test_a_missing_field_of_the_right_format_is_named(
    gateway: RunningGateway, door: Format
) -> None:
    field = "input" if door is Format.RESPONSES else "messages"
    body = {name: value for name, value in request_body(door).items() if name != field}
    answer = await post(gateway, PATHS[door], body)
    assert answer.status == 400
    assert (await answer.json())["error"]["message"] == f"{field}: Field required"
