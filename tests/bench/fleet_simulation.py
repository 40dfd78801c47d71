"""`python -m tests.bench.fleet_simulation`: what bounds many replicas, from figures of a few.

A discrete simulation in steps of `STEP`, seeded: requests of keys with Zipf's popularity reach
replicas at random; each replica has leases of budgets, each server has a rate at which it works.
It has no network and no disk of its own. It finds which part is used up first, how often replicas
have to ask for leases, what refusals leases explain, and how long a lost replica is missed.
"""

from __future__ import annotations

import argparse
import math
import random
from bisect import bisect_left
from collections import deque
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Final

import orjson
from rich.console import Console
from rich.table import Table

STEP: Final = 0.1
"""Seconds."""
CLIENTS_IN_A_SAMPLE: Final = 20_000
"""Requests of one step that are drawn singly, at most; beyond it each stands for several."""


@dataclass(frozen=True, slots=True)
class Measured:
    """By `python -m tests.bench.fleet` on a virtual machine of two cores (docs/scaling.md)."""

    replica_rate: float = 2_800.0
    """Requests a second of one replica: 355 µs of a core for each."""
    script_rate: float = 16_000.0
    """Admissions a second of one Valkey, on its one thread: 62 µs each, with their settlements."""
    grant_seconds: float = 0.0015
    """One lease: its lock is held so long, which bounds the rate of one budget. Assumed."""
    server_rows: float = 6_700.0 * 8
    """Rows a second of one PostgreSQL with eight cores, sums included: 150 µs of a core each."""
    row_bytes: int = 1_580
    """Of a request and its attempt on disk, with indexes."""
    heartbeat_seconds: float = 0.0004
    """Of a PostgreSQL core for one heartbeat. Assumed."""


@dataclass(frozen=True, slots=True)
class Fleet:
    replicas: int
    rate: float
    """Requests a second, of all."""
    keys: int = 10_000
    limited: float = 1.0
    """Share of requests whose key has a rate limit."""
    budgeted: float = 1.0
    lease_seconds: float = 2.0
    """A lease is as large as what a replica used of the budget in that time."""
    least_lease: int = 8
    """Requests."""
    budget_seconds: float = 60.0
    """A key's budget is what it asks for in that time."""
    skew: float = 1.0
    """Exponent of Zipf's law."""
    expiry: float = 60.0
    lost: int = 1
    """Replicas that die in the middle."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`*_use` are shares of one server's capacity: more than 1 needs as many servers."""

    replicas: int
    rate: float
    replica_use: float
    valkey_use: float
    hottest_key: float
    """Its requests a second."""
    hottest_use: float
    """Of one thread of Valkey: keys cannot be divided."""
    grants: float
    """Leases a second."""
    hottest_grants: float
    grant_use: float
    """Of the lock of the hottest budget."""
    rows_use: float
    log_per_day: float
    """Bytes."""
    heartbeat_use: float
    connections: int
    stranded: float
    """Share of the budgets that other replicas had leased when a first request was refused."""
    overspent: int
    """Requests beyond the budget: 0, or the design is wrong."""
    missed: float
    """Share of all budgets that is missing until a lost replica expires."""


class Popularity:
    """Keys by rank, drawn in Zipf's proportions."""

    def __init__(self, keys: int, skew: float) -> None:
        weights = [1 / rank**skew for rank in range(1, keys + 1)]
        total = sum(weights)
        self.shares = [weight / total for weight in weights]
        self._sums = list(accumulate(self.shares))

    def draw(self, chance: random.Random) -> int:
        return min(bisect_left(self._sums, chance.random()), len(self._sums) - 1)


class Budget:
    """Of one key, in requests. `leases` are by replica; a grant takes as much as was used lately,
    at least a little, and at most a part of what is left."""

    __slots__ = ("granted_at", "is_used_up", "leases", "left", "limit", "spent")

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit
        self.spent = 0
        self.is_used_up = False
        self.leases: dict[int, int] = {}
        self.granted_at: dict[int, tuple[float, int]] = {}

    def grant(self, replica: int, now: float, fleet: Fleet) -> bool:
        if self.left <= 0:
            return False
        before, size = self.granted_at.get(replica, (now - fleet.lease_seconds, 0))
        pace = size / max(now - before, STEP)
        wanted = max(fleet.least_lease, round(pace * fleet.lease_seconds))
        # What is left is for all replicas: near its end the parts become small.
        size = max(1, min(wanted, self.left // (2 * len(self.leases) + 2)))
        self.left -= size
        self.leases[replica] = self.leases.get(replica, 0) + size
        self.granted_at[replica] = now, size
        return True

    def use(self, replica: int) -> bool:
        room = self.leases.get(replica, 0)
        if room > 0:
            self.leases[replica] = room - 1
            self.spent += 1
        return room > 0

    def lose(self, replica: int) -> int:
        """What the replica had, which is missing until its expiry."""
        return self.leases.pop(replica, 0)


class Simulation:
    def __init__(self, fleet: Fleet, measured: Measured, seconds: float, seed: int) -> None:
        self.fleet, self.measured, self.seconds = fleet, measured, seconds
        self.chance = random.Random(seed)
        self.popularity = Popularity(fleet.keys, fleet.skew)
        self.weight = max(1, math.ceil(fleet.rate * STEP / CLIENTS_IN_A_SAMPLE))
        """Requests that one drawn one stands for."""
        self.budgets = [
            Budget(max(1, round(share * fleet.rate / self.weight * fleet.budget_seconds)))
            for share in self.popularity.shares
        ]
        self.grants = self.lost = self.stranded = self.used_up = 0
        self.hottest_grants = 0
        self.dead: set[int] = set()
        self.returns: deque[tuple[float, Budget, int]] = deque()

    def run(self) -> Outcome:
        steps = round(self.seconds / STEP)
        for number in range(steps):
            now = number * STEP
            if number == steps // 2:
                self._lose_replicas(now)
            while self.returns and self.returns[0][0] <= now:
                _, budget, size = self.returns.popleft()
                budget.left += size
            for _ in range(round(self.fleet.rate * STEP / self.weight)):
                self._ask(now)
        return self._outcome()

    def _ask(self, now: float) -> None:
        key = self.popularity.draw(self.chance)
        replica = self.chance.randrange(self.fleet.replicas)
        while replica in self.dead:
            replica = self.chance.randrange(self.fleet.replicas)
        budget = self.budgets[key]
        if budget.use(replica):
            return
        if budget.grant(replica, now, self.fleet):
            self.grants += 1
            self.hottest_grants += key == 0
            budget.use(replica)
            return
        if not budget.is_used_up:
            budget.is_used_up = True
            self.stranded += sum(budget.leases.values())
            self.used_up += budget.limit

    def _lose_replicas(self, now: float) -> None:
        self.dead = set(range(min(self.fleet.lost, self.fleet.replicas - 1)))
        for budget in self.budgets:
            for replica in self.dead:
                if size := budget.lose(replica):
                    self.lost += size
                    self.returns.append((now + self.fleet.expiry, budget, size))

    def _outcome(self) -> Outcome:
        fleet, measured = self.fleet, self.measured
        hottest = fleet.rate * self.popularity.shares[0]
        grants = self.grants / self.seconds * fleet.budgeted
        hottest_grants = self.hottest_grants / self.seconds * fleet.budgeted
        return Outcome(
            replicas=fleet.replicas,
            rate=fleet.rate,
            replica_use=fleet.rate / fleet.replicas / measured.replica_rate,
            valkey_use=fleet.rate * fleet.limited / measured.script_rate,
            hottest_key=hottest,
            hottest_use=hottest * fleet.limited / measured.script_rate,
            grants=grants,
            hottest_grants=hottest_grants,
            grant_use=hottest_grants * measured.grant_seconds,
            rows_use=fleet.rate / measured.server_rows,
            log_per_day=fleet.rate * 86_400 * measured.row_bytes,
            heartbeat_use=fleet.replicas * measured.heartbeat_seconds,
            connections=fleet.replicas * 11,
            stranded=self.stranded / max(1, self.used_up),
            overspent=sum(max(0, each.spent - each.limit) for each in self.budgets),
            missed=self.lost / sum(each.limit for each in self.budgets),
        )


FLEETS: Final = (
    Fleet(4, 5_000),
    Fleet(100, 100_000),
    Fleet(1_000, 1_000_000),
)


def simulate(
    fleet: Fleet, measured: Measured | None = None, *, seconds: float = 6.0, seed: int = 1
) -> Outcome:
    """The same outcome for the same arguments."""
    return Simulation(fleet, measured or Measured(), seconds, seed).run()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet_simulation")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=6.0, help="of simulated time")
    arguments = parser.parse_args()
    outcomes = [simulate(fleet, seconds=arguments.seconds) for fleet in FLEETS]
    if arguments.json:
        print(orjson.dumps([asdict(each) for each in outcomes]).decode())
        return
    table = Table("", *(f"{each.replicas} replicas" for each in outcomes))
    for name in Outcome.__slots__:
        table.add_row(name, *(f"{getattr(each, name):,.4g}" for each in outcomes))
    Console().print(table)


if __name__ == "__main__":
    main()
