"""A month of requests, the log of them, and a vendor's bill with planted differences.

Its arithmetic is its own. Amounts are in millionths of a dollar.
"""

from __future__ import annotations

import csv
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from io import StringIO
from typing import Any

START = 1_791_000_000 - 1_791_000_000 % 86_400
"""Unix seconds."""
HOUR = 3600
PRICES = {"large": (3, 15, Fraction(3, 10)), "small": (Fraction(1, 4), 2, Fraction(1, 40))}
"""Of a million tokens: fresh input, output, cached input."""
TIERS = {"default": 1, "priority": 2, "flex": Fraction(1, 2)}


@dataclass(frozen=True)
class Request:
    id: str
    model: str
    at: int
    input: int
    cached: int
    output: int
    tier: str = "default"

    @property
    def cost(self) -> Fraction:
        fresh, out, read = PRICES[self.model]
        tokens = (self.input - self.cached) * fresh + self.cached * read + self.output * out
        return Fraction(tokens) * TIERS[self.tier]


@dataclass
class Planted:
    """`log` is what the gateway has, `bill` what the vendor has; `causes` the part of the
    difference of each cause, `lines` how often it was planted."""

    log: list[Request] = field(default_factory=list)
    bill: list[tuple[Request, Fraction]] = field(default_factory=list)
    causes: defaultdict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    lines: Counter[str] = field(default_factory=Counter)

    def _found(self, cause: str, cost: Fraction) -> None:
        self.causes[cause] += cost
        self.lines[cause] += 1

    def add(self, ours: Request, cause: str | None, chance: random.Random) -> None:
        theirs, cost = ours, None
        if cause == "tier":
            theirs = replace(ours, tier="priority" if ours.tier == "default" else "default")
        elif cause == "cache":
            theirs = replace(ours, cached=ours.cached // 2)
        elif cause == "count":
            theirs = replace(ours, output=ours.output + chance.randint(1, 50))
        elif cause == "price":
            cost = ours.cost + 1000
        if cause != "not ours":
            self.log.append(ours)
        if cause != "lost":
            self.bill.append((theirs, theirs.cost if cost is None else cost))
        if cause is not None:
            before = 0 if cause == "not ours" else ours.cost
            after = 0 if cause == "lost" else self.bill[-1][1]
            self._found(cause, Fraction(after - before))


def plant(
    seed: int, number: int, causes: tuple[str, ...], *, one_in: int = 20, hours: bool = False
) -> Planted:
    """With `hours` each hour has one model's requests, and one cause at most."""
    chance, planted = random.Random(seed), Planted()
    cause: str | None = None
    for index in range(number):
        at = START + index * (30 * 24 * HOUR // number)
        hour = (at - START) // HOUR
        model = ("large", "small")[hour % 2 if hours else chance.randrange(2)]
        if not hours or not planted.log or planted.log[-1].at // HOUR != at // HOUR:
            cause = chance.choice(causes) if chance.randrange(one_in) == 0 else None
        size = chance.randint(2, 5000) * 2
        request = Request(
            f"gen-{seed}-{index}",
            model,
            at,
            size,
            chance.randrange(size // 2) * 2 if cause != "cache" else size,
            chance.randint(1, 900),
            chance.choice(list(TIERS)) if not hours else "default",
        )
        planted.add(request, cause, chance)
    return planted


def by_request(planted: Planted) -> str:
    """CSV of a line for each request, with costs to the millionth."""
    columns = ["id", "start", "model", "input", "cache_read", "output", "tier", "cost"]
    rows = []
    for each, cost in planted.bill:
        name, dollars = f"{each.model}-2026-05-01", f"{float(cost / 10**6):.6f}"
        counts = (each.input, each.cached, each.output)
        rows.append((each.id, each.at, name, *counts, each.tier, dollars))
    return _csv(columns, rows)


def by_hour(planted: Planted) -> str:
    """CSV of a line for each hour and model, with costs in cents."""
    sums: dict[tuple[str, int], list[Any]] = defaultdict(lambda: [0, 0, 0, 0, Fraction(0)])
    for each, cost in planted.bill:
        found = sums[each.model, each.at // HOUR * HOUR]
        for index, count in enumerate((1, each.input, each.cached, each.output, cost)):
            found[index] += count
    columns = ["start", "model", "requests", "input", "cache_read", "output", "cost"]
    rows = [
        (datetime.fromtimestamp(at, UTC).isoformat(), model, *counts, f"{float(cost / 10**6):.2f}")
        for (model, at), (*counts, cost) in sums.items()
    ]
    return _csv(columns, rows)


def openai_usage(planted: Planted) -> dict[str, Any]:
    """The vendor's JSON by day, of tokens alone."""
    days: dict[int, dict[tuple[str, str], Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for each, _ in planted.bill:
        counts = days[each.at // 86_400 * 86_400][each.model, each.tier]
        counts["num_model_requests"] += 1
        counts["input_tokens"] += each.input
        counts["input_cached_tokens"] += each.cached
        counts["output_tokens"] += each.output
    data = [
        {
            "object": "bucket",
            "start_time": day,
            "end_time": day + 86_400,
            "results": [
                {"object": "usage", "model": model, "service_tier": tier, "batch": False, **counts}
                for (model, tier), counts in found.items()
            ],
        }
        for day, found in days.items()
    ]
    return {"object": "page", "data": data}


def anthropic_usage(planted: Planted) -> dict[str, Any]:
    """The vendor's JSON by hour; it does not count requests."""
    hours: dict[int, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for each, _ in planted.bill:
        counts = hours[each.at // HOUR * HOUR][each.model]
        counts["uncached_input_tokens"] += each.input - each.cached
        counts["cache_read_input_tokens"] += each.cached
        counts["output_tokens"] += each.output
    created = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
    return {
        "data": [
            {
                "starting_at": f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}",
                "ending_at": f"{datetime.fromtimestamp(at + HOUR, UTC):%Y-%m-%dT%H:%M:%SZ}",
                "results": [
                    {"model": model, "cache_creation": created, **counts}
                    for model, counts in found.items()
                ],
            }
            for at, found in hours.items()
        ],
        "has_more": False,
    }


def _csv(columns: list[str], rows: list[Any]) -> str:
    out = StringIO()
    writer = csv.writer(out)
    writer.writerows([columns, *rows])
    return out.getvalue()
