"""Budgets continue after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest

from gateway.admission.budgets import load_budgets, load_dimension_budgets
from gateway.core.limits import MICRO_PER_UNIT, BudgetWindow, Cost, Limits
from gateway.errors import InsufficientQuota
from gateway.quota.leased_budgets import LeasedTracker
from gateway.quota.limits import Holder, HolderKind, Quota, ResourceRequest
from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.log.recorder import Recorder
from tests.quota.holders import spent
from tests.store.sample_rows import intent, settled, token
from tests.support.ledger_template import open_ledger


def moment(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * MICRO_PER_UNIT


NOW = moment("2026-11-21T12:00:00Z")


async def spend(recorder: Recorder, number: int, at: str, micro: int, token_id: str) -> None:
    started = moment(at)
    opened = intent(number, token_id, started_at=started, group_name="team")
    await recorder.record_intent(opened)
    recorder.record_settlement(settled(opened, cost_micro=micro))


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await open_ledger(tmp_path / "gateway.db")
    yield database
    await database.close()


@pytest.fixture
async def quota(database: Database) -> Quota:
    """One key with costs of this day, this month and before; another with old ones only."""
    await tokens.add_token(database, token(1))
    recorder = Recorder(database)
    await recorder.start()
    for number, (at, micro) in enumerate(
        [
            ("2026-11-21T11:59:59Z", 1),
            ("2026-11-21T00:00:00Z", 20),
            ("2026-11-20T23:59:59Z", 300),
            ("2026-11-01T00:00:00Z", 4_000),
            ("2026-10-31T23:59:59Z", 50_000),
        ]
    ):
        await spend(recorder, number, at, micro, "tok_0")
    await spend(recorder, 9, "2025-01-01T00:00:00Z", 7, "tok_1")
    await recorder.close()
    quota = Quota()
    await load_budgets(quota, database)
    return quota


@pytest.mark.parametrize(
    ("kind", "id", "sums"),
    [
        (HolderKind.KEY, "tok_0", (54_321, 4_321, 21)),
        (HolderKind.KEY, "tok_1", (7, 0, 0)),
        (HolderKind.KEY, "tok_2", (0, 0, 0)),
        (HolderKind.GROUP, "team", (54_328, 4_321, 21)),
        (HolderKind.GROUP, "default", (0, 0, 0)),
        (HolderKind.GATEWAY, "", (0, 0, 0)),
    ],
)
async def test_spent_amounts_are_loaded(
    quota: Quota, kind: HolderKind, id: str, sums: tuple[int, int, int]
) -> None:
    budget_tracker = quota.budget(kind, id)
    assert spent(budget_tracker, NOW) == sums
    assert budget_tracker.reserved == 0


@pytest.mark.parametrize(
    "limits",
    [
        {"budget": 54_321, "budget_day": 22, "budget_month": 9_999},
        {"budget": 60_000, "budget_day": 21},
        {"budget_month": 4_321},
    ],
)
async def test_budgets_continue_after_a_restart(quota: Quota, limits: dict[str, int]) -> None:
    holder = Holder(HolderKind.KEY, "tok_0", "laptop", Limits(**limits))
    with pytest.raises(InsufficientQuota):
        quota.acquire(ResourceRequest((holder,), NOW, 1, Cost(1)), now=0.0)


async def test_a_new_day_starts_after_a_restart(quota: Quota) -> None:
    budget_tracker = quota.budget(HolderKind.KEY, "tok_0")
    assert spent(budget_tracker, moment("2026-11-22T00:00:00Z")) == (54_321, 4_321, 0)
    assert spent(budget_tracker, moment("2026-12-01T00:00:00Z")) == (54_321, 0, 0)


@pytest.mark.parametrize(
    "wrong", ["2026-11-23T12:00:00Z", "1970-01-01T00:00:00Z", "2028-01-01T00:00:00Z"]
)
async def test_a_clock_that_is_wrong_at_the_start(quota: Quota, wrong: str) -> None:
    budget_tracker = quota.budget(HolderKind.KEY, "tok_0")
    assert spent(budget_tracker, moment(wrong))[2] == 0
    assert spent(budget_tracker, NOW) == (54_321, 4_321, 21)


async def test_what_end_users_have_spent_today_is_loaded(database: Database) -> None:
    """Of keys with such budgets, and of dimensions that have one."""
    trust = ("end-user", "session")
    limited = token(1, trust=trust, budget_usd_day_per_user=5)
    await tokens.add_tokens(database, [limited, token(2, trust=trust)])
    recorder = Recorder(database)
    await recorder.start()
    for number, (at, token_id, user, micro) in enumerate(
        [
            ("2026-11-20T23:59:59Z", "tok_1", "alice", 1),
            ("2026-11-21T00:00:00Z", "tok_1", "alice", 20),
            ("2026-11-21T11:59:59Z", "tok_1", "alice", 300),
            ("2026-11-21T11:59:59Z", "tok_1", "bob", 4_000),
            ("2026-11-21T11:59:59Z", "tok_2", "alice", 50_000),
            ("2026-11-22T00:00:00Z", "tok_1", "alice", 600_000),
        ]
    ):
        opened = intent(
            number,
            token_id,
            id=f"req_{moment(at):014x}{number:010x}",
            started_at=moment(at),
            end_user=user,
            session="one",
        )
        await recorder.record_intent(opened)
        recorder.record_settlement(settled(opened, cost_micro=0, usd_micro=micro))
    await recorder.close()
    quota = Quota()
    for _ in range(2):
        stated = await load_dimension_budgets(quota, database, NOW)
        assert sorted((key, each.end_user) for key, each in stated) == [
            ("tok_1", "alice"),
            ("tok_1", "bob"),
        ]
    day = {
        key: usage.budgets[1].spent(BudgetWindow.DAY, NOW) for key, usage in quota._usages.items()
    }
    assert day == {("end_user", "tok_1 alice"): 320, ("end_user", "tok_1 bob"): 4_000}
    assert await load_dimension_budgets(Quota(), database, NOW, "tok_2") == []
    assert await load_dimension_budgets(Quota(LeasedTracker), database, NOW) == []
