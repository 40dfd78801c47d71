"""The request log beside an export: sums by the parts of the export, and what differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, Final

from gateway.cli.reconcile.exports import Export, Line, base_name
from gateway.cli.reconcile.parts import Part, Parts
from gateway.config.schema import Config
from gateway.core.events import Usage
from gateway.quota.reconciliation import Billed, Cause, Own, base_tier, explain
from gateway.quota.repricing import Book, SettledRequest, stated_tier

_MARGIN: Final = 3600 * 1_000_000
"""Microseconds around an export in which requests with its ids are looked for."""

Record = dict[str, Any]
_COUNTS: Final = tuple(Usage.__annotations__)


class Comparison:
    """Sums of the log by the parts of an export. Times are Unix microseconds.

    A line that is the only one of its request is explained when the request's row comes, and only
    its id is kept: another row with it has no line."""

    def __init__(self, export: Export, config: Config, channels: Collection[str]) -> None:
        prices = {channel.name: channel.prices for channel in config.channels}
        self._book: Book = Book(config.models, prices, config.money)
        self._name, self._digits = export.name, export.digits
        self._first = min(line.start for line in export.lines)
        self._last = max(line.end for line in export.lines)
        self._lines = Parts(export.lines)
        margin = _MARGIN if self._lines.has_ids else 0
        self.since, self.until = self._first - margin, self._last + margin + 1
        self._own: dict[Part, dict[str, Own]] = defaultdict(lambda: defaultdict(Own))
        models = {line.model for line in export.lines}
        self._channels, self._known = set(channels), dict[str, SettledRequest]()
        for channel in config.channels:
            for id, upstream in channel.models.items():
                if (name := base_name(str(upstream))) in models:
                    if not channels:
                        self._channels.add(channel.name)
                    request = SettledRequest(id, channel.name, self._first, Usage(), "")
                    self._known.setdefault(name, request)
        self._own_cost, self._unpriced = 0, 0
        self._causes: dict[str, Record] = {}
        self._parts: list[Record] = []

    def add(self, row: Record) -> None:
        """Adds a row of the log to the part that it belongs to."""
        upstream, id = row["upstream_model"], row["upstream_id"]
        if row["channel"] not in self._channels or row["usage_source"] == "none" or not upstream:
            return
        model, started, single = base_name(upstream), row["started_at"], self._lines.single
        is_known, line = id in single, single.get(id)
        part = None if is_known else self._lines.shared_part(model, id, started)
        if not is_known and part is None and not self._first <= started <= self._last:
            return
        usage = Usage(**{name: row[name] for name in _COUNTS})
        tariff = row["tariff"] or ""
        request = SettledRequest(row["catalog_model"] or "", row["channel"], started, usage, tariff)
        tier = stated_tier(tariff)
        if (cost := self._book.vendor_cost(request, tier)) is None:
            self._unpriced += 1
            return
        self._own_cost += cost.usd
        if line is not None:
            model, started, single[id] = line.model, line.start, None
        self._known[model if part is None else part[0]] = request
        of_tiers = {base_tier(tier): Own()} if part is None else self._own[part]
        of_tiers[base_tier(tier)].add(usage, *cost)
        if part is None:
            lines = [] if line is None else [line]
            self._explain(model, started, id or row["id"], lines, of_tiers)

    def result(self) -> dict[str, Any]:
        """The findings by cause and by part, with the sums of both sides, in millionths. To be
        called once."""
        for id, line in self._lines.single.items():
            if line is not None:
                self._explain(line.model, line.start, id, [line], {})
        for part, lines in self._lines.shared.items():
            model, key = part
            own = self._own.get(part, {})
            self._explain(model, lines[0].start, key if isinstance(key, str) else None, lines, own)
        difference = sum((each["usd"] for each in self._causes.values()), Fraction(0))
        return {
            "export": self._name,
            "own": self._own_cost,
            "billed": self._own_cost + difference,
            "difference": difference,
            "unpriced": self._unpriced,
            "causes": sorted(self._causes.values(), key=lambda each: -abs(each["usd"])),
            "parts": sorted(self._parts, key=lambda each: -abs(each["usd"])),
        }

    def _explain(
        self, model: str, start: int, id: str | None, lines: list[Line], own: Mapping[str, Own]
    ) -> None:
        """Adds the findings of a part: a request, or a span of a model's. What is rounded has no
        part of its own: it could be each."""
        known, billed = self._known.get(model), [line.billed for line in lines]
        factor_of, price = partial(self._factor, known), partial(self._price, known)
        for cause, cost in explain(billed, own, factor_of, price, self._digits):
            total = self._causes.setdefault(cause, {"cause": cause, "lines": 0, "usd": 0})
            total["lines"] += 1
            total["usd"] += cost
            if cause is not Cause.ROUNDING:
                about = {"model": model, "id": id, "start": start}
                self._parts.append(about | {"cause": cause, "usd": cost})

    def _factor(self, known: SettledRequest | None, tier: str) -> Fraction:
        found = known and self._book.vendor_cost(known, tier)
        return found.terms.factor if found else Fraction(1)

    def _price(self, known: SettledRequest | None, line: Billed) -> Fraction:
        """What a line costs that no request of ours belongs to."""
        if line.cost is not None:
            return line.cost
        cost = known and self._book.vendor_cost(known._replace(usage=line.usage), line.tier)
        if cost is None:
            self._unpriced += 1
            return Fraction(0)
        return Fraction(cost.usd)
