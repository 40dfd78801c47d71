"""Requests that wait for their turn instead of being refused (`limits.max_wait`)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from aiohttp import ClientResponse

from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.reply import collect_reply
from gateway.store.records import ExchangeState
from gateway.wire.registry import CODECS
from tests.server.key_limits import (
    cancel,
    gateway_with_queue,
    in_use,
    limit_group,
    limit_key,
    read_error,
    start_request,
    use_quota,
    wait_all_released,
    wait_queued,
)
from tests.support.gateway import RunningGateway
from tests.support.timing import SLACK
from tests.support.upstream import Ending, Response, ScriptedUpstream, fixture_reply, fixture_stream
from tests.wire.stream_cases import decode

SILENT = Response(ending=Ending.STALLED)
NEVER = 30.0


def script(format: Format, streamed: bool) -> Response:
    return fixture_stream(format) if streamed else fixture_reply(format)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("format", Format)
async def test_a_queued_request_runs_when_the_limit_is_free(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, streamed: bool
) -> None:
    upstream.respond_with(script(format, streamed))
    async with gateway_with_queue(upstream, tmp_path) as gateway:
        limit_key(gateway, requests_per_minute=1)
        use_quota(gateway, ago=57)
        began = time.perf_counter()
        answer = await gateway.post(format, stream=streamed)
        assert answer.status == 200
        took = time.perf_counter() - began
        assert took > 0.25
        row = await gateway.row()
        assert (row.state, row.input_tokens, row.output_tokens) == (ExchangeState.OK, 12, 4)
        assert row.total_us is not None
        assert row.total_us > 250_000
        # The time in line is neither the gateway's work nor the upstream's.
        spent = timing(answer)
        assert list(spent) == ["gateway", "queue", "upstream"]
        assert spent["queue"] > 250
        assert spent["gateway"] + spent["upstream"] < took * 1000 - 250
    assert len(upstream.requests) == 1


def timing(answer: ClientResponse) -> dict[str, float]:
    """Milliseconds by who took them."""
    entries = (each.split(";dur=") for each in answer.headers["server-timing"].split(", "))
    return {name: float(milliseconds) for name, milliseconds in entries}


async def test_the_first_in_the_queue_gets_the_next_place(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(SILENT, fixture_reply("chat"))
    async with gateway_with_queue(upstream, tmp_path) as gateway:
        limit_group(gateway, concurrent=1)
        first = start_request(gateway)
        await upstream.wait_for_request()
        second = asyncio.ensure_future(gateway.post(Format.CHAT))
        await wait_queued(gateway)
        assert len(upstream.requests) == 1
        await cancel(first)
        assert (await second).status == 200
        await wait_all_released(gateway)


@pytest.mark.parametrize("format", Format)
async def test_a_wait_that_is_too_long_ends_with_an_error(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    upstream.respond_with(SILENT)
    async with gateway_with_queue(upstream, tmp_path, 0.3) as gateway:
        limit_key(gateway, concurrent=1)
        first = start_request(gateway)
        await upstream.wait_for_request()
        began = time.perf_counter()
        for streamed in (False, True):
            answer = await gateway.post(format, stream=streamed)
            assert (await read_error(answer)).message == (
                "Too Many Requests: key tests: 1 of 1 concurrent request running"
            )
            assert answer.headers["retry-after"] == "1"
        assert 0.5 < time.perf_counter() - began < 3
        await cancel(first)
        rows = await gateway.rows(3)
        assert [row.state for row in rows[1:]] == [ExchangeState.REJECTED] * 2
        assert all(row.status == 429 for row in rows[1:])


async def test_requests_that_would_wait_too_long_are_rejected(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with gateway_with_queue(upstream, tmp_path, 5) as gateway:
        limit_key(gateway, requests_per_minute=1)
        use_quota(gateway, ago=40)
        began = time.perf_counter()
        answer = await gateway.post(Format.CHAT)
        assert (answer.status, answer.headers["retry-after"]) == (429, "20")
        assert time.perf_counter() - began < 1
        limit_key(gateway, tokens_per_minute=1)
        assert (await gateway.post(Format.CHAT)).headers["x-should-retry"] == "false"
        limit_key(gateway, budget=1)
        assert (await gateway.post(Format.CHAT)).headers["x-should-retry"] == "false"
        assert time.perf_counter() - began < 2


@pytest.mark.parametrize("format", Format)
async def test_a_queued_streaming_client_gets_pings(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    upstream.respond_with(fixture_stream(format))
    async with gateway_with_queue(upstream, tmp_path, server={"commit_after": 0.1}) as gateway:
        limit_key(gateway, requests_per_minute=1)
        use_quota(gateway, ago=59.2)
        answer = await opened(gateway, format)
        assert answer.status == 200
        assert not upstream.requests, "the head was sent, and no upstream request yet"
        first = await answer.content.readany()
        assert first, "a sign of life"
        rest = await answer.read()
        (part,) = collect_reply(decode(CODECS[format].decoder(), first + rest)).parts
        assert isinstance(part, Text)
        assert part.text == "Hello, world!"
        assert len(upstream.requests) == 1
        row = await gateway.row()
        assert (row.state, row.output_tokens) == (ExchangeState.OK, 4)


async def opened(gateway: RunningGateway, format: Format) -> ClientResponse:
    """The head of a stream."""
    async with asyncio.timeout(5):
        answer: ClientResponse = await start_request(gateway, format, stream=True)
    return answer


@pytest.mark.parametrize("format", Format)
async def test_an_error_after_the_head_is_a_frame(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    upstream.respond_with(SILENT)
    async with gateway_with_queue(upstream, tmp_path, 0.5, server={"commit_after": 0.1}) as gateway:
        limit_key(gateway, concurrent=1)
        running = start_request(gateway)
        await upstream.wait_for_request()
        answer = await opened(gateway, format)
        assert answer.status == 200
        text = (await answer.read()).decode()
        assert "key tests: 1 of 1 concurrent request running" in text
        kind = "rate_limit_error" if format is Format.MESSAGES else "rate_limit_exceeded"
        assert kind in text
        await cancel(running)
        row = next(row for row in await gateway.rows(2) if row.format == format and row.stream)
        assert (row.state, row.status) == (ExchangeState.REJECTED, 200)
        assert row.error_code == "rate_limit_exceeded"
        await wait_all_released(gateway)
    assert len(upstream.requests) == 1


async def test_requests_of_one_key_keep_their_order(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(SILENT, fixture_reply("chat"))
    async with gateway_with_queue(upstream, tmp_path) as gateway:
        limit_key(gateway, concurrent=1)
        running = start_request(gateway, user="0")
        await upstream.wait_for_request()
        tasks = []
        for number in range(1, 6):
            tasks.append(asyncio.ensure_future(gateway.post(Format.CHAT, user=str(number))))
            await wait_queued(gateway, number)
        await cancel(running)
        assert [(await each).status for each in tasks] == [200] * 5
    assert [seen.json["user"] for seen in upstream.requests] == [*"012345"]


async def test_requests_do_not_wait_for_those_behind_another_limit(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Not the other keys of its group, and not the other groups."""
    upstream.respond_with(fixture_reply("chat"))
    async with gateway_with_queue(
        upstream, tmp_path, 20, limits={"requests_per_minute": 50}
    ) as gateway:
        limit_key(gateway, requests_per_minute=1)
        limit_group(gateway, requests_per_minute=40)
        use_quota(gateway, ago=45)
        waits = start_request(gateway)
        await wait_queued(gateway)
        _, same = await gateway.operations.create_key("same group", "default")
        other = await gateway.key_for_models("*")
        began = time.perf_counter()
        for key in (same, other):
            assert (await gateway.post(Format.CHAT, key=key)).status == 200
        assert time.perf_counter() - began < 1
        assert not waits.done()
        await cancel(waits)


async def test_the_queue_of_the_gateways_limit_keeps_its_order(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(SILENT, fixture_reply("chat"))
    async with gateway_with_queue(upstream, tmp_path, limits={"concurrent": 1}) as gateway:
        other = await gateway.key_for_models("*")
        running = start_request(gateway)
        await upstream.wait_for_request()
        first = asyncio.ensure_future(gateway.post(Format.CHAT, user="first"))
        await wait_queued(gateway)
        second = asyncio.ensure_future(gateway.post(Format.CHAT, key=other, user="second"))
        await wait_queued(gateway, 2)
        await cancel(running)
        assert [(await each).status for each in (first, second)] == [200, 200]
        assert [seen.json.get("user") for seen in upstream.requests] == [None, "first", "second"]


async def test_a_disconnect_leaves_the_queue(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(SILENT, fixture_reply("chat"))
    async with gateway_with_queue(upstream, tmp_path, limits={"max_waiting": 1}) as gateway:
        limit_key(gateway, concurrent=1)
        running = start_request(gateway)
        await upstream.wait_for_request()
        leaves = start_request(gateway, stream=True)
        await wait_queued(gateway)
        assert (await gateway.post(Format.CHAT)).status == 429, "the queue is full"
        await cancel(leaves)
        await wait_queued(gateway, 0)
        stays = asyncio.ensure_future(gateway.post(Format.CHAT))
        await wait_queued(gateway)
        assert in_use(gateway)[0][0] == 1
        await cancel(running)
        assert (await stays).status == 200
        rows = {row.state: row for row in await gateway.rows(4)}
        gone = [row for row in await gateway.rows(4) if row.state is ExchangeState.CLIENT_GONE]
        assert [(row.status, row.usage_source, row.channel) for row in gone if not row.channel] == [
            (499, "none", None)
        ]
        assert ExchangeState.REJECTED in rows
        await wait_all_released(gateway)
    assert len(upstream.requests) == 2


async def test_a_disconnect_after_pings(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(SILENT)
    async with gateway_with_queue(upstream, tmp_path, server={"commit_after": 0.05}) as gateway:
        limit_key(gateway, concurrent=1)
        running = start_request(gateway)
        await upstream.wait_for_request()
        answer = await opened(gateway, Format.MESSAGES)
        assert await answer.content.readany()
        answer.close()
        await wait_queued(gateway, 0)
        await cancel(running)
        await wait_all_released(gateway)
        row = next(row for row in await gateway.rows(2) if row.format == "messages")
        assert (row.state, row.status) == (ExchangeState.CLIENT_GONE, 200)
        assert (row.usage_source, row.cost_micro) == ("none", 0)


async def test_the_queue_is_bounded(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(SILENT, fixture_reply("chat"))
    async with gateway_with_queue(upstream, tmp_path, limits={"max_waiting": 12}) as gateway:
        limit_key(gateway, concurrent=1)
        running = start_request(gateway)
        await upstream.wait_for_request()
        tasks = [asyncio.ensure_future(gateway.post(Format.CHAT)) for _ in range(8)]
        await wait_queued(gateway, 3)
        done, _ = await asyncio.wait(tasks, timeout=0.5)
        answers = [task.result() for task in done]
        assert [answer.status for answer in answers] == [429] * 5
        message = (await read_error(answers[0])).message
        assert message.endswith("; the queue is full for key tests (3 requests)")
        await cancel(running)
        assert sorted([(await task).status for task in tasks]) == [200] * 3 + [429] * 5


async def test_the_end_of_a_drain_empties_the_queue(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Queued requests wait as long as running ones can run."""
    upstream.respond_with(SILENT)
    async with gateway_with_queue(
        upstream, tmp_path, wait=20, server={"drain_timeout": 1}
    ) as gateway:
        limit_key(gateway, concurrent=1)
        running = start_request(gateway)
        await upstream.wait_for_request()
        waits = asyncio.ensure_future(gateway.post(Format.CHAT))
        await wait_queued(gateway, 1)
        draining = asyncio.ensure_future(
            gateway.daemon.listener.drain(
                gateway.daemon.runtime, gateway.daemon.runtime.config.server.drain_timeout
            )
        )
        await asyncio.sleep(0.3)
        assert not waits.done()
        async with asyncio.timeout(SLACK):
            assert (await waits).status == 503
        await cancel(running)
        await draining


async def test_without_max_wait_nothing_is_queued(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    limit_key(gateway, requests_per_minute=1)
    use_quota(gateway, ago=59.5)
    assert (await gateway.post(Format.CHAT)).status == 429


async def test_a_token_count_never_waits(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """Clients count before they send a prompt, and can do without it."""
    async with gateway_with_queue(upstream, tmp_path) as gateway:
        limit_key(gateway, requests_per_minute=1)
        use_quota(gateway, ago=59)
        answer = await gateway.post(Format.MESSAGES, path="/v1/messages/count_tokens")
        assert answer.status == 429
