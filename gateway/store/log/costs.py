"""Changes what settled requests cost, with all sums that they are in.

Budgets do not change: what was charged is `charged_hours`, the hourly sums without corrections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Connection,
    Row,
    Table,
    and_,
    bindparam,
    insert,
    literal,
    or_,
    select,
    union_all,
    update,
)

from gateway.store.database import Database, fetch
from gateway.store.log.expressions import IS_RUNNING, add_to_row, insert_into
from gateway.store.log.pages import first_id
from gateway.store.measures import MEASURES
from gateway.store.records import HOUR_US, STEP_US
from gateway.store.schema import (
    attempts,
    requests,
    searches,
    tokens,
    traffic,
    usage_corrections,
    usage_hours,
)

_KEY: Final = ("hour", "token_id", "group_name", "model")
_USAGE: Final = (
    *("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"),
    *("reasoning_tokens", "cache_write_1h_tokens", "web_searches"),
)

charged_hours = union_all(
    select(*(usage_hours.c[name] for name in (*_KEY, "cost_micro", "usd_micro"))),
    select(
        *(usage_corrections.c[name] for name in _KEY),
        literal(0, literal_execute=True).label("cost_micro"),
        (-usage_corrections.c.usd_micro).label("usd_micro"),
    ),
).subquery("charged_hours")
"""The hourly sums as budgets have them: several rows of a key add up."""


class CostChange(NamedTuple):
    """The dollars of a settled row, in millionths, and its tariff, before and after."""

    id: str
    started_at: int
    token_id: str
    group_name: str
    model: str
    channel: str
    before: int
    after: int
    tariff: str


def change_costs(connection: Connection, changes: Sequence[CostChange]) -> list[CostChange]:
    """Changes rows, the sums of their hours and slots and the totals of their keys; returns what
    it has changed. A row whose cost is not `before` any more stays as it is."""
    done = _change_rows(connection, {each.id: each for each in changes})
    by_hour: Counter[tuple[int, str, str, str]] = Counter()
    by_token: Counter[str] = Counter()
    by_slot: Counter[tuple[int, str, str]] = Counter()
    for each in done:
        hour = each.started_at // HOUR_US
        by_hour[hour, each.token_id, each.group_name, each.model] += each.after - each.before
        by_token[each.token_id] += each.after - each.before
        slot = each.started_at // STEP_US * STEP_US
        by_slot[slot, each.model, each.channel] += each.after - each.before
    for key, usd in sorted(by_hour.items()):
        for table in (usage_hours, usage_corrections):
            _add(connection, table, dict(zip(_KEY, key, strict=True)), usd)
    for token_id, usd in sorted(by_token.items()):
        _add(connection, tokens, {"id": token_id}, usd)
    nothing = dict.fromkeys(map(str, MEASURES), 0)
    slots = [
        nothing | {"start": start, "model": model, "channel": channel, "usd_micro": usd}
        for (start, model, channel), usd in sorted(by_slot.items())
    ]
    if slots:
        connection.execute(add_to_row(insert_into(connection, traffic)), slots)
    return done


def _change_rows(connection: Connection, changes: Mapping[str, CostChange]) -> list[CostChange]:
    """Rows are locked in their order, as by all who change them."""
    row = requests.c
    locked = select(row.id, row.usd_micro).where(row.id.in_(changes), ~IS_RUNNING).order_by(row.id)
    found = connection.execute(locked.with_for_update()).all()
    done = [changes[id] for id, usd in found if usd == changes[id].before]
    if done:
        values: dict[str, Any] = {"usd_micro": bindparam("usd"), "tariff": bindparam("text")}
        connection.execute(
            update(requests).where(row.id == bindparam("row_id")).values(values),
            [{"row_id": each.id, "usd": each.after, "text": each.tariff} for each in done],
        )
    return done


def _add(connection: Connection, table: Table, key: dict[str, Any], usd: int) -> None:
    matches = and_(*(table.c[name] == value for name, value in key.items()))
    added = update(table).where(matches).values(usd_micro=table.c.usd_micro + bindparam("added"))
    if not connection.execute(added, {"added": usd}).rowcount and table is usage_corrections:
        connection.execute(insert(table).values(**key, usd_micro=usd))


async def settled_rows(
    database: Database, after: str, until: int, limit: int
) -> Sequence[Row[Any]]:
    """Reads rows that have a tariff, with ids after `after` and starts before `until` (Unix µs), in
    the order of their ids. `is_split`: several requests to upstreams have served it."""
    row = requests.c
    receipts = select(attempts.c.number).where(
        attempts.c.request_id == row.id,
        attempts.c.verdict == literal("ok", literal_execute=True),
        attempts.c.receipt.is_not(None),
    )
    searched = select(searches.c.number).where(searches.c.request_id == row.id)
    columns = ("id", "started_at", "token_id", "group_name", "catalog_model", "channel", "tariff")
    query = (
        select(
            *(row[name] for name in (*columns, "usd_micro", *_USAGE)),
            or_(receipts.exists(), searched.exists()).label("is_split"),
        )
        .where(row.id > after, row.id < first_id(until), ~IS_RUNNING, row.tariff.is_not(None))
        .order_by(row.id)
        .limit(limit)
    )
    return await fetch(database, query)
