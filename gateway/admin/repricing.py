"""Recomputes what settled requests cost in US dollars, from their kept usage.

A call does a bounded part and says where the next one goes on, so that nothing waits for it long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field
from pydantic_core import to_json

from gateway.admin.access.audit import Audit
from gateway.admin.api.forms import Form
from gateway.config.limits import DatedPrices, Money
from gateway.config.schema import Model
from gateway.config.types import ConfigModel, ModelId
from gateway.core.events import Usage
from gateway.quota.repricing import Book, SettledRequest
from gateway.store.database import Database
from gateway.store.log.costs import CostChange, change_costs, settled_rows
from gateway.store.log.pages import first_id
from gateway.store.log.spending import LAST_HOURS
from gateway.store.records import HOUR_US

_BATCH: Final = 200
"""Rows that are read, priced and changed at once."""
_MAX_ROWS: Final = 10_000
_MAX_SECONDS: Final = 5.0
_USAGE: Final = tuple(Usage.__annotations__)


class BookPrices(ConfigModel):
    """Models with their prices, prices of channels by name and model, and the price of units."""

    models: tuple[Model, ...]
    channels: Mapping[str, Mapping[ModelId, DatedPrices]] = {}
    money: Money = Money()


def _read_prices(value: Any) -> BookPrices:
    """As JSON, of which texts become what the configuration has."""
    return BookPrices.model_validate_json(to_json(value))


class RepriceForm(Form):
    """A span of Unix microseconds, `until` excluded, and a book of prices as the configuration has
    it; `after` is what the call before returned."""

    since: Annotated[int, Field(ge=0)]
    until: Annotated[int, Field(ge=0)] | None = None
    after: str = ""
    dry_run: bool = False
    prices: Annotated[BookPrices, BeforeValidator(_read_prices)]


@dataclass(slots=True)
class Difference:
    """Rows of a key and model that cost something else, in millionths of a dollar."""

    key: str
    model: str
    rows: int = 0
    usd_before: int = 0
    usd_after: int = 0


@dataclass(slots=True)
class Repriced:
    """`rows` were looked at, of which `kept` could not be priced. `after`: where the next call goes
    on; None at the end. `until` is the end of the span: younger rows count in budgets of hours."""

    until: int
    rows: int = 0
    kept: int = 0
    after: str | None = None
    differences: list[Difference] = field(default_factory=list)


async def reprice(database: Database, audit: Audit, form: RepriceForm, now: int) -> Repriced:
    """Recomputes the next part of the span; changes the log unless it is a `dry_run`, a batch in
    each transaction. `now` is in Unix microseconds."""
    prices = form.prices
    book = Book(prices.models, prices.channels, prices.money)
    latest = (now // HOUR_US - LAST_HOURS) * HOUR_US
    result = Repriced(until=latest if form.until is None else min(form.until, latest))
    found: dict[tuple[str, str], Difference] = {}
    clock = asyncio.get_running_loop().time
    after, deadline = max(form.after, first_id(form.since)), clock() + _MAX_SECONDS
    while rows := await settled_rows(database, after, result.until, _BATCH):
        priced = [_price(book, row) for row in rows]
        changes = [each for each in priced if each is not None and each.before != each.after]
        if changes and not form.dry_run:
            changes = await database.write(partial(change_costs, changes=changes))
        for each in changes:
            _count(found, each)
        result.rows += len(rows)
        result.kept += priced.count(None)
        after = rows[-1].id
        if result.rows >= _MAX_ROWS or clock() > deadline:
            result.after = after
            break
        await asyncio.sleep(0)
    result.differences = list(found.values())
    if form.dry_run or not found:
        audit.mark()
    else:
        changed: dict[str, Any] = {"rows": sum(each.rows for each in result.differences)}
        for name in ("usd_before", "usd_after"):
            changed[name] = sum(getattr(each, name) for each in result.differences)
        await audit.record("usage.reprice", after=changed | {"after": form.after, "last": after})
    return result


def _price(book: Book, row: Any) -> CostChange | None:
    usage = Usage(**{name: getattr(row, name) for name in _USAGE})
    model = row.catalog_model or ""
    settled = SettledRequest(model, row.channel, row.started_at, usage, row.tariff, row.is_split)
    cost = book.cost(settled)
    if cost is None:
        return None
    key = row.id, row.started_at, row.token_id, row.group_name, model, row.channel or ""
    return CostChange(*key, row.usd_micro, *cost)


def _count(found: dict[tuple[str, str], Difference], change: CostChange) -> None:
    key = change.token_id, change.model
    difference = found.setdefault(key, Difference(*key))
    difference.rows += 1
    difference.usd_before += change.before
    difference.usd_after += change.after
