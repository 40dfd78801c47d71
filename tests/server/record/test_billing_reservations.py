"""Replies that are longer than was expected: an upstream may ignore `max_tokens`."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.limits import MICRO_PER_UNIT
from gateway.quota.limits import HolderKind
from gateway.store.records import ExchangeState
from tests.server.format_pairs import PAIRS, TERMINAL, OpenGateway
from tests.server.key_limits import (
    cancel,
    in_use,
    limit_group,
    limit_key,
    start_request,
    wait_all_released,
)
from tests.support.gateway import ALPHA, BETA, RunningGateway, channels, run_gateway
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    by_frame,
    fixture_reply,
    fixture_stream,
    json_response,
)

UNIT = MICRO_PER_UNIT
MODELS = [{"id": BETA, "family": "beta"}, {"id": ALPHA, "family": "alpha"}]
"""A catalog in which every token costs a unit."""

WORDS = 12
"""Deltas of a long reply, of 100 characters each: 300 tokens by the estimate."""


def long_stream(format: Format, *, pause: float = 0.01, words: int = WORDS) -> Response:
    """The stream `text`, whose first delta comes many times and is longer."""
    frames = by_frame(fixture_stream(format)).chunks
    (index,) = [number for number, frame in enumerate(frames) if b'"Hello' in frame][:1]
    delta = frames[index].replace(b'"Hello', b'"' + b"Hello " * 17, 1)
    chunks = (*frames[:index], *[delta] * words, *frames[index + 1 :])
    return by_frame(fixture_stream(format)).with_changes(chunks=chunks, pause=pause)


def counted(script: Response, tokens: int = 300) -> Response:
    """The same with the usage of a long reply."""
    usage = rb"\g<1>%d" % tokens
    frames = re.sub(rb'((completion|output)_tokens": ?)4', usage, b"\0".join(script.chunks))
    return script.with_changes(chunks=tuple(frames.split(b"\0")))


def stalled(script: Response, frames: int) -> Response:
    return script.with_changes(chunks=script.chunks[:-frames], ending=Ending.STALLED)


def endless_stream(format: Format) -> Response:
    """153 tokens by the estimate and no end, however few reads bring it."""
    script = long_stream(format, words=6)
    texts = [at for at, frame in enumerate(script.chunks) if b"Hello Hello" in frame]
    return stalled(script, len(script.chunks) - texts[-1] - 1)


async def stream(gateway: RunningGateway, format: Format = Format.CHAT, **fields: Any) -> bytes:
    answer = await gateway.post(format, stream=True, model=BETA, **fields)
    assert answer.status == 200
    return await answer.read()


LIMIT = {
    Format.CHAT: {"max_tokens": 1},
    Format.MESSAGES: {"max_tokens": 1},
    Format.RESPONSES: {"max_output_tokens": 1},
}


@pytest.mark.parametrize(("client_format", "upstream_format"), PAIRS)
async def test_a_stream_ends_where_its_budget_is_spent(
    behind: OpenGateway, upstream: ScriptedUpstream, client_format: Format, upstream_format: Format
) -> None:
    upstream.respond_with(endless_stream(upstream_format))
    async with behind(upstream_format, models=MODELS) as gateway:
        limit_key(gateway, budget=140 * UNIT)
        body = await stream(gateway, client_format, **LIMIT[client_format])
        assert TERMINAL[client_format] not in body
        name = b"billing_error" if client_format is Format.MESSAGES else b"insufficient_quota"
        assert name in body
        assert b"total budget of 140 units" in body
        row = await gateway.row()
        await wait_all_released(gateway)
        attempts = await gateway.operations.list_attempts(row.id)
    assert (row.state, row.status, row.error_code) == (
        ExchangeState.ERROR,
        200,
        "insufficient_quota",
    )
    assert row.usage_source == "estimated"
    assert 80 * UNIT < row.cost_micro <= 140 * UNIT
    assert [attempt.verdict for attempt in attempts] == ["ok"]


async def test_on_the_native_lane(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(endless_stream(Format.CHAT))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        limit_group(gateway, budget_day=140 * UNIT)
        # Its status is 429 where one read brings all of it.
        answer = await gateway.post(Format.CHAT, stream=True, model=BETA, max_tokens=1)
        body = await answer.read()
        row = await gateway.row()
    assert b"daily budget of 140 units" in body
    assert row.cost_micro <= 140 * UNIT


async def test_streams_at_a_time_share_what_is_left(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(counted(long_stream(Format.CHAT, pause=0.03)))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        limit_key(gateway, budget=400 * UNIT)
        answers = await asyncio.gather(
            *(gateway.post(Format.CHAT, stream=True, model=BETA, max_tokens=1) for _ in range(10))
        )
        bodies = [await answer.read() for answer in answers]
        rows = await gateway.rows(10)
        await wait_all_released(gateway)
        assert (await gateway.post(Format.CHAT)).status == 429
    assert sum(b"insufficient_quota" in body for body in bodies) >= 8
    assert sum(row.cost_micro for row in rows) <= 400 * UNIT, "not 10 * 310"


@pytest.mark.full
@pytest.mark.slow("relays a thousand long replies")
@pytest.mark.large
async def test_a_thousand_streams_spend_no_more_than_their_budget(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(counted(long_stream(Format.CHAT, pause=0.02, words=40), 1000))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        limit_key(gateway, budget=300_000 * UNIT)

        async def read(number: int) -> bytes:
            await asyncio.sleep(number / 500)
            answer = await gateway.post(Format.CHAT, stream=True, model=BETA, max_tokens=1)
            return await answer.read()

        async with asyncio.timeout(200):
            bodies = await asyncio.gather(*map(read, range(1000)))
        await wait_all_released(gateway)
        spent = gateway.daemon.runtime.quota.budget(HolderKind.KEY, gateway.token.id).total
    assert 200 <= sum(b"insufficient_quota" in body for body in bodies) < 1000
    assert 0.95 * 300_000 * UNIT < spent <= 300_000 * UNIT, spent / UNIT


async def test_reservations_grow_with_the_reply(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(stalled(long_stream(Format.CHAT), frames=4))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        limit_key(gateway, budget=10_000 * UNIT, tokens_per_minute=10_000)
        answer = await start_request(gateway, stream=True, max_tokens=1)
        text = b""
        while text.count(b"Hello") < WORDS * 17:
            text += await answer.content.readany()
        (_, reserved), *_ = in_use(gateway)
        assert 250 * UNIT < reserved < 500 * UNIT
        headers = (await gateway.get("/v1/models")).headers
        assert 9_500 < int(headers["x-ratelimit-remaining-tokens"]) < 9_750
        answer.close()
        await wait_all_released(gateway)


async def test_a_long_reply_within_the_budget_is_complete(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(long_stream(Format.CHAT, pause=0))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        for limits in ({}, {"budget": 360 * UNIT}):
            limit_key(gateway, **limits)
            assert TERMINAL[Format.CHAT] in await stream(gateway, max_tokens=1)
            await wait_all_released(gateway)


@pytest.mark.parametrize(("client_format", "upstream_format"), PAIRS)
@pytest.mark.parametrize("reads", [1, 2])
async def test_what_a_budget_has_no_room_for_is_not_sent(
    behind: OpenGateway,
    upstream: ScriptedUpstream,
    client_format: Format,
    upstream_format: Format,
    reads: int,
) -> None:
    """The whole stream comes in one read, or all but its beginning, with the terminal event."""
    script = counted(long_stream(upstream_format))
    first = next(at for at, frame in enumerate(script.chunks) if b'"Hello' in frame) + 1
    chunks = (b"".join(script.chunks[:first]), b"".join(script.chunks[first:]))
    chunks = chunks if reads == 2 else (b"".join(chunks),)
    upstream.respond_with(script.with_changes(chunks=chunks, pause=0.1))
    async with behind(upstream_format, models=MODELS) as gateway:
        limit_key(gateway, budget=140 * UNIT)
        answer = await gateway.post(client_format, stream=True, model=BETA, **LIMIT[client_format])
        body = await answer.read()
        refused = 402 if client_format is Format.MESSAGES else 429
        assert answer.status == (200 if reads == 2 else refused)
        assert b"total budget of 140 units" in body
        assert body.count(b"Hello") <= 17 * (reads - 1)
        assert TERMINAL[client_format] not in body
        row = await gateway.row()
        await wait_all_released(gateway)
        assert (await gateway.post(client_format)).status == refused
    assert (row.state, row.error_code) == (ExchangeState.ERROR, "insufficient_quota")
    assert row.usage_source == "upstream"
    assert row.cost_micro > 300 * UNIT, "what the upstream has sent is charged"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("fields", [{"max_tokens": 500}, {}])
async def test_short_replies_do_not_let_long_ones_exceed_a_budget(
    upstream: ScriptedUpstream, tmp_path: Path, streamed: bool, fields: dict[str, int]
) -> None:
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        upstream.respond_with(body_of(4))
        for _ in range(3):
            await gateway.post(Format.CHAT)
        await wait_all_released(gateway)
        limit_key(gateway, budget=4000 * UNIT)
        script = long_stream(Format.CHAT, pause=0) if streamed else body_of(500)
        upstream.respond_with(script.with_changes(delay=0.3))
        answers = await asyncio.gather(
            *(gateway.post(Format.CHAT, stream=streamed, **fields) for _ in range(20))
        )
        for answer in answers:
            await answer.read()
        rows = await gateway.rows(23)
        await wait_all_released(gateway)
    admitted = sum(answer.status == 200 for answer in answers)
    assert admitted == (7 if fields else 3), "of about 515 or 1,039 units each"
    assert sum(row.cost_micro for row in rows) <= 4000 * UNIT


async def test_a_request_alone_may_use_the_rest_of_a_budget(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(body_of(4))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        await gateway.post(Format.CHAT)
        await wait_all_released(gateway)
        limit_key(gateway, budget=100 * UNIT)
        for _ in range(3):
            answer = await gateway.post(Format.CHAT, max_tokens=32_000)
            assert answer.status == 200


def body_of(tokens: int) -> Response:
    body = orjson.loads(fixture_reply(Format.CHAT).body)
    body["usage"] |= {"completion_tokens": tokens, "total_tokens": 12 + tokens}
    return json_response(body)


async def test_a_whole_reply_above_its_limit_is_noted_and_expected_again(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(body_of(75))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        limit_key(gateway, budget=160 * UNIT)
        statuses = []
        for _ in range(3):
            answer = await gateway.post(Format.CHAT, max_tokens=1)
            statuses.append(answer.status)
        assert statuses == [200, 429, 429], "75 more are expected, not 1"
        assert b"this request may cost 8" in await answer.read()
        (row, *_) = await gateway.rows(3)
        assert row.upstream_error == "75 output tokens, although max_tokens is 1"
        upstream.respond_with(body_of(1))
        limit_key(gateway, budget=1000 * UNIT)
        assert (await gateway.post(Format.CHAT, max_tokens=1)).status == 200
        limit_key(gateway, budget=120 * UNIT)
        assert (await gateway.post(Format.CHAT, max_tokens=1)).status == 200, "it keeps to it again"


def wordy_stream(pause: float = 0.0) -> Response:
    """500 tokens of 6 characters: 765 by the estimate."""
    return counted(long_stream(Format.CHAT, pause=pause, words=30), 500)


@pytest.mark.parametrize(("requests", "budget", "paid_for"), [(2, 1_200, 2), (200, 20_000, 38)])
async def test_long_words_end_no_reply_within_its_limit(
    upstream: ScriptedUpstream, tmp_path: Path, requests: int, budget: int, paid_for: int
) -> None:
    upstream.respond_with(wordy_stream().with_changes(delay=1.0))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        limit_key(gateway, budget=budget * UNIT)
        answers = await asyncio.gather(
            *(gateway.post(Format.CHAT, stream=True, max_tokens=500) for _ in range(requests))
        )
        bodies = [await answer.read() for answer in answers if answer.status == 200]
        await wait_all_released(gateway)
        charged = gateway.daemon.runtime.quota.budget(HolderKind.KEY, gateway.token.id).total
    complete = sum(TERMINAL[Format.CHAT] in body for body in bodies)
    assert complete == len(bodies) >= paid_for
    assert charged == 512 * UNIT * complete <= budget * UNIT


async def test_an_estimate_charges_no_more_than_the_limit_of_the_reply(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(stalled(wordy_stream(), frames=2))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        limit_key(gateway, budget=600 * UNIT, tokens_per_minute=600)
        answer = await start_request(gateway, stream=True, max_tokens=500)
        text = b""
        async with asyncio.timeout(10):
            while text.count(b"Hello") < 30 * 17:
                text += await answer.content.readany()
        headers = (await gateway.get("/v1/models")).headers
        assert 80 < int(headers["x-ratelimit-remaining-tokens"]) < 100
        answer.close()
        row, _ = await gateway.rows(2)
        await wait_all_released(gateway)
    assert (row.usage_source, row.output_tokens) == ("estimated", 500)
    assert row.cost_micro <= 520 * UNIT


async def test_a_limit_that_is_ignored_counts_for_tokens_per_minute(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """They are counted as the reply goes; a budget expects what the model usually has."""
    upstream.respond_with(body_of(900))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        assert (await gateway.post(Format.CHAT, max_tokens=5)).status == 200
        await wait_all_released(gateway)
        upstream.respond_with(Response(ending=Ending.STALLED))
        limit_key(gateway, tokens_per_minute=100)
        running = start_request(gateway, max_tokens=5)
        await upstream.wait_for_request(2)
        headers = (await gateway.get("/v1/models")).headers
        assert 70 < int(headers["x-ratelimit-remaining-tokens"]) < 95
        await cancel(running)
