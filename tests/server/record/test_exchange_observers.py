"""What observers are told of exchanges that have ended."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from gateway.telemetry.observed_request import ObservedRequest
from tests.support.gateway import ACCOUNT, RunningGateway, request_body
from tests.support.upstream import (
    Ending,
    ScriptedUpstream,
    event_stream,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.shared_gateway

ROUNDING_US = 2


@dataclass
class Ended:
    exchanges: list[ObservedRequest] = field(default_factory=list)

    async def one(self) -> ObservedRequest:
        async with asyncio.timeout(10):
            while not self.exchanges:
                await asyncio.sleep(0.005)
        (ended,) = self.exchanges
        return ended


@pytest.fixture
def ended(gateway: RunningGateway) -> Ended:
    result = Ended()
    gateway.daemon.runtime.observers += (result.exchanges.append,)
    return result


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_reply_is_observed_as_its_row_says(
    gateway: RunningGateway, upstream: ScriptedUpstream, ended: Ended, streamed: bool
) -> None:
    upstream.respond_with(fixture_stream("chat") if streamed else fixture_reply("chat"))
    await gateway.post(Format.CHAT, stream=streamed)
    exchange = await ended.one()
    row = await gateway.row()
    assert exchange.row._replace(boot_id=row.boot_id) == row
    (attempt,) = exchange.attempts
    assert (attempt.account, attempt.verdict) == (ACCOUNT, "ok")
    assert 0 < exchange.upstream_seconds * 1e6 <= (row.total_us or 0) + ROUNDING_US
    assert exchange.queue_seconds == exchange.upload_seconds == 0


async def test_every_attempt_is_observed(
    gateway: RunningGateway, upstream: ScriptedUpstream, ended: Ended
) -> None:
    upstream.respond_with(json_response({"error": {"message": "no"}}, 401))
    await gateway.post(Format.CHAT)
    exchange = await ended.one()
    assert [attempt.verdict for attempt in exchange.attempts] == ["key refused"] * 3
    assert exchange.row.attempts == 3


async def test_a_slow_upload_is_not_the_gateways_own_time(
    gateway: RunningGateway, upstream: ScriptedUpstream, ended: Ended
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    reader, writer = await asyncio.open_connection(*gateway.daemon.listener.addresses[0])
    body = str(request_body(Format.CHAT)).replace("'", '"').encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {gateway.key}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode())
    await asyncio.sleep(0.3)
    writer.write(body)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    exchange = await ended.one()
    assert 0.2 < exchange.upload_seconds < (exchange.row.total_us or 0) / 1e6


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/healthz", 200, None),
        ("/nowhere", 404, None),
        ("/v1/models", 401, "invalid_api_key"),
    ],
)
async def test_requests_without_a_valid_key_are_observed_and_not_written(
    gateway: RunningGateway, ended: Ended, path: str, status: int, code: str | None
) -> None:
    assert (await gateway.get(path, key="mgw-unknown")).status == status
    row = (await ended.one()).row
    assert (row.token_id, row.endpoint, row.status, row.error_code) == ("", path, status, code)
    assert row.state is (ExchangeState.OK if status == 200 else ExchangeState.REJECTED)
    assert await gateway.rows(0) == []


async def test_a_client_that_disconnects_is_observed_once(
    gateway: RunningGateway, upstream: ScriptedUpstream, ended: Ended
) -> None:
    body = fixture_stream("chat").body
    upstream.respond_with(event_stream(body[: len(body) // 2], ending=Ending.STALLED))
    response = await gateway.http.post(
        "/v1/chat/completions",
        json=request_body(Format.CHAT, stream=True),
        headers={"authorization": f"Bearer {gateway.key}"},
    )
    response.close()
    assert (await ended.one()).row.state is ExchangeState.CLIENT_GONE


async def test_an_observer_that_fails_stops_neither_others_nor_the_reply(
    gateway: RunningGateway,
    upstream: ScriptedUpstream,
    ended: Ended,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: ObservedRequest) -> None:
        raise ValueError("broken observer")

    runtime = gateway.daemon.runtime
    runtime.observers = (fail, *runtime.observers)
    upstream.respond_with(fixture_reply("chat"))
    with caplog.at_level(logging.ERROR):
        assert (await gateway.post(Format.CHAT)).status == 200
    await ended.one()
    assert "an observer failed" in caplog.text
