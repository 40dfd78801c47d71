"""Requests get the prices of another book: by key and model, in parts, and never the budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.admin import repricing
from gateway.admin.repricing import Repriced, RepriceForm
from gateway.config.schema import Config
from gateway.core.formats import Format
from gateway.store.log.spending import load_spend
from gateway.store.records import HOUR_US
from tests.server.record.test_billing_tiers import MODELS, PRICE, answer, only
from tests.support.gateway import RunningGateway, run_gateway
from tests.support.upstream import ScriptedUpstream

LATER = 9 * HOUR_US
CASES = [
    (format, tier, fresh)
    for format in Format
    for tier, fresh in ((None, 8), ("priority", 8), ("fast", 8), ("flex", 9), (None, 9))
]


def prices(config: Config, **changes: Any) -> dict[str, Any]:
    """The book of a configuration, as JSON; `changes` are those of each model's price."""
    models = [
        model.model_dump(mode="json", by_alias=True, include={"id", "family", "price"})
        for model in config.models
    ]
    for model in models:
        model["price"] |= changes
    return {"models": models}


async def reprice(
    gateway: RunningGateway, book: dict[str, Any], *, dry_run: bool = False
) -> Repriced:
    form = RepriceForm.model_validate({"since": 0, "dry_run": dry_run, "prices": book})
    operations, database = gateway.operations, gateway.operations.database
    return await repricing.reprice(database, operations.audit, form, operations.now() + LATER)


async def serve(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    for format, tier, fresh in CASES:
        upstream.respond_with(answer(format, tier=tier, fresh=fresh))
        received = await gateway.post(format, model=f"model-{format}")
        assert received.status == 200, await received.text()
    await gateway.rows(len(CASES))


async def test_the_same_prices_change_nothing(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """Of every format, tier and length: the row says enough."""
    hours = [{"start": "00:00", "end": "24:00", "factor": 1.5}]
    dated = {"changes": [{"from": "2020-01-01", **PRICE, "requests": 3, "hours": hours}]}
    models = [each | {"price": PRICE | dated} for each in MODELS]
    lines = [only(format, upstream.address) for format in Format]
    lines[0] |= {"prices": {"model-chat": {"input": 5000, "output": 6000, "reasoning": 7000}}}
    async with run_gateway(tmp_path, lines, models=models) as gateway:
        await serve(gateway, upstream)
        config = gateway.daemon.runtime.config
        book = prices(config) | {"channels": {config.channels[0].name: lines[0]["prices"]}}
        result = await reprice(gateway, book)
        assert (result.rows, result.kept, result.differences) == (len(CASES), 0, [])


async def test_other_prices(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    lines = [only(format, upstream.address) for format in Format]
    async with run_gateway(tmp_path, lines, models=MODELS) as gateway:
        await serve(gateway, upstream)
        database, config = gateway.operations.database, gateway.daemon.runtime.config
        before, spent = await gateway.rows(), await load_spend(database)
        doubled = [{"tokens": 12, "input": 4000, "output": 20_000}]
        book = prices(config, input=2000, output=16_000, cache_read=200, above=doubled)
        tried = await reprice(gateway, book, dry_run=True)
        assert await gateway.rows() == before
        result = await reprice(gateway, book)
        assert result == tried
        assert {(each.key, each.model, each.rows) for each in result.differences} == {
            (gateway.token.id, model["id"], 5) for model in MODELS
        }
        assert all(each.usd_after == 2 * each.usd_before for each in result.differences)
        after = await gateway.rows()
        assert [row.usd_micro for row in after] == [2 * row.usd_micro for row in before]
        assert all("input 2000" in (row.tariff or "") for row in after[:1])
        assert "service tier priority: times 2" in (after[1].tariff or "")
        token = await gateway.operations.get_key(gateway.token.id)
        assert token.usd_micro == sum(row.usd_micro for row in after)
        assert (await gateway.operations.check_integrity()).ok
        assert (await load_spend(database)).tokens[token.id].total == spent.tokens[token.id].total
        assert (await reprice(gateway, book)).differences == []


@pytest.mark.parametrize("limit", [1, 4])
async def test_each_call_does_a_part(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(repricing, "_BATCH", limit)
    monkeypatch.setattr(repricing, "_MAX_ROWS", limit)
    lines = [only(format, upstream.address) for format in Format]
    async with run_gateway(tmp_path, lines, models=MODELS) as gateway:
        await serve(gateway, upstream)
        operations = gateway.operations
        book = prices(gateway.daemon.runtime.config, input=3000)
        rows, after, calls = 0, "", 0
        while after is not None:
            form = RepriceForm.model_validate({"since": 0, "after": after, "prices": book})
            part = await repricing.reprice(
                operations.database, operations.audit, form, operations.now() + LATER
            )
            rows, after, calls = rows + part.rows, part.after, calls + 1
            assert part.rows <= limit
            assert (await operations.check_integrity()).ok
        assert (rows, calls) == (len(CASES), len(CASES) // limit + 1)


async def test_young_requests_and_models_without_a_price_keep_their_cost(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    lines = [only(format, upstream.address) for format in Format]
    async with run_gateway(tmp_path, lines, models=MODELS) as gateway:
        await serve(gateway, upstream)
        assert (await reprice(gateway, {"models": []})).kept == len(CASES)
        form = RepriceForm.model_validate({"since": 0, "prices": {"models": []}})
        operations = gateway.operations
        young = await repricing.reprice(
            operations.database, operations.audit, form, operations.now()
        )
        assert young.rows == 0
