"""What requests cost in US dollars, and budgets in them, with real exchanges."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.admission.budgets import load_budgets
from gateway.config.schema import Model
from gateway.core.formats import Format
from gateway.core.limits import BudgetWindow, Currency
from gateway.quota.limits import HolderKind, Quota
from gateway.store.log import integrity
from gateway.store.log.usage import usage
from tests.server.key_limits import limit_key, shift_clock, start_request
from tests.support.gateway import ALPHA, BETA, RunningGateway, channels, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, fixture_stream

SONNET = {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75, "cache_write_1h": 6}
MODELS: list[dict[str, Any]] = [
    {"id": ALPHA, "family": "alpha", "price": SONNET},
    {"id": BETA, "family": "beta", "price": {"input": 1, "output": 8}},
]
DOLLAR = 1_000_000
HOUR = 3_600
USD_OF = {Format.CHAT: 12 * 1 + 4 * 8, Format.MESSAGES: 12 * 3 + 4 * 15, Format.RESPONSES: 44}
"""Of the fixture's 12 tokens of input and 4 of output, in millionths of a dollar."""


def change_price(gateway: RunningGateway, dollars: float) -> None:
    """A reload with another price of beta's input."""
    runtime = gateway.daemon.runtime
    models = [
        Model.model_validate(
            model.model_dump() | {"price": {"input": dollars, "output": 8}}
            if model.id == BETA
            else model.model_dump()
        )
        for model in runtime.config.models
    ]
    runtime.replace_config(runtime.config.model_copy(update={"models": tuple(models)}))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("format", Format)
async def test_rows_sums_and_totals_have_dollars(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, streamed: bool
) -> None:
    upstream.respond_with(fixture_stream(format) if streamed else fixture_reply(format))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        assert (await gateway.post(format, stream=streamed)).status == 200
        row = await gateway.row()
        used = row.input_tokens, row.output_tokens
        assert row.usd_micro == USD_OF[format] == sum(map(int.__mul__, used, prices_of(row.model)))
        assert row.cost_micro == sum(used) * DOLLAR, "units are not affected"
        assert row.expected_usd_micro > 0
        assert row.tariff is not None and "; USD per million tokens: input " in row.tariff
        token = await gateway.operations.get_key(gateway.token.id)
        (hour,) = await usage(gateway.operations.database)
        assert token.usd_micro == hour.usd_micro == row.usd_micro
        for kind, id in ((HolderKind.KEY, token.id), (HolderKind.GROUP, "default")):
            tracker = gateway.daemon.runtime.quota.budget(kind, id, Currency.USD)
            assert (tracker.total, tracker.reserved) == (row.usd_micro, 0)
        assert (await gateway.operations.check_integrity()).ok


def prices_of(model: str | None) -> tuple[int, int]:
    return (3, 15) if model == ALPHA else (1, 8)


async def test_the_integrity_check_finds_dollars_that_do_not_add_up(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        await gateway.post(Format.CHAT)
        await gateway.row()
        database = gateway.operations.database
        await database.write(
            lambda connection: connection.exec_driver_sql(
                "UPDATE usage_hours SET usd_micro = usd_micro + 1"
            )
        )
        report = await integrity.check(database)
    assert {(each.column, each.stands - each.counted) for each in report.discrepancies} == {
        ("tokens.usd_micro", -1),
        ("usage_hours.usd_micro", 1),
    }


async def test_a_price_that_changes_while_a_request_runs(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """The running request keeps its price, later ones have the new one, rows never change."""
    upstream.respond_with(fixture_stream("chat").with_changes(delay=0.5), fixture_reply("chat"))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        running = asyncio.ensure_future(gateway.post(Format.CHAT, stream=True))
        while not upstream.requests:
            await asyncio.sleep(0.01)
        change_price(gateway, 100)
        assert (await running).status == 200
        await gateway.post(Format.CHAT)
        rows = await gateway.rows(2)
        assert [row.usd_micro for row in rows] == [44, 12 * 100 + 4 * 8]
        change_price(gateway, 7)
        assert [row.usd_micro for row in await gateway.rows(2)] == [44, 1232]
        tariffs = [row.tariff or "" for row in rows]
        assert "input 1, output 8" in tariffs[0] and "input 100, output 8" in tariffs[1]
        assert (await gateway.operations.check_integrity()).ok


async def test_a_budget_in_dollars_ends_the_use_of_a_key(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        limit_key(gateway, budget_usd_5h=150, budget=10**15)
        answers = [await gateway.post(Format.CHAT, max_tokens=4) for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
        error = (await answers[-1].json())["error"]
        assert error["code"] == "insufficient_quota"
        assert "5-hour budget of $0.00015: $0.000132 spent, $0 reserved" in error["message"]
        assert "; has room again at " in error["message"]
        assert answers[-1].headers["x-should-retry"] == "false"
        shift_clock(gateway, 5 * HOUR + 301)
        assert (await gateway.post(Format.CHAT, max_tokens=4)).status == 200


async def test_two_requests_at_once_at_the_edge_of_a_budget(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """There is room for one of them, in dollars."""
    upstream.respond_with(fixture_reply("chat").with_changes(delay=0.3))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        limit_key(gateway, budget_usd_week=60)
        first = start_request(gateway, Format.CHAT, max_tokens=4)
        while not upstream.requests:
            await asyncio.sleep(0.01)
        second = await gateway.post(Format.CHAT, max_tokens=4)
        assert second.status == 429
        (in_use,) = await gateway.operations.list_budgets()
        assert (in_use.budget.kind.name, in_use.budget.limit) == ("budget_usd_week", 60)
        assert (in_use.spent, in_use.reserved > 30) == (0, True)
        assert list(gateway.daemon.runtime.budget_statuses()) == [in_use]
        assert "weekly budget of $0.00006" in (await second.json())["error"]["message"]
        assert (await first).status == 200
        await gateway.rows(2)
        tracker = gateway.daemon.runtime.quota.budget(
            HolderKind.KEY, gateway.token.id, Currency.USD
        )
        assert (tracker.total, tracker.reserved) == (44, 0)


@pytest.mark.parametrize("later", [0, 4 * HOUR, 5 * HOUR + 301])
async def test_windows_continue_after_a_restart(
    upstream: ScriptedUpstream, tmp_path: Path, later: int
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with run_gateway(tmp_path, channels(upstream.address), models=MODELS) as gateway:
        for back in (6 * HOUR, 3 * HOUR, 0):
            shift_clock(gateway, -back)
            await gateway.post(Format.CHAT)
        await gateway.rows(3)
        before, quota = gateway.daemon.runtime.quota, Quota()
        await load_budgets(quota, gateway.operations.database)
        now = gateway.daemon.runtime.now() + later * 1_000_000
        for currency in Currency:
            for kind, id in ((HolderKind.KEY, gateway.token.id), (HolderKind.GROUP, "default")):
                ran, loaded = before.budget(kind, id, currency), quota.budget(kind, id, currency)
                for window in BudgetWindow:
                    assert loaded.spent(window, now) == ran.spent(window, now)
        key = quota.budget(HolderKind.KEY, gateway.token.id, Currency.USD)
        spent = {0: 88, 4 * HOUR: 44, 5 * HOUR + 301: 0}[later]
        assert key.spent(BudgetWindow.FIVE_HOURS, now) == spent
        assert key.spent(BudgetWindow.WEEK, now) == 132
