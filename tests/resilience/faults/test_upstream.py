"""The upstream itself: what it records, whose turn it is, and how connections end."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from gateway.core.formats import Format
from tests.resilience.faults.requests import ask, ask_on, encode_request
from tests.resilience.faults.unreachable import self_signed
from tests.resilience.faults.upstream import FaultUpstream, fault_upstream
from tests.support.raw_client import BrokenHead, End, Leave, raw_client, request
from tests.support.timing import SLACK
from tests.support.upstream import Left, ScriptError

ENDPOINTS = {
    Format.CHAT: "/v1/chat/completions",
    Format.MESSAGES: "/v1/messages",
    Format.RESPONSES: "/v1/responses",
}
SOON = SLACK
"""Seconds within which what happened is noticed."""


@pytest.mark.parametrize("format", list(Format))
async def test_requests_are_recorded(upstream: FaultUpstream, format: Format) -> None:
    before = asyncio.get_running_loop().time()
    await ask(upstream, "ok:text", format, key="key-b", model="some-model", temperature=0)
    (call,) = upstream.requests
    assert call.method == "POST"
    assert call.path == ENDPOINTS[format]
    assert (call.format, call.generates, call.streamed) == (format, True, True)
    assert (call.key, call.model) == ("key-b", "some-model")
    assert call.fields == {"model": "some-model", "stream": True, "temperature": 0}
    assert call.headers["content-type"] == "application/json"
    assert (call.plan, call.step) == ("ok:text", "ok:text")
    assert call.answered_at is not None
    assert before <= call.arrived_at <= call.answered_at


async def test_queries_are_not_part_of_the_path(upstream: FaultUpstream) -> None:
    async with raw_client(upstream.address) as client:
        await client.send(request(upstream.address, "/s/ok/v1/messages?beta=true", {}))
        await client.answer()
    url = upstream.last_request.url
    assert (url.path, url.query) == ("/v1/messages", "beta=true")


async def test_chunked_requests_are_read(upstream: FaultUpstream) -> None:
    async def body() -> object:
        yield b'{"model":'
        yield b'"m"}'

    async with (
        aiohttp.ClientSession(upstream.address) as http,
        http.post("/v1/messages", data=body()) as answer,
    ):
        assert answer.status == 200
    assert upstream.requests[0].fields == {"model": "m"}


@pytest.mark.parametrize("path", ["/v1/models", "/v1/messages/count_tokens"])
async def test_other_endpoints_follow_plans_too(upstream: FaultUpstream, path: str) -> None:
    async with raw_client(upstream.address) as client:
        await client.send(request(upstream.address, f"/s/ok,refuse:404{path}", {}))
        assert (await client.answer()).status == 200
        await client.send(request(upstream.address, f"/s/ok,refuse:404{path}", {}))
        assert (await client.answer()).status == 404
    assert not upstream.requests[0].generates


async def test_turns_are_counted_for_each_account_model_and_endpoint(
    upstream: FaultUpstream,
) -> None:
    plan = "fail:1,then:ok"
    results = [
        (await ask(upstream, plan)).status,
        (await ask(upstream, plan)).status,
        (await ask(upstream, plan, key="key-b")).status,
        (await ask(upstream, plan, model="another")).status,
        (await ask(upstream, plan, Format.RESPONSES)).status,
        (await ask(upstream, "refuse:500,then:ok")).status,
        (await ask(upstream, plan)).status,
    ]
    assert results == [503, 200, 503, 503, 503, 500, 200]
    requests = upstream.requests_of(key="key-a", model="upstream-model")
    assert [request.step for request in requests[:2]] == ["refuse:503", "ok"]


async def test_a_rule_overrides_the_url(upstream: FaultUpstream) -> None:
    upstream.set_plan("refuse:500")
    upstream.set_plan("refuse:401", key="key-b")
    upstream.set_plan("refuse:404", model="gone")
    upstream.set_plan("refuse:429,ok", endpoint="/responses")
    assert (await ask(upstream)).status == 500
    assert (await ask(upstream, key="key-b")).status == 401
    assert (await ask(upstream, key="key-b", model="gone")).status == 404
    assert (await ask(upstream, "ok", Format.RESPONSES)).status == 429
    assert (await ask(upstream, "ok", Format.RESPONSES)).status == 200
    upstream.set_plan("refuse:429,ok", endpoint="/responses")
    assert (await ask(upstream, "ok", Format.RESPONSES)).status == 429
    upstream.clear_plans()
    assert (await ask(upstream)).status == 200


async def test_a_call_can_be_waited_for(upstream: FaultUpstream) -> None:
    async with raw_client(upstream.address) as client:
        waiting = asyncio.ensure_future(upstream.wait_for_request(2, key="key-a"))
        await ask(upstream, key="key-b")
        await client.send(encode_request(upstream))
        await client.answer()
        await client.send(encode_request(upstream, "ok:one_tool"))
        assert (await waiting).plan == "ok:one_tool"


async def test_connections_are_reused(upstream: FaultUpstream) -> None:
    async with raw_client(upstream.address) as client:
        for stream in (True, False, True):
            assert (await ask_on(client, upstream, stream=stream)).end is End.OPEN
        assert upstream.open_connections == 1
    assert [(call.connection, call.nth) for call in upstream.requests] == [(1, 1), (1, 2), (1, 3)]


async def test_requests_may_be_pipelined(upstream: FaultUpstream) -> None:
    async with raw_client(upstream.address) as client:
        await client.send(
            encode_request(upstream, "slow:0.05") + encode_request(upstream, "refuse:404")
        )
        assert [(await client.answer()).status, (await client.answer()).status] == [200, 404]


@pytest.mark.parametrize("plan", ["stall:head", "stall:start", "stall:text", "tick:0.005"])
@pytest.mark.parametrize(
    ("how", "noted"),
    [(Leave.CLOSE, Left.FIN), (Leave.RESET, Left.RESET), (Leave.HALF_CLOSE, Left.FIN)],
)
async def test_a_disconnect_is_recorded_and_ends_the_response(
    upstream: FaultUpstream, plan: str, how: Leave, noted: Left
) -> None:
    loop = asyncio.get_running_loop()
    async with raw_client(upstream.address) as client:
        await client.send(encode_request(upstream, plan))
        call = await upstream.wait_for_request()
        if plan != "stall:head":
            await client.receive_until(b"\r\n\r\n")
        left_at = loop.time()
        client.leave(how)
        async with asyncio.timeout(SOON):
            await call.disconnected.wait()
        # What is written to a closed socket comes back as a reset.
        assert call.left_by is noted or (plan.startswith("tick") and how is Leave.CLOSE)
        assert call.left_at is not None
        assert call.left_at >= left_at
        sent = call.answer.sent
        await asyncio.sleep(0.02)
        assert call.answer.sent == sent
    assert call.answered_at is not None


async def test_a_disconnect_after_the_response_is_recorded(upstream: FaultUpstream) -> None:
    await ask(upstream)
    async with asyncio.timeout(SOON):
        await upstream.requests[0].disconnected.wait()
    assert upstream.requests[0].left_by is Left.FIN


@pytest.mark.parametrize("plan", ["hangup", "cut:text", "cut:text:reset", "stale:close"])
async def test_an_upstream_close_is_no_disconnect(upstream: FaultUpstream, plan: str) -> None:
    async with raw_client(upstream.address) as client:
        await client.send(encode_request(upstream, plan))
        await client.receive_all()
    await asyncio.sleep(0.01)
    assert upstream.requests[0].left_by is None
    assert upstream.open_connections == 0


async def test_unread_bytes_are_not_counted_as_sent(upstream: FaultUpstream) -> None:
    async with raw_client(upstream.address, room=4096) as client:
        await client.send(encode_request(upstream, "tick:0:size=100000"))
        call = await upstream.wait_for_request()
        while True:
            sent = call.answer.sent
            await asyncio.sleep(0.05)
            if sent == call.answer.sent:
                break
        assert 0 < sent < 16 * 2**20
        await client.receive_bytes(1_000_000)
        await asyncio.sleep(0.02)
        assert call.answer.sent > sent


@pytest.mark.parametrize(
    "plan", ["nothing", "refuse:many", "ok:no_such_case", "error:start:nice", "stale:later"]
)
async def test_an_invalid_plan_fails_at_the_end(plan: str) -> None:
    with pytest.raises(ScriptError, match=plan):
        async with fault_upstream() as upstream, raw_client(upstream.address) as client:
            await client.send(encode_request(upstream, plan))
            with pytest.raises(BrokenHead):
                await client.answer()


async def test_an_invalid_plan_is_reported_with_the_test_failure() -> None:
    with pytest.raises(BrokenHead) as failed:
        async with fault_upstream() as upstream:
            await ask(upstream, "nothing")
    assert failed.value.__notes__ == ["nothing: PlanError('nothing: no such scenario')"]


async def test_an_invalid_request_fails_at_the_end() -> None:
    with pytest.raises(ScriptError, match="no HTTP request"):
        async with fault_upstream() as upstream, raw_client(upstream.address) as client:
            await client.send(b"What is the time?\r\n\r\n")
            await client.receive_all()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_nothing_leaks(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.get_running_loop().set_debug(True)
    loud: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: loud.append(context))
    plans = ["stall:head", "stall:text", "tick:0", "comments", "cut:text:reset", "ok", "hangup"]
    tasks, files = len(asyncio.all_tasks()), open_files()
    async with AsyncExitStack() as clients, fault_upstream() as upstream:
        for plan in plans:
            client = await clients.enter_async_context(raw_client(upstream.address))
            await client.send(encode_request(upstream, plan))
        await upstream.wait_for_request(len(plans))
    gc.collect()
    assert (len(asyncio.all_tasks()), open_files()) == (tasks, files)
    assert loud == []
    assert [each for each in caplog.messages if "took" not in each] == []


async def test_tls_with_a_self_signed_certificate(tmp_path: Path) -> None:
    context, certificate = self_signed(tmp_path)
    async with fault_upstream(context) as upstream, aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await http.post(f"{upstream.address}/v1/messages", json={})
        assert upstream.requests == []
        trusting = ssl.create_default_context(cafile=certificate)
        for plan, status in (("ok", 200), ("refuse:404", 404)):
            url = f"{upstream.base_url(Format.MESSAGES, plan)}/v1/messages"
            async with http.post(url, json={}, ssl=trusting) as answer:
                assert answer.status == status
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await http.post(f"{upstream.address}/s/hangup/v1/messages", json={}, ssl=trusting)
