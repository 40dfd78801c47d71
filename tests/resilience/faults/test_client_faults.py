"""Every row of docs/faults.md about clients, in every format: what is told, what the row says, and
that the upstream hears of it, or of nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
import pytest_asyncio

from gateway.core.formats import Format
from gateway.routing.circuit_breaker import HealthState
from gateway.store.records import ExchangeState, RequestRow
from tests.resilience.faults.billing_checks import assert_billed
from tests.resilience.faults.client_faults import (
    BODIES,
    CALLED,
    HTTP,
    LEAVING,
    MALFORMED,
    MOST,
    SLOW_BODY,
    SLOW_READER,
    ClientFault,
)
from tests.resilience.faults.outcomes import Bill, ClientError
from tests.resilience.faults.upstream import FaultUpstream, fault_upstream
from tests.support.gateway import PATHS, RunningGateway, channel, request_body, run_gateway
from tests.support.raw_client import Received, raw_client, request
from tests.support.timing import SLACK

SOON = SLACK
"""Seconds within which an upstream must hear that nobody listens any more."""
STALL = 0.3
"""Seconds that a client may take for what is sent to it."""
SMALL = 4096
"""Bytes that the kernel keeps for a client that does not read."""

pytestmark = [pytest.mark.timeout(60), pytest.mark.asyncio(loop_scope="module")]


@dataclass(frozen=True, slots=True)
class Place:
    gateway: RunningGateway
    upstream: FaultUpstream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    timeouts = {"write": STALL, "idle": 5}
    async with fault_upstream() as upstream:
        channels = [channel(format, upstream.address, timeouts=timeouts) for format in Format]
        folder = tmp_path_factory.mktemp("clients")
        async with run_gateway(folder, channels, server={"max_body": MOST}) as gateway:
            yield Place(gateway, upstream)


def cases(faults: Iterable[ClientFault]) -> Iterator[Any]:
    for fault in faults:
        for format in Format:
            for streamed in fault.mode.streamed:
                name = f"{fault.what}-{format}-{'stream' if streamed else 'whole'}"
                yield pytest.param(fault, format, streamed, id=name.replace("`", ""))


PARAMETERS = ("fault", "format", "streamed")


def request_with_fault(place: Place, fault: ClientFault, format: Format, streamed: bool) -> bytes:
    """The request, with all that is wrong about it."""
    body = fault.body(orjson.dumps(request_body(format, stream=streamed)))
    headers: dict[str, str | None] = {
        "authorization": f"Bearer {place.gateway.key}",
        "content-type": "application/json",
        "anthropic-version": "2023-06-01",
        **fault.headers,
    }
    address = place.gateway.address
    sound = request(address, PATHS[format], body, {k: v or "" for k, v in headers.items()})
    head, end, rest = sound.partition(b"\r\n\r\n")
    absent = {f"{name}: ".encode() for name, value in headers.items() if value is None}
    lines = [line for line in head.split(b"\r\n") if line not in absent]
    return fault.raw(b"\r\n".join(lines) + end + rest)


@pytest.fixture(autouse=True)
def no_calls_yet(place: Place) -> None:
    place.upstream.requests.clear()


async def latest_row(place: Place, before: str | None) -> RequestRow | None:
    """The row after that one, once it has ended; None where there is none."""
    rows = await place.gateway.rows(0)
    return rows[-1] if rows and rows[-1].id != before else None


async def last_row(place: Place) -> str | None:
    rows = await place.gateway.rows(0)
    return rows[-1].id if rows else None


async def ended(place: Place, before: str | None) -> RequestRow:
    async with asyncio.timeout(SLACK):
        while (row := await latest_row(place, before)) is None:
            await asyncio.sleep(0.005)
    return row


@pytest.mark.parametrize(PARAMETERS, [*cases(LEAVING)])
async def test_leaving(place: Place, fault: ClientFault, format: Format, streamed: bool) -> None:
    before = await last_row(place)
    place.upstream.set_plan(fault.plan)
    assert fault.leave is not None
    async with raw_client(place.gateway.address) as client:
        await client.send(request_with_fault(place, fault, format, streamed))
        call = await place.upstream.wait_for_request()
        if fault.status == 200:
            await client.receive_until(b"\r\n\r\n")
            await client.receive_until(b"Hello")
        else:
            await asyncio.sleep(0.03)  # what was sent has arrived: the gateway sits and waits
        assert not call.disconnected.is_set()
        left_at = asyncio.get_running_loop().time()
        client.leave(fault.leave)
        async with asyncio.timeout(SLACK):
            await call.disconnected.wait()
    assert call.left_at is not None
    assert call.left_at - left_at <= SOON
    row = await ended(place, before)
    check_row(row, fault)
    assert row.end_reason == "client_gone"
    attempts = await place.gateway.operations.list_attempts(row.id)
    assert [attempt.verdict for attempt in attempts] == ["given up"]
    check_health(place)


@pytest.mark.parametrize(PARAMETERS, [*cases([SLOW_READER])])
async def test_slow_reader(
    place: Place, fault: ClientFault, format: Format, streamed: bool
) -> None:
    before = await last_row(place)
    place.upstream.set_plan(fault.plan)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "gateway.server.proxy.relay._CHECK_INTERVAL", STALL / 4
        )  # as 15 s are to 60 s
        async with raw_client(place.gateway.address, room=SMALL) as client:
            await client.send(request_with_fault(place, fault, format, streamed))
            call = await place.upstream.wait_for_request()
            row = await ended(place, before)
            async with asyncio.timeout(SOON):
                while call.answered_at is None:
                    await asyncio.sleep(0.01)
    check_row(row, fault)
    assert call.answer.sent < 16 * 2**20, "the upstream was read although nobody took it"
    check_health(place)


@pytest.mark.parametrize(PARAMETERS, [*cases([SLOW_BODY])])
async def test_slow_body(place: Place, fault: ClientFault, format: Format, streamed: bool) -> None:
    before = await last_row(place)
    requested = request_with_fault(place, fault, format, streamed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("gateway.server.http.request_body.UPLOAD_WINDOW", 0.2)
        async with raw_client(place.gateway.address) as client:
            await client.send(requested[:-20])
            await client.drip(requested[-20:-1], every=0.05)
            check_error(await client.answer(), format, fault.error)
    check_row(await ended(place, before), fault)
    assert place.upstream.requests == []


@pytest.mark.parametrize(PARAMETERS, [*cases(BODIES)])
async def test_invalid_requests(
    place: Place, fault: ClientFault, format: Format, streamed: bool
) -> None:
    before = await last_row(place)
    place.upstream.set_plan(fault.plan)
    async with raw_client(place.gateway.address) as client:
        await client.send(request_with_fault(place, fault, format, streamed))
        answer = await client.answer()
    assert answer.interim == ()
    if fault.error is None:
        assert answer.status == 200
        assert b"Hello" in answer.body
    else:
        check_error(answer, format, fault.error)
    if fault.state is None:
        await asyncio.sleep(0.02)
        assert await latest_row(place, before) is None
    else:
        check_row(await ended(place, before), fault)
    assert len(place.upstream.requests) == (1 if fault.upstream == CALLED else 0)


@pytest.mark.parametrize(PARAMETERS, [*cases(HTTP)])
async def test_invalid_http(
    place: Place, fault: ClientFault, format: Format, streamed: bool
) -> None:
    """What stands behind it on the connection is no request either."""
    before = await last_row(place)
    sound = request_with_fault(place, ClientFault(what="nothing"), format, streamed)
    async with raw_client(place.gateway.address) as client:
        await client.send(request_with_fault(place, fault, format, streamed) + sound)
        answer = await client.answer()
        assert await client.receive_all() == b""
    assert answer.status == MALFORMED.status
    error = orjson.loads(answer.body)["error"]
    assert (error["code"], error["message"]) == (MALFORMED.code, MALFORMED.message)
    assert await latest_row(place, before) is None
    assert place.upstream.requests == []


@pytest.mark.parametrize("format", Format)
async def test_pipelined_requests_are_answered_in_order(place: Place, format: Format) -> None:
    place.upstream.set_plan("ok:text,ok:text_unicode,again")
    async with raw_client(place.gateway.address) as client:
        sound = request_with_fault(place, ClientFault(what="nothing"), format, False)
        await client.send(sound + sound)
        first, second = await client.answer(), await client.answer()
    assert (first.status, second.status) == (200, 200)
    assert b"Hello" in first.body
    assert b"Hello" not in second.body


def check_error(answer: Received, format: Format, result: ClientError | None) -> None:
    assert result is not None
    assert answer.status == result.status, answer.body
    for name, value in result.headers.items():
        assert answer.headers[name] == value
    body = orjson.loads(answer.body)
    error = body["error"]
    assert error["message"].startswith(result.message)
    if format is Format.MESSAGES:
        assert set(body) == {"type", "error", "request_id"}
        assert error["type"] == result.native
    else:
        assert set(body) == {"error"}
        assert (error["type"], error["code"]) == (result.type, result.code)


def check_row(row: RequestRow, fault: ClientFault) -> None:
    assert (row.state, row.status) == (fault.state, fault.status)
    if row.state is ExchangeState.REJECTED:
        assert fault.error is not None
        assert row.error_code == fault.error.code
        assert row.channel is None
    assert_billed(row, fault.bill, broken_off=fault.bill is Bill.ESTIMATED)


def check_health(place: Place) -> None:
    """No account is to blame for what a client does."""
    for report in place.gateway.daemon.runtime.health.snapshot(0.0):
        assert (report.status.state, report.failed) == (HealthState.HEALTHY, 0)
