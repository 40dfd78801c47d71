"""What was spent over time: of a whole span, and of its most expensive keys, models or groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from urllib.parse import urlencode

from gateway.admin.units import format_units, format_usd
from gateway.console.charts import Bucket, Chart, Series, bucket_label, build_chart, short_number
from gateway.console.time_range import TimeRange
from gateway.core.limits import MICRO_PER_UNIT, Cost
from gateway.quota.budgets import format_utc
from gateway.store.database import Database
from gateway.store.log.overview import align_span, read_spending
from gateway.store.records import DAY_US, HOUR_US

COLUMNS: Final = {
    "model": "model",
    "key": "token_id",
    "group": "group_name",
    "channel": "channel",
}
"""Filter of the pages → column of sums."""
MOST_PARTS: Final = 5
"""Parts of a chart beside all others."""

Filters = Mapping[str, str | None]
"""Those of `COLUMNS`; None matches everything."""
NO_FILTERS: Final[Filters] = MappingProxyType({})

LOGS_PATH: Final = "/console/logs"


def logs_url(since: int, until: int | None = None, /, **filters: str) -> str:
    """The matching requests of a span of Unix µs."""
    times = {"since": format_utc(since)} | ({"until": format_utc(until)} if until else {})
    return f"{LOGS_PATH}?{urlencode(times | filters)}"


@dataclass(frozen=True, slots=True)
class Span:
    """Whole buckets of `step`: hours or days of UTC, in Unix µs."""

    since: int
    until: int
    step: int

    @classmethod
    def of(cls, time: TimeRange) -> Span:
        """Those that a range touches; of a relative one as many as it says, the current one
        included."""
        start, end, step = align_span(time.since, time.until)
        if time.is_relative and time.until - time.since >= step:
            start = -(-time.since // step) * step
        return cls(start, end, step)

    @property
    def starts(self) -> range:
        return range(self.since, self.until, self.step)

    def buckets(self, only: Filters = NO_FILTERS, *, is_linked: bool = True) -> list[Bucket]:
        """With the addresses of the requests in them that match the filters, if `is_linked`."""
        filters = {name: value for name, value in only.items() if value is not None}
        urls = (logs_url(at, at + self.step, **filters) if is_linked else "" for at in self.starts)
        return [
            Bucket(bucket_label(self.step, at), url)
            for at, url in zip(self.starts, urls, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Spending:
    """Costs by the start of their bucket, and the whole."""

    by_start: dict[int, Cost] = field(default_factory=dict)

    @property
    def whole(self) -> Cost:
        costs = self.by_start.values()
        return Cost(sum(each.units for each in costs), sum(each.usd for each in costs))

    def add(self, at: int, units: int, usd: int) -> None:
        before = self.by_start.get(at, Cost())
        self.by_start[at] = Cost(before.units + units, before.usd + usd)


async def spending(
    database: Database, span: Span, by: str = "", names: Sequence[str] = (), /, **only: str | None
) -> dict[str, Spending]:
    """Reads what was spent by each of these names, or in all: by ''. `only` are filters."""
    where = {COLUMNS[name]: value for name, value in only.items() if value is not None}
    column = COLUMNS[by] if by else None
    found = {name: Spending() for name in (names if by else ("",))}
    rows = await read_spending(
        database, span.since, span.until, column, names, where, whole_days=span.step == DAY_US
    )
    for hour, name, units, usd in rows:
        at = hour * HOUR_US // span.step * span.step
        found[name].add(at, units, usd)
    return found


async def spending_chart(
    database: Database,
    span: Span,
    by: str,
    names: Mapping[str, tuple[str, str]],
    whole: Spending | None = None,
    /,
    **only: str | None,
) -> Chart:
    """The chart of what was spent by each of these names, which have titles and addresses, and by
    all others; in dollars where there are any. Reads the `whole` if it is not given."""
    if whole is None:
        (whole,) = (await spending(database, span, **only)).values()
    parts = await spending(database, span, by, list(names), **only) if names else {}
    return draw(span, whole, {names[name]: part for name, part in parts.items()}, only)


def draw(
    span: Span,
    whole: Spending,
    parts: Mapping[tuple[str, str], Spending],
    only: Filters = NO_FILTERS,
    *,
    is_linked: bool = True,
) -> Chart:
    """The parts have titles and addresses."""
    total = whole.whole
    money = "usd" if total.usd else "units"
    left = Counter({at: getattr(cost, money) for at, cost in whole.by_start.items()})
    series = []
    for number, ((title, url), part) in enumerate(parts.items(), 1):
        spent = {at: getattr(cost, money) for at, cost in part.by_start.items()}
        left.subtract(spent)
        if any(spent.values()):
            values = [spent.get(at, 0) / MICRO_PER_UNIT for at in span.starts]
            series.append(Series(title, f"c{number}", values, url))
    if any(amount > 0 for amount in left.values()):
        values = [max(0, left[at]) / MICRO_PER_UNIT for at in span.starts]
        series.append(Series("others", "c6", values))
    return build_chart(
        "US dollars" if total.usd else "Units",
        span.buckets(only, is_linked=is_linked),
        series,
        short_number,
        summary=format_usd(total.usd) if total.usd else format_units(total.units),
        min_step=0.01 if total.usd else 1,
    )
