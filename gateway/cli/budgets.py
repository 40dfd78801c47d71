"""`gateway budgets`: the budgets in use; and limits, budgets and costs for other commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from gateway.admin.units import (
    WINDOW_TITLES,
    format_amount,
    format_cost,
    format_count,
    format_price,
    format_units,
    format_usd,
)
from gateway.cli.client import Client, connect
from gateway.cli.options import CommandContext, now_us, with_context
from gateway.cli.output import (
    Cell,
    Column,
    Record,
    format_time,
    right_align,
    share_bar,
    shorten,
)
from gateway.core.limits import BUDGETS, DIMENSION_BUDGETS, BudgetKind, BudgetWindow, Currency

if TYPE_CHECKING:  # commands start without what validates configurations
    from gateway.config.limits import Money

_COUNTS: Final = {
    "requests_per_minute": "RPM",
    "tokens_per_minute": "TPM",
    "concurrent": "Max concurrency",
}


@click.command()
@with_context
def budgets(context: CommandContext) -> None:
    """List the budgets of active keys and of groups, the most used first.

    Reserved amounts are those of running requests. A rolling budget, of five hours or a week, that
    is used up has room again at the time of its reset; amounts leave it a few minutes late, or up
    to an hour for a week.
    """
    with connect(context.state_dir, context.config) as client:
        records = client.get("/budgets")["budgets"]
    records.sort(key=_used_share, reverse=True)
    context.print_table(records, _BUDGET_COLUMNS)


def _used(record: Record) -> int:
    return int(record["spent"] + record["reserved"])


def _used_share(record: Record) -> float:
    return _used(record) / record["limit"] if record["limit"] else 1.0


def _amount_cell(field: str, record: Record) -> Cell:
    return right_align(format_amount(record[field], Currency(record["currency"])))


_BUDGET_COLUMNS: Final[dict[str, Column]] = {
    "Of": lambda record: shorten(f"{record['kind']} {record['name']}"),
    "Budget": lambda record: WINDOW_TITLES[BudgetWindow(record["window"])],
    "Limit": partial(_amount_cell, "limit"),
    "Spent": partial(_amount_cell, "spent"),
    "Reserved": partial(_amount_cell, "reserved"),
    "Used": lambda record: share_bar(_used(record), record["limit"], empty="100 %"),
    "Resets": lambda record: format_time(record["resets_at"]),
}


def get_spent(client: Client, kind: str, id: str) -> dict[str, int]:
    """Returns what a key or a group has spent of each budget, in millionths, without running
    requests; of rolling budgets only if there is one."""
    now = datetime.fromtimestamp(now_us() // 1_000_000, UTC)
    today = now.date().isoformat()
    usage = client.get("/usage", by="day", **{kind: id})["usage"]
    spent: dict[str, int] = {}
    for prefix, field in (("budget", "cost_micro"), ("budget_usd", "usd_micro")):
        days: dict[str, int] = {row["day"]: row[field] for row in usage}
        month = sum(micro for day, micro in days.items() if day[:7] == today[:7])
        spent |= {
            prefix: sum(days.values()),
            f"{prefix}_day": days.get(today, 0),
            f"{prefix}_month": month,
        }
    in_use = client.get("/budgets")["budgets"]
    own = (each for each in in_use if (each["kind"], each["id"]) == (kind, id))
    return spent | {each["budget"]: each["spent"] for each in own}


def limit_columns(money: Money | None) -> dict[str, Column]:
    """Returns the columns of records with `limits` and `spent_micro`. Budgets in dollars, and
    budgets of five hours and a week, are shown if they are set."""
    return {
        **{title: partial(_count_cell, name) for name, title in _COUNTS.items()},
        **{
            f"{WINDOW_TITLES[kind.window]} budget": partial(_budget_cell, kind, money)
            for kind in BUDGETS.values()
            if kind.currency is Currency.UNITS
        },
    }


def dimension_cell(dimension: str, record: Record) -> Cell:
    """The budgets of a key of each value of a dimension."""
    texts = [
        f"{format_amount(limit, budget.kind.currency)} a day"
        for name, budget in DIMENSION_BUDGETS.items()
        if budget.dimension == dimension and (limit := record[name]) is not None
    ]
    return "; ".join(texts) or None


def limit_summary(limits: Mapping[str, int | None]) -> str | None:
    """`RPM 600, Daily budget 5 000`; None without limits."""
    counts = [
        f"{title} {format_count(limit)}"
        for name, title in _COUNTS.items()
        if (limit := limits[name]) is not None
    ]
    amounts = [
        f"{WINDOW_TITLES[kind.window]} budget {_short_amount(limit, kind)}"
        for name, kind in BUDGETS.items()
        if (limit := limits[name]) is not None
    ]
    return ", ".join((*counts, *amounts)) or None


def _short_amount(micro: int, kind: BudgetKind) -> str:
    return (format_usd if kind.currency is Currency.USD else format_units)(micro)


def units_of(record: Record) -> str:
    """The cost of a key, a request or a row of usage; ~ marks estimates."""
    return f"{_estimate_mark(record)}{format_units(record['cost_micro'])}"


def usd_of(record: Record) -> str:
    return f"{_estimate_mark(record)}{format_usd(record['usd_micro'])}"


def _estimate_mark(record: Record) -> str:
    is_estimate = record.get("estimated") or record.get("usage_source") == "estimated"
    return "~" if is_estimate else ""


def cost_columns(money: Money | None, records: Sequence[Record]) -> dict[str, Column]:
    """Dollars only if any record has some, the price of units in another currency only if the
    configuration has one."""
    columns: dict[str, Column] = {"Units": lambda record: right_align(units_of(record))}
    if any(record["usd_micro"] for record in records):
        columns["USD"] = lambda record: right_align(usd_of(record))
    if format_price(0, money) is not None:
        columns["Price"] = lambda record: right_align(
            format_price(record["cost_micro"], money) or ""
        )
    return columns


def _count_cell(name: str, record: Record) -> Cell:
    limit = record["limits"][name]
    return None if limit is None else format_count(limit)


def _budget_cell(kind: BudgetKind, money: Money | None, record: Record) -> Cell:
    """The budgets of one window, in units and in dollars."""
    texts = []
    for name, other in BUDGETS.items():
        limit = record["limits"][name]
        if other.window is not kind.window or limit is None:
            continue
        spent = record["spent_micro"].get(name)
        in_usd = other.currency is Currency.USD
        text = format_amount(limit, other.currency) if in_usd else format_cost(limit, 0, money)
        amount = _short_amount(spent, other) if spent is not None else "-"
        texts.append(f"{text}, {amount} spent")
    return "; ".join(texts) or None
