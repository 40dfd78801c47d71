"""SIGTERM lets replies end, and tells those that cannot why: in-band, whatever their format."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from pathlib import Path

import orjson
from aiohttp import ClientConnectorError, ClientSession, TCPConnector

from gateway.core.formats import Format
from tests.resilience.chaos.client import headers, request_fields, send_request
from tests.resilience.chaos.process import (
    GatewayProcess,
    create_key,
    rows,
    settled_rows,
    write_config,
)
from tests.resilience.chaos.sample_replies import complete_body, sample_stream
from tests.support.formats.endings import error_at_end, is_complete
from tests.support.gateway import PATHS
from tests.support.raw_client import Leave
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    json_response,
    scripted_upstream,
)

DRAIN = 2.0
OF_EACH = 5
"""Streams of each kind and format."""

KINDS = ("brief", "long", "silent", "unopened", "whole-brief", "whole-long")


async def answer(call: ReceivedRequest) -> Response | None:
    """`brief` calls are answered within the drain time, the others never."""
    result, kind = sample_stream(call.format), call.prompt.rpartition("-")[0]
    match kind:
        case "brief":
            await call.answer.begin_stream()
            await call.answer.say(result.opening)
            for _ in range(10):
                await asyncio.sleep(0.1)
                await call.answer.say(result.word)
            await call.answer.say(result.ending)
            await call.answer.end()
        case "whole-brief":
            await asyncio.sleep(1)
            return json_response(complete_body(call.format))
        case "long":
            await call.answer.begin_stream()
            await call.answer.say(result.opening)
            while True:
                await asyncio.sleep(0.1)
                await call.answer.say(result.word)
        case "silent":
            await call.answer.begin_stream()
            await call.answer.say(result.opening)
            await call.disconnected.wait()
        case _:
            await call.disconnected.wait()
    return None


@dataclass(frozen=True, slots=True)
class Got:
    format: Format
    name: str
    status: int
    body: bytes

    @property
    def kind(self) -> str:
        return self.name.partition("-" + self.format)[0]


async def ask(http: ClientSession, key: str, format: Format, kind: str, number: int) -> Got:
    name = f"{kind}-{format}{number}"
    body = request_fields(format, name, stream="whole" not in kind)
    async with http.post(PATHS[format], json=body, headers=headers(key, name)) as reply:
        return Got(format, name, reply.status, await reply.read())


def check(got: Got) -> None:
    match got.kind:
        case "brief":
            assert got.status == 200
            assert is_complete(got.format, got.body)
        case "long" | "silent":
            assert got.status == 200
            assert error_at_end(got.format, got.body), got
        case "whole-brief":
            assert got.status == 200
            id = orjson.loads(got.body)["id"]
            is_stored = got.format is Format.RESPONSES  # under an id of the gateway's
            assert id.startswith("resp_") if is_stored else id == "reply_01"
        case _:
            assert got.status == 503
            error = orjson.loads(got.body)["error"]
            assert error["message"] == "Service unavailable"
            assert (orjson.loads(got.body).get("type") == "error") == (
                got.format is Format.MESSAGES
            )


async def all_called(model: ScriptedUpstream, calls: int) -> None:
    async with asyncio.timeout(10):
        while len(model.requests) < calls:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)


async def test_replies_end_as_their_format_requires(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with scripted_upstream(answer) as model:
        config = write_config(tmp_path, model.address, drain_timeout=DRAIN)
        key = await create_key(tmp_path)
        with GatewayProcess(tmp_path, "--config", config) as gateway:
            address = gateway.address()
            async with ClientSession(address, connector=TCPConnector(limit=0)) as http:
                requests = [
                    asyncio.ensure_future(ask(http, key, format, kind, number))
                    for number in range(OF_EACH)
                    for format in Format
                    for kind in KINDS
                ]
                await all_called(model, len(requests))
                gateway.signal(signal.SIGTERM)
                told_at = loop.time()
                await asyncio.sleep(0.5)
                await nobody_is_let_in(address)
                for got in await asyncio.gather(*requests):
                    check(got)
            assert await gateway.ended(DRAIN + 5) == 0
            assert DRAIN <= loop.time() - told_at <= DRAIN + 5
    found = await settled_rows(tmp_path, [call.prompt for call in model.requests])
    assert len(rows(tmp_path)) == len(found) == len(requests)
    for name, row in found.items():
        brief = "brief" in name
        assert row["state"] == ("ok" if brief else "error")
        assert row["status"] == (503 if name.startswith(("unopened", "whole-long")) else 200)
        assert row["end_reason"] == ("complete" if brief else "failed")
        assert row["output_tokens"] == (3 if brief else row["output_tokens"])


async def test_of_a_hundred_streams_half_end_in_time(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with scripted_upstream(answer) as model:
        config = write_config(tmp_path, model.address, drain_timeout=DRAIN)
        key = await create_key(tmp_path)
        with GatewayProcess(tmp_path, "--config", config) as gateway:
            async with ClientSession(gateway.address(), connector=TCPConnector(limit=0)) as http:
                requests = [
                    asyncio.ensure_future(
                        ask(
                            http,
                            key,
                            list(Format)[number % 3],
                            ("brief", "long")[number % 2],
                            number,
                        )
                    )
                    for number in range(100)
                ]
                await all_called(model, len(requests))
                gateway.signal(signal.SIGTERM)
                told_at = loop.time()
                for got in await asyncio.gather(*requests):
                    check(got)
            assert await gateway.ended(DRAIN + 5) == 0
            assert loop.time() - told_at <= DRAIN + 5
    found = await settled_rows(tmp_path, [call.prompt for call in model.requests])
    assert [row["state"] for row in found.values()].count("ok") == 50
    assert len(rows(tmp_path)) == len(found) == 100


async def nobody_is_let_in(address: str) -> None:
    async with ClientSession(address) as http:
        try:
            await http.get("/healthz")
        except ClientConnectorError:
            return
    raise AssertionError("a new connection was accepted")


async def test_readiness_ends_and_kept_connections_have_one_more_request(tmp_path: Path) -> None:
    async with scripted_upstream(answer) as model:
        config = write_config(tmp_path, model.address, drain_timeout=DRAIN * 2)
        key = await create_key(tmp_path)
        with GatewayProcess(tmp_path, "--config", config) as gateway:
            async with (
                ClientSession(gateway.address()) as other,
                ClientSession(gateway.address(), connector=TCPConnector(limit=1)) as kept,
                ClientSession(gateway.address(), connector=TCPConnector(limit=1)) as asking,
            ):
                held = asyncio.ensure_future(ask(other, key, Format.CHAT, "brief", 0))
                assert (await asking.get("/readyz")).status == 200
                assert (await kept.get("/readyz")).status == 200
                await all_called(model, 1)
                gateway.signal(signal.SIGTERM)
                await asyncio.sleep(0.2)
                answered = await asking.get("/readyz")
                assert (answered.status, answered.headers["connection"]) == (503, "close")
                served = await ask(kept, key, Format.MESSAGES, "brief", 1)
                assert (served.status, len(model.requests)) == (200, 2)
                check(served)
                check(await held)
            assert await gateway.ended(5) == 0
    found = await settled_rows(tmp_path, ["brief-messages1", "brief-chat0"])
    assert {row["state"] for row in found.values()} == {"ok"}


async def test_a_second_signal_ends_the_drain(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with scripted_upstream(answer) as model:
        config = write_config(tmp_path, model.address, drain_timeout=60)
        key = await create_key(tmp_path)
        with GatewayProcess(tmp_path, "--config", config) as gateway:
            async with ClientSession(gateway.address()) as http:
                requests = [
                    asyncio.ensure_future(ask(http, key, format, kind, 0))
                    for format in Format
                    for kind in ("long", "silent", "unopened", "whole-long")
                ]
                await all_called(model, len(requests))
                gateway.signal(signal.SIGTERM)
                await asyncio.sleep(0.3)
                hurried_at = loop.time()
                gateway.signal(signal.SIGINT)
                gateway.signal(signal.SIGTERM)
                for got in await asyncio.gather(*requests):
                    check(got)
            assert await gateway.ended(5) == 0
            assert loop.time() - hurried_at < 2
            assert "Traceback" not in gateway.stderr
    states = {row["state"] for row in rows(tmp_path)}
    assert states == {"error"}


async def test_a_client_that_does_not_read_delays_no_one_for_long(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()

    async def pour(call: ReceivedRequest) -> None:
        await call.answer.begin_stream()
        await call.answer.say(sample_stream(call.format).opening)
        while True:
            await call.answer.say(sample_stream(call.format).word * 500)

    async with scripted_upstream(pour) as model:
        config = write_config(tmp_path, model.address, drain_timeout=DRAIN)
        key = await create_key(tmp_path)
        with GatewayProcess(tmp_path, "--config", config) as gateway:
            address = gateway.address()
            idle = await send_request(address, key, Format.CHAT, "idle", room=4096, stream=True)
            await model.wait_for_request(prompt="idle")
            await asyncio.sleep(1)
            gateway.signal(signal.SIGTERM)
            told_at = loop.time()
            assert await gateway.ended(DRAIN + 10) == 0
            assert loop.time() - told_at <= DRAIN + 5
            idle.leave(Leave.CLOSE)
    assert (await settled_rows(tmp_path, ["idle"]))["idle"]["state"] != "running"
