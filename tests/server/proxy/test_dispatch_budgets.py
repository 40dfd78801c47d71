"""Budgets: what is spent and reserved, and the errors."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.limits import MICRO_PER_UNIT
from gateway.quota.limits import HolderKind
from gateway.store.records import ExchangeState
from tests.server.key_limits import (
    ErrorReply,
    cancel,
    expected_error,
    gateway_with_queue,
    in_use,
    limit_group,
    limit_key,
    read_error,
    shift_clock,
    start_request,
    use_quota,
    wait_all_released,
)
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.upstream import Ending, Response, ScriptedUpstream, fixture_reply, json_response

pytestmark = pytest.mark.shared_gateway

BROKE = ("billing_error", "insufficient_quota")
CONFIG: dict[str, Any] = {
    "models": [
        {"id": "alpha-sonnet-4-6", "family": "alpha"},
        {"id": "beta-5.4", "family": "beta"},
    ]
}
"""A catalog in which every token costs a unit: a reply to `prompt` costs 16."""


def plain_gateway(upstream: ScriptedUpstream, state: Path) -> Any:
    return run_gateway(state, channels(upstream.address), **CONFIG)


def broke(format: Format, message: str) -> ErrorReply:
    error: ErrorReply = expected_error(
        format,
        402 if format is Format.MESSAGES else 429,
        BROKE,
        f"Insufficient quota: {message}",
        "insufficient_quota",
    )
    return error


def required_amount(error: ErrorReply) -> str:
    """What the refused request would have taken, in units."""
    return error.message.partition("this request may cost ")[2].partition(";")[0]


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize(
    ("budget", "period", "reset"),
    [
        ("budget", "total", "does not reset"),
        ("budget_day", "daily", "resets at {day}T00:00:00Z"),
        ("budget_month", "monthly", "resets at {month}-01T00:00:00Z"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_spent_budget(
    gateway: RunningGateway,
    upstream: ScriptedUpstream,
    format: Format,
    budget: str,
    period: str,
    reset: str,
    streamed: bool,
) -> None:
    limit_key(gateway, **{budget: 5 * MICRO_PER_UNIT})
    use_quota(gateway, ago=0, micro=4_900_000)
    today = datetime.now(UTC)
    answer = await gateway.post(format, stream=streamed)
    error = await read_error(answer)
    next_month = (today.replace(day=1) + timedelta(days=32)).strftime("%Y-%m")
    anew = reset.format(day=(today + timedelta(days=1)).date(), month=next_month)
    assert error == broke(
        format,
        f"key tests: {period} budget of 5 units: 4.9 spent, 0 reserved by running requests, "
        f"this request may cost {required_amount(error)}; {anew}",
    )
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers
    assert not upstream.requests
    row = await gateway.row()
    assert (row.state, row.status) == (ExchangeState.REJECTED, error.status)
    assert (row.error_code, row.cost_micro) == ("insufficient_quota", 0)
    assert row.channel is None


@pytest.mark.own_gateway
@pytest.mark.parametrize("format", Format)
async def test_a_groups_budget(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    limit_group(gateway, budget_day=1_000 * MICRO_PER_UNIT)
    other, key = await gateway.operations.create_key("other", "default")
    use_quota(gateway, ago=0, micro=999 * MICRO_PER_UNIT, token=other)
    error = await read_error(await gateway.post(format))
    assert error.message.startswith(
        "Insufficient quota: group default: daily budget of 1,000 units: 999 spent"
    )
    assert (await read_error(await gateway.post(format, key=key))).type in BROKE
    other_key = await gateway.key_for_models("*")
    upstream.respond_with(fixture_reply(format))
    assert (await gateway.post(format, key=other_key)).status == 200


async def test_an_exceeded_budget_is_reported_before_a_limit(gateway: RunningGateway) -> None:
    """A client that waits for the limit would wait in vain."""
    limit_key(gateway, requests_per_minute=1, budget=1)
    limit_key(gateway, requests_per_minute=1)
    use_quota(gateway, ago=5)
    limit_key(gateway, requests_per_minute=1, budget=1)
    assert (await read_error(await gateway.post(Format.CHAT))).code == "insufficient_quota"


async def test_spent_budgets_equal_the_rows(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """Ten requests of 16 units each; the eleventh no longer fits."""
    upstream.respond_with(fixture_reply("chat"))
    async with plain_gateway(upstream, tmp_path) as gateway:
        limit_key(gateway, budget=165 * MICRO_PER_UNIT)
        statuses = [(await gateway.post(Format.CHAT, max_tokens=4)).status for _ in range(12)]
        assert statuses == [200] * 10 + [429] * 2
        rows = await gateway.rows(12)
        assert [row.cost_micro for row in rows] == [16 * MICRO_PER_UNIT] * 10 + [0] * 2
        purse = gateway.daemon.runtime.quota.budget(HolderKind.KEY, gateway.token.id)
        assert (purse.total, purse.reserved) == (160 * MICRO_PER_UNIT, 0)
        assert (
            await gateway.operations.get_key(gateway.token.id)
        ).cost_micro == 160 * MICRO_PER_UNIT
    assert len(upstream.requests) == 10


async def test_running_requests_count_against_the_budget(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(Response(ending=Ending.STALLED), fixture_reply("chat"))
    async with plain_gateway(upstream, tmp_path) as gateway:
        limit_key(gateway, budget_month=1_500 * MICRO_PER_UNIT)
        running = start_request(gateway)
        await upstream.wait_for_request()
        (_, reserved), *_ = in_use(gateway)
        assert 1_024 * MICRO_PER_UNIT < reserved < 1_050 * MICRO_PER_UNIT
        error = await read_error(await gateway.post(Format.CHAT))
        units = f"{reserved // MICRO_PER_UNIT:,}"
        assert f"0 spent, {units} reserved by running requests" in error.message
        assert required_amount(error) == units
        assert (await gateway.post(Format.CHAT, max_tokens=20)).status == 200
        await cancel(running)
        await wait_all_released(gateway)
        assert (await gateway.post(Format.CHAT)).status == 200


async def test_concurrent_requests_never_exceed_the_limit(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply("chat").with_changes(delay=0.2))
    async with plain_gateway(upstream, tmp_path) as gateway:
        limit_key(gateway, budget=100 * MICRO_PER_UNIT)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(gateway.post(Format.CHAT, max_tokens=10)) for _ in range(20)]
        statuses = [task.result().status for task in tasks]
        spent = sum(row.cost_micro for row in await gateway.rows(20))
    assert set(statuses) == {200, 429}
    assert 3 <= statuses.count(200) <= 6
    assert spent == statuses.count(200) * 16 * MICRO_PER_UNIT <= 100 * MICRO_PER_UNIT


@pytest.mark.parametrize("format", Format)
async def test_a_reserved_budget_is_no_final_answer(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    upstream.respond_with(Response(ending=Ending.STALLED), fixture_reply(format))
    async with plain_gateway(upstream, tmp_path) as gateway:
        limit_key(gateway, budget_5h=1_100 * MICRO_PER_UNIT)
        running = start_request(gateway)
        await upstream.wait_for_request()
        answer = await gateway.post(format, max_tokens=200)
        error = await read_error(answer)
        assert error.status == 429
        assert error.type == ("rate_limit_error" if format is Format.MESSAGES else "requests")
        assert "5-hour budget of 1,100 units: 0 spent, 1,0" in error.message
        assert answer.headers["retry-after"] == "1"
        assert "x-should-retry" not in answer.headers
        assert answer.headers["x-gateway-budget-status"] == "allowed"
        assert answer.headers["x-gateway-budget-remaining"] == "1100"
        await cancel(running)
        await wait_all_released(gateway)
        assert (await gateway.post(format, max_tokens=200)).status == 200


async def test_requests_wait_for_a_reserved_budget_in_the_queue(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply("chat").with_changes(delay=0.1))
    async with gateway_with_queue(upstream, tmp_path, wait=20, **CONFIG) as gateway:
        limit_key(gateway, budget=100 * MICRO_PER_UNIT)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(gateway.post(Format.CHAT, max_tokens=10)) for _ in range(5)]
        assert [task.result().status for task in tasks] == [200] * 5
        spent = sum(row.cost_micro for row in await gateway.rows(5))
    assert spent == 5 * 16 * MICRO_PER_UNIT


async def test_only_running_requests_can_exceed_a_budget(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """A reply that is longer than any before."""
    body = orjson.loads(fixture_reply("chat").body)
    body["usage"] |= {"completion_tokens": 5_000, "total_tokens": 5_012}
    upstream.respond_with(json_response(body))
    async with plain_gateway(upstream, tmp_path) as gateway:
        limit_key(gateway, budget=1_100 * MICRO_PER_UNIT)
        assert (await gateway.post(Format.CHAT)).status == 200
        error = await read_error(await gateway.post(Format.CHAT, max_tokens=1))
        assert "total budget of 1,100 units: 5,012 spent" in error.message
        assert (await gateway.rows(2))[0].cost_micro == 5_012 * MICRO_PER_UNIT


async def test_a_new_day_and_a_new_month(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with plain_gateway(upstream, tmp_path) as gateway:
        now = datetime.now(UTC)
        tomorrow = now.replace(hour=0, minute=0, second=1) + timedelta(days=1)
        month = (now.replace(day=1, hour=0, minute=0, second=1) + timedelta(days=32)).replace(day=1)
        limit_key(gateway, budget_day=20 * MICRO_PER_UNIT)
        assert (await gateway.post(Format.CHAT, max_tokens=4)).status == 200
        assert (await gateway.post(Format.CHAT, max_tokens=4)).status == 429
        shift_clock(gateway, (tomorrow - now).total_seconds())
        assert (await gateway.post(Format.CHAT, max_tokens=4)).status == 200
        assert (await gateway.post(Format.CHAT, max_tokens=4)).status == 429
        limit_key(gateway, budget_month=20 * MICRO_PER_UNIT)
        if tomorrow.month == now.month:
            assert (await gateway.post(Format.CHAT, max_tokens=4)).status == 429
        shift_clock(gateway, (month - now).total_seconds())
        assert (await gateway.post(Format.CHAT, max_tokens=4)).status == 200
        limit_key(gateway, budget=20 * MICRO_PER_UNIT)
        assert (await gateway.post(Format.CHAT, max_tokens=4)).status == 429


@pytest.mark.parametrize("budget", ["budget_day", "budget_month"])
@pytest.mark.parametrize("days", [2, 40])
async def test_a_clock_that_is_ahead_for_a_while_resets_no_budget(
    upstream: ScriptedUpstream, tmp_path: Path, days: int, budget: str
) -> None:
    """Not even where the gateway starts meanwhile."""
    upstream.respond_with(fixture_reply("chat"))
    limits = {budget: 20 * MICRO_PER_UNIT}
    async with plain_gateway(upstream, tmp_path) as gateway:
        _, key = await gateway.operations.create_key("ahead", "default", limits=limits)

        async def post() -> int:
            return (await gateway.post(Format.CHAT, key=key, max_tokens=4)).status

        assert await post() == 200
        ahead, now = timedelta(days=days), datetime.now(UTC)
        shift_clock(gateway, ahead.total_seconds())
        is_new = budget == "budget_day" or (now + ahead).month != now.month
        assert await post() == (200 if is_new else 429)
        shift_clock(gateway, 0)
        assert [await post() for _ in range(5)] == [429] * 5
    async with plain_gateway(upstream, tmp_path) as gateway:
        assert [await post() for _ in range(5)] == [429] * 5


async def test_a_restart_forgets_nothing(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with plain_gateway(upstream, tmp_path) as gateway:
        token, key = await gateway.operations.create_key(
            "lasting", "default", limits={"budget": 50 * MICRO_PER_UNIT}
        )
        statuses = [
            (await gateway.post(Format.CHAT, key=key, max_tokens=4)).status for _ in range(2)
        ]
        assert statuses == [200, 200]
    async with plain_gateway(upstream, tmp_path) as gateway:
        statuses = [
            (await gateway.post(Format.CHAT, key=key, max_tokens=4)).status for _ in range(3)
        ]
        assert statuses == [200, 429, 429]
        await gateway.rows(5)
        assert (await gateway.operations.get_key(token.id)).cost_micro == 48 * MICRO_PER_UNIT
        assert (await gateway.operations.check_integrity()).ok


async def test_a_rotated_key_keeps_its_budget(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with plain_gateway(upstream, tmp_path) as gateway:
        token, old = await gateway.operations.create_key(
            "lasting", "default", limits={"budget": 40 * MICRO_PER_UNIT}
        )
        assert (await gateway.post(Format.CHAT, key=old, max_tokens=4)).status == 200
        _, new = await gateway.operations.rotate_key(token.id, 60 * MICRO_PER_UNIT)
        statuses = [
            (await gateway.post(Format.CHAT, key=key, max_tokens=4)).status
            for key in (new, old, new)
        ]
        assert statuses == [200, 429, 429]


async def test_a_budget_of_zero(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    limit_key(gateway, budget=0)
    assert (await read_error(await gateway.post(Format.CHAT))).code == "insufficient_quota"
    assert not upstream.requests


async def test_every_choice_is_expected_to_cost(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with plain_gateway(upstream, tmp_path) as gateway:
        limit_key(gateway, budget=1)
        one, four = [
            required_amount(
                await read_error(await gateway.post(Format.CHAT, max_tokens=20, **choices))
            )
            for choices in ({}, {"n": 4})
        ]
    assert int(four) - int(one) == 3 * 20
