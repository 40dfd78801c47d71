"""The request log beside an export: sums by the parts of the export, and what differs."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, Final

from gateway.cli.reconcile.exports import Export, Line, base_name
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

    What an export says of single requests is explained as soon as their rows come, so that only
    what has no other side yet, and sums of spans, take memory."""

    def __init__(self, export: Export, config: Config, channels: Collection[str]) -> None:
        prices = {channel.name: channel.prices for channel in config.channels}
        self._book: Book = Book(config.models, prices, config.money)
        self._name, self._digits = export.name, export.digits
        self._first = min(line.start for line in export.lines)
        self._last = max(line.end for line in export.lines)
        self._requests: dict[str, list[Line]] = {}
        self._spans: dict[str, dict[int, list[Line]]] = defaultdict(lambda: defaultdict(list))
        for line in export.lines:
            if line.id is None:
                self._spans[line.model][line.start].append(line)
            else:
                self._requests.setdefault(line.id, []).append(line)
        self._starts = {model: sorted(spans) for model, spans in self._spans.items()}
        margin = _MARGIN if self._requests else 0
        self.since, self.until = self._first - margin, self._last + margin + 1
        self._own: dict[tuple[str, int], dict[str, Own]] = defaultdict(lambda: defaultdict(Own))
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
        lines = self._requests.get(id) if id else None
        model, started = lines[0].model if lines else base_name(upstream), row["started_at"]
        span = None if lines else self._span(model, started)
        if not lines and span is None and not self._first <= started <= self._last:
            return
        usage = Usage(**{name: row[name] for name in _COUNTS})
        tariff = row["tariff"] or ""
        request = SettledRequest(row["catalog_model"] or "", row["channel"], started, usage, tariff)
        tier = stated_tier(tariff)
        if (cost := self._book.vendor_cost(request, tier)) is None:
            self._unpriced += 1
            return
        self._own_cost += cost.usd
        self._known[model] = request
        of_tiers = {base_tier(tier): Own()} if span is None else self._own[model, span]
        of_tiers[base_tier(tier)].add(usage, *cost)
        if span is None:
            self._requests.pop(id, None)
            self._explain(model, started, id or row["id"], lines or [], of_tiers)

    def _span(self, model: str, started: int) -> int | None:
        """Returns the start of the span of the export in which a request is."""
        starts = self._starts.get(model, [])
        index = bisect_right(starts, started) - 1
        if index < 0 or started >= max(line.end for line in self._spans[model][starts[index]]):
            return None
        return starts[index]

    def result(self) -> dict[str, Any]:
        """The findings by cause and by part, with the sums of both sides, in millionths. To be
        called once."""
        for id, lines in self._requests.items():
            self._explain(lines[0].model, lines[0].start, id, lines, {})
        for model, spans in self._spans.items():
            for start, lines in spans.items():
                self._explain(model, start, None, lines, self._own[model, start])
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
