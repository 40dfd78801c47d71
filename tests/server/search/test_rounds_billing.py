"""What replies with searches of the gateway cost: cancelled ones, and those over a budget."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.core.events import StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import ServerToolResult, Text
from gateway.store.records import ExchangeState
from tests.server.format_pairs import parse_stream
from tests.support.gateway import RunningGateway, request_body
from tests.support.searches import Searching, model_reply, search, search_tool, searching_gateway
from tests.support.upstream import Ending, Response, by_frame

pytestmark = pytest.mark.shared_gateway

CHAT, MESSAGES, RESPONSES = Format.CHAT, Format.MESSAGES, Format.RESPONSES
LOOK, ANSWER = "Let me look.", "About 700,000."
FEW = Usage(input_tokens=10, output_tokens=5)
LONG = "word " * 200
STALLED = Response(chunks=(b"{",), ending=Ending.STALLED)


async def leave_stream(searching: Searching) -> None:
    gateway = searching.gateway
    body = request_body(MESSAGES, stream=True, system=LONG) | search_tool(MESSAGES)
    headers = {"authorization": f"Bearer {gateway.key}", "anthropic-version": "2023-06-01"}
    response = await gateway.http.post("/v1/messages", json=body, headers=headers)
    await response.content.readany()
    await searching.endpoint.wait_for_request()
    response.close()


async def leave_whole_reply(searching: Searching) -> None:
    fields = search_tool(MESSAGES) | {"system": LONG}
    task = asyncio.ensure_future(searching.gateway.post(MESSAGES, **fields))
    await searching.endpoint.wait_for_request()
    task.cancel()
    await asyncio.wait({task})


async def cancel_background(searching: Searching) -> None:
    gateway = searching.gateway
    fields = search_tool(RESPONSES) | {"background": True, "instructions": LONG}
    created = await (await gateway.post(RESPONSES, **fields)).json()
    await searching.endpoint.wait_for_request()
    path = f"/v1/responses/{created['id']}/cancel"
    answer = await gateway.post(RESPONSES, {}, path=path)
    assert answer.status == 200, await answer.read()


@pytest.mark.parametrize("leave", [leave_stream, leave_whole_reply, cancel_background])
@pytest.mark.parametrize("upstream_format", list(Format))
async def test_a_request_that_ends_during_a_search(
    gateway_of_module: RunningGateway, leave: Any, upstream_format: Format
) -> None:
    async with searching_gateway(gateway_of_module, upstream_format) as searching:
        searching.endpoint.respond_with(STALLED)
        searching.upstream.respond_with(model_reply(upstream_format, LOOK, search(), usage=FEW))
        async with asyncio.timeout(5):
            await leave(searching)
            await searching.endpoint.last_request.disconnected.wait()
            rows = await searching.gateway.rows(2 if leave is cancel_background else 1)
        row = next(row for row in rows if not row.endpoint.endswith("/cancel"))
        assert row.state is ExchangeState.CLIENT_GONE
        assert (row.input_tokens, row.output_tokens, row.web_searches) == (10, 5, 0)
        assert row.usage_source == "upstream"


async def test_a_request_that_ends_in_a_later_round(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        frames = by_frame(model_reply(CHAT, ANSWER))
        stalled = frames.with_changes(chunks=frames.chunks[:2], ending=Ending.STALLED)
        searching.upstream.respond_with(model_reply(CHAT, LOOK, search(), usage=FEW), stalled)
        gateway = searching.gateway
        body = request_body(MESSAGES, stream=True, system=LONG) | search_tool(MESSAGES)
        headers = {"authorization": f"Bearer {gateway.key}", "anthropic-version": "2023-06-01"}
        async with asyncio.timeout(5):
            response = await gateway.http.post("/v1/messages", json=body, headers=headers)
            while len(searching.bodies) < 2:
                await response.content.readany()
            response.close()
            row = await gateway.row()
        assert (row.input_tokens, row.web_searches) == (20, 1)
        assert (row.usage_source, row.state) == ("estimated", ExchangeState.CLIENT_GONE)


@pytest.mark.parametrize("bill_estimates", [True, False])
async def test_a_later_round_that_fails_is_free(
    gateway_of_module: RunningGateway, bill_estimates: bool
) -> None:
    failed = Response(status=400, chunks=(b'{"error":{"message":"bad"}}',))
    money = {"bill_estimates": bill_estimates}
    async with searching_gateway(gateway_of_module, CHAT, money=money) as searching:
        searching.upstream.respond_with(model_reply(CHAT, LOOK, search(), usage=FEW), failed)
        await searching.gateway.post(MESSAGES, stream=True, **search_tool(MESSAGES))
        row = await searching.gateway.row()
        assert row.state is ExchangeState.ERROR
        assert (row.input_tokens, row.output_tokens, row.web_searches) == (10, 5, 1)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("budget", [40_000, 60_000])
async def test_a_budget_ends_the_rounds(
    gateway_of_module: RunningGateway, stream: bool, budget: int
) -> None:
    """The client gets what it has paid for; only its next request is refused."""
    usage = Usage(input_tokens=50_000, output_tokens=10)
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        gateway = searching.gateway
        searching.upstream.respond_with(model_reply(CHAT, LOOK, search(), usage=usage))
        limits = {"budget": budget * 1_000_000}
        _, key = await gateway.operations.create_key("poor", "default", limits=limits)
        fields = search_tool(MESSAGES) | {"stream": True}
        answer = await gateway.post(MESSAGES, key=key, **fields | {"stream": stream})
        assert answer.status == 200, await answer.read()
        if stream:
            reply = parse_stream(MESSAGES, await answer.read())
            assert reply.stop is StopReason.PAUSE
            assert reply.parts[0] == Text(LOOK)
            assert isinstance(reply.parts[-1], ServerToolResult)
        else:
            body = await answer.json()
            assert body["stop_reason"] == "pause_turn"
            kinds = [block["type"] for block in body["content"]]
            assert kinds == ["text", "server_tool_use", "web_search_tool_result"]
        assert len(searching.bodies) == 1
        row = await gateway.row()
        assert (row.state, row.input_tokens) == (ExchangeState.OK, 50_000)
        assert (row.web_searches, row.usage_source) == (1, "upstream")
        refused = await gateway.post(MESSAGES, key=key, max_tokens=20_000)
        if budget < 50_000:
            assert " spent, 0 reserved by running requests" in await refused.text()


@pytest.mark.parametrize("client_format", list(Format))
async def test_a_budget_that_ends_the_rounds_in_every_format(
    gateway_of_module: RunningGateway, client_format: Format
) -> None:
    usage = Usage(input_tokens=50_000, output_tokens=10)
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        gateway = searching.gateway
        searching.upstream.respond_with(model_reply(CHAT, LOOK, search(), usage=usage))
        limits = {"budget": 60_000 * 1_000_000}
        _, key = await gateway.operations.create_key("poor", "default", limits=limits)
        answer = await gateway.post(client_format, key=key, **search_tool(client_format))
        assert answer.status == 200, await answer.read()
        assert LOOK in await answer.text()
