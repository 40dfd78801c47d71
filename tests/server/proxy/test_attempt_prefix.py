"""What the native lane sends of a conversation stays the same in all later turns: proofs of
reasoning are bound to it, and prompt caches live on it."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from tests.support.gateway import ALPHA, BETA, channel, run_gateway
from tests.support.image_files import PNG
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    fixture_reply,
    json_response,
)

TURNS = 30
IMAGE = b64encode(PNG).decode()
SEARCHED = {"type": "web_search_result", "url": "https://x.test", "title": "X"}


def messages_turn(number: int) -> list[dict[str, Any]]:
    """A reply with everything that the gateway looks at, and what the client answers. The type of
    the image is wrong, which the gateway corrects."""
    source = {"type": "base64", "media_type": "image/jpeg", "data": IMAGE}
    search = {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search"}
    results = [SEARCHED | {"encrypted_content": f"seal {number}"}]
    cited = {"type": "web_search_result_location", "url": "https://x.test", "cited_text": "x"}
    content = [
        {"type": "thinking", "thinking": f"Hm {number}.", "signature": f"signature {number}"},
        {"type": "redacted_thinking", "data": f"data {number}"},
        search | {"input": {"query": "x"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": f"srvtoolu_{number}",
            "content": results,
        },
        {"type": "text", "text": "Found.", "citations": [cited | {"encrypted_index": "e"}]},
        {"type": "text", "text": "Mine.", "citations": [cited | {"encrypted_index": ""}]},
        {"type": "tool_use", "id": f"toolu_{number}", "name": "look", "input": {"n": number}},
    ]
    seen = {"type": "tool_result", "tool_use_id": f"toolu_{number}"}
    answer = [seen | {"content": [{"type": "image", "source": source}]}]
    return [{"role": "assistant", "content": content}, {"role": "user", "content": answer}]


def responses_turn(number: int) -> list[dict[str, Any]]:
    reasoning = {"type": "reasoning", "id": f"rs_{number}", "summary": []}
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
    image = {"type": "input_image", "image_url": f"data:image/jpeg;base64,{IMAGE}"}
    search = {"type": "web_search_call", "id": f"ws_{number}", "status": "completed"}
    output = {"type": "function_call_output", "call_id": f"call_{number}"}
    return [
        reasoning | {"encrypted_content": f"gAAAA{number}"},
        search | {"action": {"type": "search", "query": "x"}},
        call | {"name": "look", "arguments": "{}"},
        output | {"output": [image]},
    ]


def prefix(body: dict[str, Any], length: int) -> str:
    history = (body.get("messages") or body["input"])[:length]
    first = [body.get(name) for name in ("system", "instructions", "tools", "thinking")]
    return sha256(orjson.dumps([first, history])).hexdigest()


@pytest.mark.parametrize("fields", [{}, {"store": False}], ids=["", "not stored"])
@pytest.mark.parametrize("client", [Format.MESSAGES, Format.RESPONSES])
async def test_the_prefix_is_never_changed(
    upstream: ScriptedUpstream, tmp_path: Path, client: Format, fields: dict[str, Any]
) -> None:
    upstream.respond_with(fixture_reply(client))
    question = {"role": "user", "content": "Look."}
    if client is Format.MESSAGES:
        fields = {"thinking": {"type": "adaptive"}, "max_tokens": 9000, "model": ALPHA}
        system = [{"type": "text", "text": "x-anthropic-billing-header: a=1"}]
        tools: list[Any] = [{"name": "look", "input_schema": {"type": "object"}}]
        tools.append({"type": "web_search_20260209", "name": "web_search"})
        fields |= {"system": [*system, {"type": "text", "text": "Be brief."}]}
        traits: dict[str, Any] = {"web_search": 20250305, "thinking": "adaptive"}
        name, turn = "messages", messages_turn
    else:
        tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
        fields = fields | {"instructions": "Be brief.", "model": BETA}
        tools, traits = [*tools, {"type": "web_search"}], {}
        name, turn = "input", responses_turn
    lines = [channel(client, upstream.address, traits=traits)]
    history = [question]
    async with run_gateway(tmp_path, lines) as gateway:
        for number in range(TURNS):
            body = fields | {name: history, "tools": tools}
            answer = await gateway.post(client, body)
            assert answer.status == 200, await answer.text()
            history = [*history, *turn(number)]
    sent = [request.json for request in upstream.requests]
    assert len(sent) == TURNS
    for earlier, later in pairwise(sent):
        length = len(earlier[name])
        assert len(later[name]) > length
        assert prefix(later, length) == prefix(earlier, length)
    assert orjson.dumps(sent[-1]).count(b"image/png") == TURNS - 1


@pytest.mark.parametrize("client", [Format.MESSAGES, Format.RESPONSES])
async def test_the_prefix_of_a_stored_conversation(
    upstream: ScriptedUpstream, tmp_path: Path, client: Format
) -> None:
    """Whose turns the client does not send again, images and searches included."""
    is_messages = client is Format.MESSAGES
    name, turn = ("messages", messages_turn) if is_messages else ("input", responses_turn)
    reply, numbers = orjson.loads(fixture_reply(client).body), iter(range(TURNS))

    async def answer(request: ReceivedRequest) -> Response:
        *replied, _ = turn(next(numbers))
        parts = {"content": replied[0]["content"]} if is_messages else {"output": replied}
        return json_response(reply | parts)

    upstream.respond_with(answer)
    question = {"role": "user", "content": "Look."}
    fields: dict[str, Any] = {name: [question], "model": ALPHA if is_messages else BETA}
    if is_messages:
        fields |= {"thinking": {"type": "adaptive"}, "max_tokens": 9000, "system": "Be brief."}
        fields |= {"thread": {"type": "create"}}
        fields["tools"] = [{"name": "look", "input_schema": {"type": "object"}}]
    else:
        fields |= {"instructions": "Be brief.", "tools": [{"type": "web_search"}]}
    traits = {"thinking": "adaptive"} if is_messages else {}
    lines = [channel(client, upstream.address, traits=traits)]
    betas = {"anthropic-beta": "message-threads-2026-08-12"} if is_messages else {}
    async with run_gateway(tmp_path, lines) as gateway:
        for number in range(TURNS):
            response = await gateway.post(client, fields, headers=betas)
            assert response.status == 200, await response.text()
            id = (await response.json())["id"]
            fields[name] = turn(number)[-1:]
            if is_messages:
                for own in ("system", "tools"):  # of the thread
                    fields.pop(own, None)
                fields["thread"] = {"type": "continue", "previous_message_id": id}
            else:
                fields["previous_response_id"] = id
    sent = [request.json for request in upstream.requests]
    for earlier, later in pairwise(sent):
        length = len(earlier[name])
        assert len(later[name]) > length
        assert prefix(later, length) == prefix(earlier, length)
    assert orjson.dumps(sent[-1]).count(b"image/png") == TURNS - 1
    assert orjson.dumps(sent[-1]).count(b"seal " if is_messages else b"ws_") == TURNS - 1
