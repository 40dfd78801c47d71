"""`POST /v1/responses/compact`, and the stock libraries' compactions."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from openresponses_types.types import CompactResource

from gateway.core.formats import Format
from tests.server.compaction.test_native import NATIVE, compact
from tests.support.compactions import compacting_gateway, facts
from tests.support.gateway import ALPHA, BETA
from tests.support.stock_clients import open_anthropic, open_openai
from tests.support.upstream import json_response

RESPONSES = Format.RESPONSES
PATH = "/v1/responses/compact"


@pytest.mark.parametrize("upstream_format", Format)
async def test_stock_client(tmp_path: Path, upstream_format: Format) -> None:
    async with (
        compacting_gateway(tmp_path, upstream_format) as (gateway, upstream),
        open_openai(gateway) as client,
    ):
        asked = await client.responses.compact(
            model=BETA,
            instructions="fact-rules",
            input=[
                {"role": "user", "content": "fact-1"},
                {"role": "assistant", "content": "fact-2"},
            ],
        )
        assert b"fact-rules" in upstream.last_request.body
        CompactResource.model_validate(asked.model_dump(mode="json"))
        (item,) = asked.output
        assert item.type == "compaction"
        assert asked.usage.total_tokens == 110
        reply = await client.responses.create(
            model=BETA, input=[item.model_dump(), {"role": "user", "content": "Go on."}]
        )
        assert facts(reply.output_text.encode()) == ["fact-1", "fact-2", "fact-rules"]
        row = (await gateway.rows(2))[0]
        assert (row.endpoint, row.stop_reason) == (PATH, "compaction")
        assert (row.input_tokens, row.output_tokens) == (100, 10)
        # A stored conversation, without any input.
        first = await client.responses.create(model=BETA, input="fact-3")
        asked = await client.responses.compact(model=BETA, previous_response_id=first.id)
        assert b"fact-3" in upstream.last_request.body
        # What a compaction is of can be compacted again.
        (again,) = (
            await client.responses.compact(model=BETA, input=[asked.output[0].model_dump()])
        ).output
        assert again.type == "compaction"
        assert b"fact-3" in upstream.last_request.body


async def test_native(tmp_path: Path) -> None:
    async with compacting_gateway(tmp_path, RESPONSES, line=NATIVE) as (gateway, upstream):
        upstream.respond_with(compact)
        answer = await gateway.post(RESPONSES, path=PATH, input="Hello", stream=True)
        assert answer.status == 200
        body = await answer.json()
        CompactResource.model_validate(body)
        assert [item["type"] for item in body["output"]] == ["compaction"]
        sent = upstream.last_request
        assert sent.path == "/v1/responses" and not sent.streamed
        assert sent.fields["input"][-1] == {"type": "compaction_trigger"}
        assert sent.fields["store"] is False


async def test_upstream_that_does_not_compact(tmp_path: Path) -> None:
    """The gateway does, then."""
    async with compacting_gateway(tmp_path, RESPONSES, line={"traits": {}}) as (gateway, _):
        for attempts in (2, 1):
            answer = await gateway.post(RESPONSES, path=PATH, input="Hello")
            assert answer.status == 200
            assert [each["type"] for each in (await answer.json())["output"]] == ["compaction"]
            assert (await gateway.rows())[-1].attempts == attempts


async def test_invalid_requests(tmp_path: Path) -> None:
    async with compacting_gateway(tmp_path, Format.CHAT) as (gateway, upstream):
        upstream.respond_with(json_response({}, status=500))
        for body in ({}, {"model": BETA, "input": 5}, {"model": BETA, "input": [{"type": 5}]}):
            answer = await gateway.post(RESPONSES, body, path=PATH)
            assert answer.status == 400, body
            assert "error" in await answer.json()
        for body in (b"[]", b"x"):
            assert (await gateway.post(RESPONSES, body, path=PATH)).status == 400
        answer = await gateway.post(RESPONSES, path=PATH, previous_response_id="resp_none")
        assert answer.status == 400
        assert not upstream.requests


@pytest.mark.parametrize("upstream_format", Format)
async def test_stock_messages_client(tmp_path: Path, upstream_format: Format) -> None:
    """Streamed, over several compactions."""
    async with (
        compacting_gateway(tmp_path, upstream_format) as (gateway, _),
        open_anthropic(gateway) as client,
    ):
        turns: list[object] = [{"role": "user", "content": "fact-0 " + "word " * 4000}]
        turns.append({"role": "assistant", "content": "Yes."})
        compactions = 0
        for number in range(1, 4):
            turns.append({"role": "user", "content": f"fact-{number} " + "word " * 4000})
            async with client.beta.messages.stream(
                model=ALPHA,
                max_tokens=100,
                betas=["compact-2026-01-12"],
                messages=turns,  # type: ignore[arg-type]
                context_management={
                    "edits": [
                        {
                            "type": "compact_20260112",
                            "trigger": {"type": "input_tokens", "value": 2000},
                        }
                    ]
                },
            ) as stream:
                message = await stream.get_final_message()
            blocks = [block.model_dump(exclude_none=True) for block in message.content]
            compactions += blocks[0]["type"] == "compaction"
            expected = [f"fact-{n}" for n in range(number + 1)]
            assert facts(orjson.dumps(blocks)) == expected
            turns.append({"role": "assistant", "content": blocks})
        assert compactions >= 2
