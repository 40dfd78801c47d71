"""The request log beside an export: sums by the parts of the export, and what differs."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from functools import partial
from typing import Any, Final

from gateway.cli.reconcile.exports import Export, base_name
from gateway.config.schema import Config
from gateway.core.events import Usage
from gateway.quota.reconciliation import Billed, Own, base_tier, explain
from gateway.quota.repricing import Book, SettledRequest, stated_tier

_MARGIN: Final = 3600 * 1_000_000
"""Microseconds around an export in which requests with its ids are looked for."""

Record = dict[str, Any]
_Part = tuple[str, int | str]
"""A model, and the id of a request or the start of a span."""


class Comparison:
    """Sums of the log by the parts of an export. Times are Unix microseconds."""

    def __init__(self, export: Export, config: Config, channels: Iterable[str]) -> None:
        prices = {channel.name: channel.prices for channel in config.channels}
        self._book: Book = Book(config.models, prices, config.money)
        self._export, self._only = export, frozenset(channels)
        self._billed: dict[_Part, list[Billed]] = defaultdict(list)
        self._spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._ids = {line.id: line.model for line in export.lines if line.id is not None}
        for line in export.lines:
            self._billed[line.model, line.id or line.start].append(line.billed)
            if line.id is None:
                self._spans[line.model].append((line.start, line.end))
        for spans in self._spans.values():
            spans[:] = sorted(set(spans))
        self._first = min(line.start for line in export.lines)
        self._last = max(line.end for line in export.lines)
        margin = _MARGIN if self._ids else 0
        self.since, self.until = self._first - margin, self._last + margin + 1
        self._own: dict[_Part, dict[str, Own]] = {}
        self._known: dict[str, SettledRequest] = {}
        self._starts: dict[_Part, int] = {
            (line.model, line.id or line.start): line.start for line in export.lines
        }
        self._channels: set[str] = set()
        self._models = {line.model for line in export.lines}
        for channel in config.channels:
            for id, upstream in channel.models.items():
                if (name := base_name(str(upstream))) in self._models:
                    self._channels.add(channel.name)
                    self._known.setdefault(
                        name, SettledRequest(id, channel.name, self._first, Usage(), "")
                    )
        self.own_cost, self.unpriced = Fraction(0), 0

    def add(self, row: Record) -> None:
        """Adds a row of the log to the part that it belongs to."""
        is_listed = row["channel"] in (self._only or self._channels)
        if not is_listed or row["usage_source"] == "none" or not row["upstream_model"]:
            return
        usage = Usage(**{name: row[name] for name in Usage.__annotations__})
        model, tariff = row["catalog_model"] or "", row["tariff"] or ""
        request = SettledRequest(model, row["channel"], row["started_at"], usage, tariff)
        tier = stated_tier(tariff)
        if (part := self._part(row)) is None:
            return
        if (cost := self._book.vendor_cost(request, tier)) is None:
            self.unpriced += 1
            return
        self.own_cost += cost.usd
        tiers = self._own.setdefault(part, {})
        tiers.setdefault(base_tier(tier), Own()).add(usage, *cost)
        self._starts.setdefault(part, row["started_at"])
        self._known[part[0]] = request

    def _part(self, row: Record) -> _Part | None:
        """The part of the export, or of what is missing there; None for what is not in its time."""
        model, started = base_name(row["upstream_model"]), row["started_at"]
        if (id := row["upstream_id"]) in self._ids:
            return self._ids[id], id
        spans = self._spans.get(model, [])
        index = bisect_right(spans, (started, self.until)) - 1
        if index >= 0 and started < spans[index][1]:
            return model, spans[index][0]
        if not self._first <= started <= self._last:
            return None
        return model, id or row["id"]

    def result(self) -> dict[str, Any]:
        """The findings by cause and by part, with the sums of both sides, in millionths."""
        causes: dict[str, Record] = {}
        parts: list[Record] = []
        for part in {**self._billed, **self._own}:
            model, id = part
            known, billed = self._known.get(model), self._billed.get(part, [])
            factor_of, price = partial(self._factor, known), partial(self._price, known)
            own = self._own.get(part, {})
            for each in explain(billed, own, factor_of, price, self._export.digits):
                total = causes.setdefault(each.cause, {"cause": each.cause, "lines": 0, "usd": 0})
                total["lines"] += 1
                total["usd"] += each.cost
                found = {"model": model, "id": id if isinstance(id, str) else None}
                start = self._starts[part]
                parts.append(found | {"start": start, "cause": each.cause, "usd": each.cost})
        difference = sum((each["usd"] for each in causes.values()), Fraction(0))
        return {
            "export": self._export.name,
            "own": self.own_cost,
            "billed": self.own_cost + difference,
            "difference": difference,
            "unpriced": self.unpriced,
            "causes": sorted(causes.values(), key=lambda each: -abs(each["usd"])),
            "parts": sorted(parts, key=lambda each: -abs(each["usd"])),
        }

    def _factor(self, known: SettledRequest | None, tier: str) -> Fraction:
        found = known and self._book.vendor_cost(known, tier)
        return found.factor if found else Fraction(1)

    def _price(self, known: SettledRequest | None, line: Billed) -> Fraction:
        """What a line costs that no request of ours belongs to."""
        if line.cost is not None:
            return line.cost
        cost = known and self._book.vendor_cost(known._replace(usage=line.usage), line.tier)
        if cost is None:
            self.unpriced += 1
            return Fraction(0)
        return Fraction(cost.usd)
