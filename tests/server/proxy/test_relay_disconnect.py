"""A client that closes once it has the terminal event: the reply was a success."""

from __future__ import annotations

import asyncio
from time import perf_counter

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gateway.core.formats import Format
from gateway.routing.health import HealthReport
from gateway.store.records import AttemptRow, ExchangeState
from tests.server.format_pairs import PAIRS, TERMINAL, OpenGateway
from tests.support.gateway import ALPHA, BETA, PATHS, RunningGateway, request_body
from tests.support.raw_client import Leave, raw_client, request
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    by_frame,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.shared_gateway


def stays_open(format: Format) -> Response:
    """A complete stream whose body never ends."""
    return by_frame(fixture_stream(format, ending=Ending.STALLED))


def headers(gateway: RunningGateway) -> dict[str, str]:
    return {"x-api-key": gateway.key, "anthropic-version": "2023-06-01"}


async def read_and_leave(gateway: RunningGateway, format: Format, how: Leave) -> None:
    """What curl does: it reads to the end of the body, and closes."""
    body = request_body(format, stream=True)
    async with raw_client(gateway.address) as client:
        await client.send(request(gateway.address, PATHS[format], body, headers(gateway)))
        await client.receive_until(TERMINAL[format])
        await client.receive_until(b"\r\n0\r\n\r\n")
        client.leave(how)


async def last_attempt(gateway: RunningGateway) -> AttemptRow:
    row = (await gateway.rows())[-1]
    assert (row.state, row.status, row.end_reason) == (ExchangeState.OK, 200, "complete")
    (attempt,) = await gateway.operations.list_attempts(row.id)
    return attempt


def health(gateway: RunningGateway) -> HealthReport:
    (report,) = gateway.daemon.runtime.health.snapshot(asyncio.get_running_loop().time())
    return report


async def check_success(gateway: RunningGateway) -> None:
    attempt = await last_attempt(gateway)
    assert (attempt.verdict, attempt.status) == ("ok", 200)
    assert attempt.first_event_us is not None
    report, runtime = health(gateway), gateway.daemon.runtime
    assert (report.succeeded, report.failed) == (1, 0)
    now = asyncio.get_running_loop().time()
    assert runtime.latency.smoothed(report.account_ref, report.model or "", now) is not None


@pytest.mark.parametrize("how", Leave)
@pytest.mark.parametrize("format", Format)
async def test_a_client_that_closes_after_the_terminal_event(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, how: Leave
) -> None:
    upstream.respond_with(stays_open(format))
    await read_and_leave(gateway, format, how)
    await check_success(gateway)
    if format is Format.RESPONSES:  # the next request may name this reply and nothing else
        assert len(gateway.daemon.runtime.affinity_index._replies) == 1


@pytest.mark.parametrize(("client_format", "upstream_format"), PAIRS)
async def test_on_the_translated_lane(
    behind: OpenGateway, upstream: ScriptedUpstream, client_format: Format, upstream_format: Format
) -> None:
    upstream.respond_with(stays_open(upstream_format))
    async with behind(upstream_format) as gateway:
        await read_and_leave(gateway, client_format, Leave.CLOSE)
        await check_success(gateway)


async def test_client_libraries(
    gateway: RunningGateway, upstream: ScriptedUpstream, openai: AsyncOpenAI
) -> None:
    """They stop reading at the terminal event, before the end of the body."""
    upstream.respond_with(stays_open(Format.CHAT))
    turns = [{"role": "user", "content": "Hello"}]
    async with openai.with_options(max_retries=0) as client:
        stream = await client.chat.completions.create(model=BETA, messages=turns, stream=True)  # type: ignore[call-overload]
        async for _ in stream:
            pass
    await check_success(gateway)


async def test_the_messages_library(
    gateway: RunningGateway, upstream: ScriptedUpstream, anthropic: AsyncAnthropic
) -> None:
    upstream.respond_with(stays_open(Format.MESSAGES))
    turns = [{"role": "user", "content": "Hello"}]
    async with anthropic.messages.stream(model=ALPHA, max_tokens=9, messages=turns) as stream:  # type: ignore[arg-type]
        assert await stream.get_final_text() == "Hello, world!"
    await check_success(gateway)


async def test_successes_between_failures_keep_the_circuit_closed(
    behind: OpenGateway, upstream: ScriptedUpstream
) -> None:
    """Failures in a row are counted, and these are none."""
    failure = json_response({"error": {"message": "try again"}}, 500)
    async with behind(Format.CHAT) as gateway:
        for _ in range(6):
            upstream.respond_with(failure)
            assert (await gateway.post(Format.CHAT, stream=True)).status == 503
            upstream.respond_with(stays_open(Format.CHAT))
            for _ in range(2):
                await read_and_leave(gateway, Format.CHAT, Leave.CLOSE)
        await gateway.rows(18)
        report = health(gateway)
    assert (report.status.state, report.succeeded, report.failed) == ("healthy", 12, 6)


@pytest.mark.large
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_leaves_before_it_has_everything(
    gateway: RunningGateway, upstream: ScriptedUpstream, streamed: bool
) -> None:
    """The upstream has done its part: only the row says that the client has disconnected."""
    script = fixture_stream(Format.CHAT) if streamed else fixture_reply(Format.CHAT)
    long = script.body.replace(b"world!", b"world!" * 1_000_000)
    upstream.respond_with(script.with_changes(chunks=(long,)))
    body = request_body(Format.CHAT, stream=streamed)
    async with raw_client(gateway.address, room=4096) as client:
        await client.send(request(gateway.address, PATHS[Format.CHAT], body, headers(gateway)))
        await client.receive_until(b"world!")
        await asyncio.sleep(0.5)  # the upstream's reply is complete, the client's is not
        client.leave(Leave.RESET)
    row = await gateway.row()
    assert row.state is ExchangeState.CLIENT_GONE
    (attempt,) = await gateway.operations.list_attempts(row.id)
    assert attempt.verdict == "ok"
    assert health(gateway).succeeded == 1


async def test_the_next_request_of_a_connection_does_not_wait_for_the_upstream(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """Its body has not ended, but the client's has."""
    upstream.respond_with(stays_open(Format.CHAT))
    sent = request(
        gateway.address,
        PATHS[Format.CHAT],
        request_body(Format.CHAT, stream=True),
        headers(gateway),
    )
    async with raw_client(gateway.address) as client:
        started = perf_counter()
        for _ in range(5):
            await client.send(sent)
            assert TERMINAL[Format.CHAT] in (await client.answer()).body
        assert perf_counter() - started < 1.5


@pytest.mark.parametrize("format", Format)
async def test_connections_are_reused_where_the_body_ends_soon(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    script = by_frame(fixture_stream(format))
    upstream.respond_with(script.with_changes(pause=0.01))
    for number in range(1, 4):
        await read_and_leave(gateway, format, Leave.CLOSE)
        await gateway.rows(number)
        await asyncio.sleep(0.05)
    assert upstream.connections == 1


async def test_a_body_that_does_not_end_is_closed(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(stays_open(Format.CHAT))
    await read_and_leave(gateway, Format.CHAT, Leave.CLOSE)
    async with asyncio.timeout(5):
        await upstream.last_request.disconnected.wait()
