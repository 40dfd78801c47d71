"""What a ledger with leases must never show, counted again from its rows in the simplest way."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import asyncpg

from gateway.core.limits import BUDGETS, BudgetKind, BudgetWindow, Cost, Currency, Limits

STEP, HOUR, DAY = 300_000_000, 3_600_000_000, 86_400_000_000

HolderKey = tuple[str, str]


class Spent(NamedTuple):
    """What a row was charged, and when it began."""

    at: int
    cost: Cost


@dataclass(slots=True)
class Ledger:
    """Of one moment: the server's time, what each holder has spent, and what is leased, at least 0
    of each replica."""

    now: int
    spent: dict[HolderKey, list[Spent]]
    leased: dict[HolderKey, Cost]
    rows: dict[str, tuple[str, Cost]]
    """States and costs by id."""

    def used(self, holder: HolderKey, kind: BudgetKind) -> int:
        """Spent and leased of a budget now."""
        number = list(Currency).index(kind.currency)
        spent = in_window(self.spent.get(holder, ()), kind.window, self.now, number)
        return spent + self.leased.get(holder, Cost())[number]


def in_window(spent: Iterable[Spent], window: BudgetWindow, now: int, number: int) -> int:
    return sum(each.cost[number] for each in spent if _is_in(each.at, window, now))


def _is_in(at: int, window: BudgetWindow, now: int) -> bool:
    match window:
        case BudgetWindow.DAY:
            return at // DAY == now // DAY
        case BudgetWindow.MONTH:
            return _month(at) == _month(now)
        case BudgetWindow.FIVE_HOURS:
            return now // STEP - 60 <= at // STEP
        case BudgetWindow.WEEK:
            return now // HOUR - 168 <= at // HOUR
        case _:
            return True


def _month(at: int) -> int:
    month = datetime.fromtimestamp(at // 1_000_000, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    return int(month.timestamp()) * 1_000_000


async def read_ledger(connection: asyncpg.Connection) -> Ledger:
    """Asserts too that all sums of spending are those of the rows."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        now = await connection.fetchval(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        )
        rows = await connection.fetch(
            "SELECT id, state, token_id, group_name, started_at, cost_micro, usd_micro"
            " FROM requests"
        )
        leases = await connection.fetch("SELECT * FROM budget_leases")
        sums = await connection.fetch("SELECT * FROM spending WHERE units <> 0 OR usd <> 0")
    spent = defaultdict[HolderKey, list[Spent]](list)
    for row in rows:
        if row["state"] != "running":
            charged = Spent(row["started_at"], Cost(row["cost_micro"], row["usd_micro"]))
            spent["key", row["token_id"]].append(charged)
            spent["group", row["group_name"]].append(charged)
    leased = defaultdict[HolderKey, Cost](Cost)
    for kind, id, _, *amounts in leases:
        key = kind, id
        leased[key] = Cost(
            *(old + max(0, new) for old, new in zip(leased[key], amounts, strict=True))
        )
    assert {tuple(row)[:4]: Cost(*tuple(row)[4:]) for row in sums} == _sums_of(spent)
    costs = {row["id"]: (row["state"], Cost(row["cost_micro"], row["usd_micro"])) for row in rows}
    return Ledger(now, spent, leased, costs)


def _sums_of(spent: Mapping[HolderKey, Sequence[Spent]]) -> dict[tuple[str, str, str, int], Cost]:
    sums: tuple[Counter[tuple[str, str, str, int]], ...] = Counter(), Counter()
    for (kind, id), charged in spent.items():
        for at, cost in charged:
            starts = {"total": 0, "month": _month(at)}
            starts |= {"day": at - at % DAY, "hour": at - at % HOUR, "step": at - at % STEP}
            for period, start in starts.items():
                for number, amount in enumerate(cost):
                    sums[number][kind, id, period, start] += amount
    keys = {key for each in sums for key, amount in each.items() if amount}
    return {key: Cost(sums[0][key], sums[1][key]) for key in keys}


@dataclass(slots=True)
class Bounds:
    """What may be spent and leased of each budget at most.

    It may grow up to the highest limit that any replica knows at that time. A limit that was
    lowered excuses what was spent and leased before, and nothing that is added. Beyond that may be
    charged what was not set aside: `charged_beyond`, by replica until all of its requests have
    ended, where a request costs more than it has reserved, or began without a budget.
    """

    charged_beyond: Counter[tuple[str, HolderKey, Currency]] = field(default_factory=Counter)
    _before: dict[tuple[HolderKey, str], int] = field(default_factory=dict)

    def check(self, ledger: Ledger, limits: Mapping[HolderKey, Sequence[Limits]]) -> list[str]:
        """`limits` of each holder as replicas know them. Returns what is used of those in force."""
        lines = []
        for holder, known in limits.items():
            for name, kind in BUDGETS.items():
                used = ledger.used(holder, kind)
                bound = self._bound(holder, kind, known)
                line = f"{' '.join(holder)} {name}: {used} spent and leased of {bound}"
                assert used <= bound, line
                if bound < math.inf:
                    lines.append(line)
                self._before[holder, name] = used
        return lines

    def _bound(self, holder: HolderKey, kind: BudgetKind, known: Sequence[Limits]) -> float:
        limits = (getattr(each, kind.name) for each in known)
        limit = max(math.inf if each is None else each for each in limits)
        beyond = sum(
            amount
            for (_, of, currency), amount in self.charged_beyond.items()
            if (of, currency) == (holder, kind.currency)
        )
        return max(limit, self._before.get((holder, kind.name), 0)) + beyond

    def all_ended(self, replica: str) -> None:
        """Of this replica, before the last check: no more can be charged beyond its leases."""
        for key in [each for each in self.charged_beyond if each[0] == replica]:
            del self.charged_beyond[key]
