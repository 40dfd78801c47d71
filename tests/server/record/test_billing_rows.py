"""What the rows of real exchanges bill, however they end, and by what arithmetic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.limits import MICRO_PER_UNIT
from gateway.quota.limits import HolderKind
from gateway.store.records import ExchangeState, RequestRow
from tests.server.key_limits import cancel, start_request, wait_all_released
from tests.support.gateway import ALPHA, BETA, RunningGateway, channel, channels, run_gateway
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    by_frame,
    event_stream,
    fixture_reply,
    fixture_stream,
    json_response,
)

RATES = {"completion": 5, "cache_read": 0.1, "cache_write": 1.25, "cache_write_1h": 2}
MODELS = [
    {"id": ALPHA, "family": "alpha", "multiplier": 2.5, "rates": RATES},
    {"id": BETA, "family": "beta", "multiplier": 2.5, "rates": RATES},
]
TARIFF = "model 2.5, group 1.1, completion 5, cache read 0.1, cache write 1.25, cache write 1h 2"
PARTIAL_TEXT = "Half an ans"
"""What the fixture `cut` says before it breaks off."""

NONE = ("none", 0, 0)


@asynccontextmanager
async def priced(
    upstream: ScriptedUpstream, state: Path, **config: Any
) -> AsyncIterator[RunningGateway]:
    lines = config.pop("channels", None) or channels(upstream.address)
    async with run_gateway(state, lines, models=MODELS, **config) as gateway:
        await gateway.operations.update_group("default", multiplier="1.1")
        yield gateway


def units(*counted: tuple[float, float]) -> int:
    """Micro-units of tokens and their rates, by the multipliers above."""
    return round(sum(tokens * rate for tokens, rate in counted) * 2.5 * 1.1 * MICRO_PER_UNIT)


def billed(row: RequestRow) -> tuple[str, int, int]:
    return row.usage_source, row.input_tokens, row.output_tokens


async def the_row(gateway: RunningGateway, format: Format, streamed: bool = False) -> RequestRow:
    answer = await gateway.post(format, stream=streamed)
    assert answer.status == 200
    return (await gateway.rows())[-1]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("format", Format)
async def test_plain_usage(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, streamed: bool
) -> None:
    upstream.respond_with(fixture_stream(format) if streamed else fixture_reply(format))
    async with priced(upstream, tmp_path) as gateway:
        row = await the_row(gateway, format, streamed)
        assert billed(row) == ("upstream", 12, 4)
        assert row.cost_micro == units((12, 1), (4, 5)) == 88 * MICRO_PER_UNIT
        assert row.tariff == TARIFF
        token = await gateway.operations.get_key(gateway.token.id)
        budget = gateway.daemon.runtime.quota.budget
        assert token.cost_micro == row.cost_micro
        assert budget(HolderKind.KEY, token.id).total == row.cost_micro
        assert budget(HolderKind.GROUP, "default").total == row.cost_micro
        assert (await gateway.operations.check_integrity()).ok


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("format", Format)
async def test_cached_usage(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, streamed: bool
) -> None:
    case = "cached_usage"
    upstream.respond_with(fixture_stream(format, case) if streamed else fixture_reply(format, case))
    async with priced(upstream, tmp_path) as gateway:
        row = await the_row(gateway, format, streamed)
    assert (row.input_tokens, row.cache_read_tokens, row.cache_write_tokens) == (2000, 1500, 300)
    assert row.cost_micro == units((200, 1), (1500, 0.1), (300, 1.25), (5, 5)) == 2_062_500_000


@pytest.mark.parametrize("streamed", [False, True])
async def test_writes_that_last_for_an_hour(
    upstream: ScriptedUpstream, tmp_path: Path, streamed: bool
) -> None:
    case = "usage_of_every_kind"
    upstream.respond_with(
        fixture_stream("messages", case) if streamed else fixture_reply("messages", case)
    )
    async with priced(upstream, tmp_path) as gateway:
        row = await the_row(gateway, Format.MESSAGES, streamed)
    assert (row.cache_write_tokens, row.cache_write_1h_tokens) == (3000, 1000)
    assert row.reasoning_tokens == 600
    written = ((2000, 1.25), (1000, 2))
    assert row.cost_micro == units((1000, 1), (5000, 0.1), *written, (700, 5)) == 26_125_000_000


async def test_the_groups_multiplier_applies_from_the_next_request(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with priced(upstream, tmp_path) as gateway:
        costs = []
        for multiplier in ("1.1", "0.1", "0", "2"):
            await gateway.operations.update_group("default", multiplier=multiplier)
            await gateway.post(Format.CHAT)
        for row in await gateway.rows(4):
            costs.append((row.cost_micro, (row.tariff or "").split(", ")[1]))
    assert costs == [
        (88 * MICRO_PER_UNIT, "group 1.1"),
        (8 * MICRO_PER_UNIT, "group 0.1"),
        (0, "group 0"),
        (160 * MICRO_PER_UNIT, "group 2"),
    ]


async def test_running_requests_keep_their_multiplier(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply("chat").with_changes(delay=0.3))
    async with priced(upstream, tmp_path) as gateway:
        request_task = asyncio.ensure_future(gateway.post(Format.CHAT))
        await upstream.wait_for_request()
        await gateway.operations.update_group("default", multiplier="7")
        await request_task
        row = await gateway.row()
        await wait_all_released(gateway)
    assert (row.cost_micro, row.tariff) == (88 * MICRO_PER_UNIT, TARIFF)


@pytest.mark.parametrize(
    ("multiplier", "micro"), [("0.0000001", 2), ("0.00000003", 0), ("0.00000003125", 1)]
)
async def test_each_request_is_rounded_once_half_up(
    upstream: ScriptedUpstream, tmp_path: Path, multiplier: str, micro: int
) -> None:
    """16 tokens at 1 unit: 1.6, 0.48 and 0.5 micro-units."""
    upstream.respond_with(fixture_reply("chat"))
    models = [{"id": BETA, "family": "beta"}]
    lines = [channel(Format.CHAT, upstream.address, models=[BETA])]
    async with run_gateway(tmp_path, lines, models=models) as gateway:
        await gateway.operations.update_group("default", multiplier=multiplier)
        for _ in range(3):
            await gateway.post(Format.CHAT)
        assert [row.cost_micro for row in await gateway.rows(3)] == [micro] * 3
        assert (await gateway.operations.get_key(gateway.token.id)).cost_micro == 3 * micro


def without_usage(format: Format, streamed: bool) -> Response:
    """The reply of an upstream that counts nothing."""
    if not streamed:
        body = orjson.loads(fixture_reply(format).body)
        del body["usage"]
        return json_response(body)
    text = fixture_stream(format).body
    match format:
        case Format.CHAT:
            frames = text.split(b"\n\n")
            return event_stream(b"\n\n".join((*frames[:-3], *frames[-2:])))
        case Format.MESSAGES:
            text = text.replace(b',"usage":{"output_tokens":4}', b"")
            begins, ends = text.index(b',"usage":{'), text.index(b"}}", text.index(b',"usage":{'))
            return event_stream(text[:begins] + text[ends + 1 :])
        case Format.RESPONSES:
            begins = text.rindex(b',"usage":{')
            return event_stream(text[:begins] + b"}}\n\n")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("bills", [True, False])
async def test_a_reply_without_usage(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, streamed: bool, bills: bool
) -> None:
    upstream.respond_with(without_usage(format, streamed))
    async with priced(upstream, tmp_path, money={"bill_estimates": bills}) as gateway:
        row = await the_row(gateway, format, streamed)
    assert row.state is ExchangeState.OK
    if not bills:
        assert (billed(row), row.cost_micro, row.expected_input_tokens) == (NONE, 0, 0)
        return
    prompt = row.expected_input_tokens
    assert 0 < prompt < 20
    assert billed(row) == ("estimated", prompt, len("Hello, world!") // 4)
    assert row.cost_micro == units((prompt, 1), (3, 5))
    assert row.expected_micro == units((prompt, 1))


BEGUN = Response(headers={"content-type": "text/event-stream"}, ending=Ending.STALLED)
"""The head of a stream, and nothing after it."""

HALF = Response(headers={"content-type": "application/json"}, chunks=(b"{",), ending=Ending.STALLED)


@pytest.mark.parametrize(
    ("script", "streamed"),
    [
        (Response(delay=30), False),
        (Response(delay=30), True),
        (BEGUN, True),
        (HALF, False),
    ],
    ids=["no head, whole", "no head, stream", "head, stream", "head, whole"],
)
@pytest.mark.parametrize("bills", [True, False])
async def test_a_disconnect_before_the_reply(
    upstream: ScriptedUpstream, tmp_path: Path, script: Response, streamed: bool, bills: bool
) -> None:
    upstream.respond_with(script)
    async with priced(upstream, tmp_path, money={"bill_estimates": bills}) as gateway:
        request = start_request(gateway, stream=streamed)
        await upstream.wait_for_request()
        await asyncio.sleep(0.15)
        await cancel(request)
        row = await gateway.row()
        await wait_all_released(gateway)
    assert (row.state, row.status) == (ExchangeState.CLIENT_GONE, 499)
    if not bills:
        assert (billed(row), row.cost_micro) == (NONE, 0)
    else:
        assert billed(row) == ("estimated", row.expected_input_tokens, 0)
        assert row.cost_micro == row.expected_micro > 0


async def listen(gateway: RunningGateway, format: Format) -> Any:
    """A stream, once everything of the fixture `cut` has come."""
    answer = await start_request(gateway, format, stream=True)
    data = b""
    async with asyncio.timeout(5):
        while b" ans" not in data:
            data += await answer.content.readany()
    return answer


def half_billed(format: Format, row: RequestRow, bills: bool = True) -> None:
    if format is Format.MESSAGES:  # the upstream reports its input at the beginning
        used = (12, 2) if bills else (12, 1)
        assert billed(row) == ("estimated" if bills else "upstream", *used)
        assert row.cost_micro == units((12, 1), (used[1], 5))
    elif not bills:
        assert (billed(row), row.cost_micro) == (NONE, 0)
    else:
        assert billed(row) == ("estimated", row.expected_input_tokens, len(PARTIAL_TEXT) // 4)
        assert row.cost_micro == units((row.expected_input_tokens, 1), (2, 5))


@pytest.mark.parametrize("bills", [True, False])
@pytest.mark.parametrize("format", Format)
async def test_a_disconnect_within_a_stream(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, bills: bool
) -> None:
    upstream.respond_with(by_frame(fixture_stream(format, "cut", ending=Ending.STALLED)))
    async with priced(upstream, tmp_path, money={"bill_estimates": bills}) as gateway:
        (await listen(gateway, format)).close()
        row = await gateway.row()
        await wait_all_released(gateway)
    assert (row.state, row.status, row.end_reason) == (
        ExchangeState.CLIENT_GONE,
        200,
        "client_gone",
    )
    half_billed(format, row, bills)


@pytest.mark.parametrize("bills", [True, False])
@pytest.mark.parametrize("format", Format)
async def test_an_upstream_that_breaks_off_within_a_stream(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, bills: bool
) -> None:
    upstream.respond_with(by_frame(fixture_stream(format, "cut", ending=Ending.TRUNCATED)))
    async with priced(upstream, tmp_path, money={"bill_estimates": bills}) as gateway:
        row = await the_row(gateway, format, streamed=True)
    assert (row.state, row.end_reason) == (ExchangeState.UPSTREAM_CUT, "upstream_cut")
    half_billed(format, row, bills)


async def test_background_drains_are_billed(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    frames = by_frame(fixture_stream("chat"))
    upstream.respond_with(frames.with_changes(pause=0.05))
    lines = [channel(Format.CHAT, upstream.address, on_disconnect="drain")]
    async with priced(upstream, tmp_path, channels=lines) as gateway:
        answer = await start_request(gateway, stream=True)
        assert await answer.content.readany()
        answer.close()
        row = await gateway.row()
        await wait_all_released(gateway)
    assert (row.state, billed(row)) == (ExchangeState.CLIENT_GONE, ("upstream", 12, 4))
    assert row.cost_micro == 88 * MICRO_PER_UNIT


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "script",
    [
        json_response({"error": {"message": "no", "type": "server_error"}}, 500),
        json_response({"error": {"message": "no"}}, 400),
        json_response(b"<html>"),
        BEGUN.with_changes(ending=Ending.TRUNCATED),
        fixture_stream("chat", "error_first"),
    ],
    ids=["500", "400", "garbage", "cut before anything", "an error first"],
)
async def test_a_failure_before_the_reply_is_free(
    upstream: ScriptedUpstream, tmp_path: Path, script: Response, streamed: bool
) -> None:
    upstream.respond_with(script)
    lines = [channel(Format.CHAT, upstream.address)]
    async with priced(upstream, tmp_path, channels=lines) as gateway:
        answer = await gateway.post(Format.CHAT, stream=streamed)
        assert answer.status >= 400
        row = await gateway.row()
        await wait_all_released(gateway)
    assert row.state is ExchangeState.ERROR
    assert (billed(row), row.cost_micro) == (NONE, 0)
    assert row.expected_micro > 0


async def test_after_a_failover_only_the_reply_is_billed(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(BEGUN.with_changes(ending=Ending.TRUNCATED), fixture_stream("responses"))
    async with priced(upstream, tmp_path) as gateway:
        row = await the_row(gateway, Format.CHAT, streamed=True)
    assert (row.attempts, billed(row), row.cost_micro) == (
        2,
        ("upstream", 12, 4),
        88 * MICRO_PER_UNIT,
    )


async def test_counting_tokens_is_free(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(json_response({"input_tokens": 7}))
    async with priced(upstream, tmp_path) as gateway:
        path = "/v1/messages/count_tokens"
        assert (await gateway.post(Format.MESSAGES, path=path)).status == 200
        row = await gateway.row()
    assert (billed(row), row.cost_micro, row.expected_micro, row.tariff) == (NONE, 0, 0, None)
    assert row.catalog_model == ALPHA


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_prewarm_without_an_upstream_is_free(
    upstream: ScriptedUpstream, tmp_path: Path, streamed: bool
) -> None:
    lines = [channel(Format.CHAT, upstream.address)]
    async with priced(upstream, tmp_path, channels=lines) as gateway:
        answer = await gateway.post(Format.MESSAGES, max_tokens=0, stream=streamed)
        assert answer.status == 200
        row = await gateway.row()
    assert (row.state, billed(row), row.cost_micro) == (ExchangeState.OK, NONE, 0)
    assert not upstream.requests


async def test_rejected_prompts_are_free(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with priced(upstream, tmp_path) as gateway:
        await gateway.operations.update_key(gateway.token.id, limits={"requests_per_minute": 0})
        assert (await gateway.post(Format.CHAT)).status == 429
        row = await gateway.row()
    assert (billed(row), row.cost_micro) == (NONE, 0)
    assert row.catalog_model == BETA, "whom a refusal concerned is on record"


async def test_an_alias_is_billed_as_its_model(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(fixture_reply("chat"))
    models = [{"id": BETA, "family": "beta", "multiplier": 3, "aliases": ["nickname"]}]
    lines = [channel(Format.CHAT, upstream.address, models={BETA: "upstream-model"})]
    async with run_gateway(tmp_path, lines, models=models) as gateway:
        answer = await gateway.post(Format.CHAT, model="nickname")
        assert answer.status == 200
        row = await gateway.row()
    assert (row.model, row.catalog_model, row.cost_micro) == ("nickname", BETA, 48 * MICRO_PER_UNIT)
