"""Rows get another cost with all their sums, and budgets keep what was charged."""

from __future__ import annotations

import pytest

from gateway.store.database import Database
from gateway.store.log import integrity
from gateway.store.log.costs import CostChange, change_costs, settled_rows
from gateway.store.log.pages import get_many
from gateway.store.log.recorder import Recorder
from gateway.store.log.spending import load_spend
from gateway.store.records import HOUR_US, RequestRow
from gateway.store.tokens import all_tokens
from tests.store.log.test_spending import at, ended

START = at("2026-02-01T00:00:00")


def change(row: RequestRow, after: int, before: int | None = None) -> CostChange:
    old = row.usd_micro if before is None else before
    key = row.token_id, row.group_name, row.catalog_model or "", row.channel or ""
    return CostChange(row.id, row.started_at, *key, old, after, "group 1; now")


@pytest.fixture
async def rows(database: Database, recorder: Recorder) -> list[RequestRow]:
    ends = [
        ended("2026-02-01T00:00:00", 5, 50),
        ended("2026-02-01T00:59:59", 7, 70),
        ended("2026-02-01T01:00:00", 9, 90, group="team"),
    ]
    rows = [row._replace(tariff="group 1; before") for row in ends]
    for row in rows:
        recorder.record_settlement(row)
    await recorder.close()
    return rows


async def test_sums_follow_and_budgets_do_not(database: Database, rows: list[RequestRow]) -> None:
    spent = await load_spend(database)
    changes = [change(rows[0], 500), change(rows[1], 0), change(rows[2], 91)]
    done = await database.write(lambda connection: change_costs(connection, changes))
    assert [each.id for each in done] == sorted(row.id for row in rows)
    found = await get_many(database, [row.id for row in rows])
    assert [found[row.id].usd_micro for row in rows] == [500, 0, 91]
    assert {row.tariff for row in found.values()} == {"group 1; now"}
    (token,) = await all_tokens(database)
    assert (token.usd_micro, token.cost_micro) == (591, 21)
    assert (await integrity.check(database)).discrepancies == ()
    now = await load_spend(database)
    for before, after in ((spent.tokens, now.tokens), (spent.groups, now.groups)):
        for holder, spend in before.items():
            kept = after[holder]
            assert (kept.total, kept.by_day, kept.by_hour) == (
                spend.total,
                spend.by_day,
                spend.by_hour,
            )
    back = [change(row, row.usd_micro, each.after) for row, each in zip(rows, changes, strict=True)]
    await database.write(lambda connection: change_costs(connection, back))
    assert (await load_spend(database)).tokens == spent.tokens
    assert (await integrity.check(database)).ok


async def test_a_row_whose_cost_has_changed_meanwhile_stays(
    database: Database, rows: list[RequestRow]
) -> None:
    changes = [change(rows[0], 500, before=49), change(rows[1], 71)]
    done = await database.write(lambda connection: change_costs(connection, changes))
    assert [each.id for each in done] == [rows[1].id]
    assert (await integrity.check(database)).ok


async def test_rows_are_read_in_parts(database: Database, rows: list[RequestRow]) -> None:
    first = await settled_rows(database, "", START + HOUR_US, 1)
    assert [row.id for row in first] == [rows[0].id]
    rest = await settled_rows(database, first[-1].id, START + HOUR_US, 9)
    assert [row.id for row in rest] == [rows[1].id], "the third is too young"
