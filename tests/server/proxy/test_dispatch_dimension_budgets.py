"""Budgets of each end user and each session of a key."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.admission import dimensions
from gateway.core.formats import Format
from gateway.core.limits import MICRO_PER_UNIT, BudgetWindow
from gateway.quota.limits import HolderKind
from gateway.store.records import BUDGET_DIMENSIONS, dimension_holder_id
from tests.server.format_pairs import PAIRS, TERMINAL, OpenGateway
from tests.server.key_limits import read_error, shift_clock, wait_all_released
from tests.server.proxy.test_dispatch_budgets import broke, plain_gateway
from tests.server.record.test_billing_reservations import LIMIT, MODELS, endless_stream
from tests.server.record.test_billing_tiers import MODELS as PRICED
from tests.server.record.test_billing_tiers import only
from tests.support.gateway import BETA, RunningGateway, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

COST = 16 * MICRO_PER_UNIT
"""Of one reply to the prompt of `ask`."""
USER, SESSION = "x-user", "x-session-id"
ALICE = "alice@example.org"


@pytest.fixture
async def gateway(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    upstream.respond_with(fixture_reply("chat"))
    async with plain_gateway(upstream, tmp_path) as gateway:
        yield gateway


async def set_budgets(gateway: RunningGateway, **units: int | None) -> None:
    settings: Any = {
        name: None if number is None else number * MICRO_PER_UNIT for name, number in units.items()
    }
    trust = (f"end-user={USER}", "session")
    await gateway.operations.update_key(gateway.token.id, trust=trust, **settings)


async def ask(
    gateway: RunningGateway, user: str | None, session: str | None = None, *, max_tokens: int = 4
) -> int:
    stated = {USER: user, SESSION: session}
    headers = {name: text for name, text in stated.items() if text is not None}
    return (await gateway.post(Format.CHAT, max_tokens=max_tokens, headers=headers)).status


def known(gateway: RunningGateway) -> int:
    """End users and sessions of which the gateway knows what they have spent."""
    return sum(kind in BUDGET_DIMENSIONS for kind, _ in gateway.daemon.runtime.quota._usages)


async def test_each_end_user_has_a_budget_of_its_own(gateway: RunningGateway) -> None:
    await set_budgets(gateway, budget_day_per_user=40)
    assert [await ask(gateway, ALICE) for _ in range(3)] == [200, 200, 429]
    assert [await ask(gateway, "bob") for _ in range(3)] == [200, 200, 429]
    assert [await ask(gateway, None) for _ in range(4)] == [200] * 4, "they state nothing"
    spent = Counter[str | None]()
    for row in await gateway.rows(10):
        spent[row.end_user] += row.cost_micro
    assert spent == {ALICE: 2 * COST, "bob": 2 * COST, None: 4 * COST}
    await set_budgets(gateway, budget_day_per_user=None)
    assert await ask(gateway, ALICE) == 200


async def test_end_user_and_session_have_one_each(gateway: RunningGateway) -> None:
    await set_budgets(gateway, budget_day_per_user=70, budget_day_per_session=40)
    assert [await ask(gateway, ALICE, "one") for _ in range(3)] == [200, 200, 429]
    assert [await ask(gateway, ALICE, "two") for _ in range(3)] == [200, 200, 429]
    assert await ask(gateway, ALICE, "three") == 429
    assert await ask(gateway, "bob", "three") == 200


@pytest.mark.parametrize("format", Format)
async def test_the_error_names_the_budget(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    await set_budgets(gateway, budget_day_per_user=40, budget_day_per_session=400)
    assert [await ask(gateway, ALICE) for _ in range(2)] == [200, 200]
    answer = await gateway.post(format, headers={USER: ALICE, SESSION: "one"})
    error = await read_error(answer)
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    cost = re.findall(r"may cost ([\d.,]+);", error.message)[0]
    assert error == broke(
        format,
        "this end user: daily budget of 40 units: 32 spent, 0 reserved by running requests, this "
        f"request may cost {cost}; resets at {tomorrow}T00:00:00Z",
    )
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["x-gateway-budget-window"] == "day"
    assert answer.headers["x-gateway-budget-remaining"] == "8"
    assert ALICE not in error.message
    assert len(upstream.requests) == 2
    assert (await gateway.rows(3))[-1].error_code == "insufficient_quota"


@pytest.mark.parametrize(("client_format", "upstream_format"), PAIRS)
async def test_a_stream_ends_where_the_budget_is_spent(
    behind: OpenGateway, upstream: ScriptedUpstream, client_format: Format, upstream_format: Format
) -> None:
    upstream.respond_with(endless_stream(upstream_format))
    async with behind(upstream_format, models=MODELS) as gateway:
        await set_budgets(gateway, budget_day_per_session=140)
        answer = await gateway.post(
            client_format,
            stream=True,
            model=BETA,
            headers={SESSION: "one"},
            **LIMIT[client_format],
        )
        body = await answer.read()
        assert TERMINAL[client_format] not in body
        name = b"billing_error" if client_format is Format.MESSAGES else b"insufficient_quota"
        assert name in body
        assert b"this session: daily budget of 140 units" in body
        row = await gateway.row()
        await wait_all_released(gateway)
    # It is exceeded by what one read of the upstream brings.
    assert 100 * MICRO_PER_UNIT < row.cost_micro <= 190 * MICRO_PER_UNIT


async def test_many_requests_at_a_time_spend_no_more(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat").with_changes(delay=0.1))
    await set_budgets(gateway, budget_day_per_user=100)
    users = [f"user {number % 5}" for number in range(200)]
    statuses = await asyncio.gather(*(ask(gateway, user, max_tokens=10) for user in users))
    assert set(statuses) == {200, 429}
    served = Counter(user for user, status in zip(users, statuses, strict=True) if status == 200)
    assert served.keys() == set(users)
    quota, now = gateway.daemon.runtime.quota, gateway.daemon.runtime.now()
    for user, count in served.items():
        tracker = quota.budget(HolderKind.END_USER, dimension_holder_id(gateway.token.id, user))
        assert (tracker.reserved, tracker.spent(BudgetWindow.DAY, now)) == (0, count * COST)
        assert count * COST <= 100 * MICRO_PER_UNIT


async def test_a_restart_forgets_nothing(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with plain_gateway(upstream, tmp_path) as gateway:
        await set_budgets(gateway, budget_day_per_user=40)
        key, token = gateway.key, gateway.token
        assert [await ask(gateway, ALICE, "one") for _ in range(2)] == [200, 200]
    async with plain_gateway(upstream, tmp_path) as gateway:
        assert known(gateway) == 1, "sessions of this key have no budgets"
        statuses = [
            (await gateway.post(Format.CHAT, key=key, max_tokens=4, headers={USER: user})).status
            for user in (ALICE, "bob")
        ]
        assert statuses == [429, 200]
        changed = await gateway.operations.update_key(token.id, budget_day_per_user=None)
        assert changed.budget_day_per_user is None


async def test_a_new_budget_knows_what_was_spent_today(gateway: RunningGateway) -> None:
    await set_budgets(gateway)
    assert [await ask(gateway, ALICE) for _ in range(3)] == [200] * 3
    assert known(gateway) == 0
    await set_budgets(gateway, budget_day_per_user=40)
    assert [await ask(gateway, ALICE), await ask(gateway, "bob")] == [429, 200]


async def test_a_day_ends_with_its_trackers(gateway: RunningGateway) -> None:
    await set_budgets(gateway, budget_day_per_user=20)
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0) + timedelta(days=1)
    assert [await ask(gateway, ALICE), await ask(gateway, "bob")] == [200, 200]
    shift_clock(gateway, (midnight - now).total_seconds() + 1)
    assert [await ask(gateway, ALICE), await ask(gateway, ALICE)] == [200, 429]
    assert known(gateway) == 2, "requests of yesterday may still begin to run"
    shift_clock(gateway, (midnight - now).total_seconds() + 3_601)
    assert await ask(gateway, ALICE) == 429
    assert known(gateway) == 1, "of bob nothing is kept"


async def test_values_that_are_too_many_share_a_budget(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dimensions, "MAX_VALUES", 2)
    await set_budgets(gateway, budget_day_per_user=40)
    users = ["one", "two", "three", "four", "five"]
    assert [await ask(gateway, user) for user in users] == [200, 200, 200, 200, 429]
    assert [row.end_user for row in await gateway.rows(5)] == ["one", "two", *["other"] * 3]


async def test_endpoints_that_pass_through(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    line = only(Format.CHAT, upstream.address) | {"endpoints": ["embeddings"]}
    usage = {"prompt_tokens": 16, "total_tokens": 16}
    upstream.respond_with(json_response({"object": "list", "data": [], "usage": usage}))
    async with run_gateway(tmp_path, [line], models=PRICED[:1]) as gateway:
        await set_budgets(gateway, budget_day_per_user=0)
        body = {"model": PRICED[0]["id"], "input": "Hi"}
        statuses = [
            (await gateway.post(Format.CHAT, body, path="/v1/embeddings", headers=headers)).status
            for headers in ({USER: ALICE}, {})
        ]
        assert statuses == [429, 200]
