"""Settles the rows that an earlier process has left running, as `interrupted`. Each is billed the
expected cost of its prompt, as nothing more is known of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal,
    select,
    update,
)

from gateway.store.database import driver_cursor
from gateway.store.log.batch import sums_of, token_deltas
from gateway.store.log.statements import HOUR_KEY, IS_RUNNING, Statements, insert_or_add, sum_of
from gateway.store.postgresql.batch import lease_deltas, spending_deltas
from gateway.store.postgresql.schema import budget_leases, replicas, spending
from gateway.store.records import ExchangeState, HourDelta, RequestRow
from gateway.store.schema import requests


def left_by_earlier_boots(dialect: str, boot_id: str) -> ColumnElement[bool]:
    """The rows of processes that have ended: not of this one, and not of a registered replica."""
    earlier = requests.c.boot_id != boot_id
    if dialect == "sqlite":
        return earlier
    replica = exists().where(replicas.c.boot_id == requests.c.boot_id)
    return and_(earlier, ~replica)


def mark_interrupted(
    connection: Connection,
    statements: Statements,
    left_by: ColumnElement[bool],
    epoch: int | None = None,
) -> int:
    """Settle the running rows of some boots as interrupted; returns their number. `epoch` is that
    of the replica whose leases their cost is taken from, if it keeps them."""
    if connection.dialect.name != "sqlite":
        return _mark_on_server(connection, statements, left_by, epoch)
    left_running = (IS_RUNNING, left_by)
    is_estimated = requests.c.expected_input_tokens > 0
    columns = {
        **HOUR_KEY,
        "requests": func.count(),
        "errors": func.count(),
        "estimated": sum_of(case((is_estimated, 1), else_=0)),
        "input_tokens": sum_of(requests.c.expected_input_tokens),
        "cost_micro": sum_of(requests.c.expected_micro),
        "usd_micro": sum_of(requests.c.expected_usd_micro),
    }
    sums = [columns.get(name, literal(0)) for name in HourDelta._fields]
    last_start = func.max(requests.c.started_at)
    query = select(*sums, last_start).where(*left_running).group_by(*HOUR_KEY.values())
    hours: list[HourDelta] = []
    used_at: dict[str, int] = {}
    for row in connection.execute(query):
        hour, last = HourDelta._make(row[:-1]), row[-1]
        hours.append(hour)
        used_at[hour.token_id] = max(last, used_at.get(hour.token_id, last))
    connection.execute(
        update(requests)
        .where(*left_running)
        .values(
            state=ExchangeState.INTERRUPTED,
            end_reason=ExchangeState.INTERRUPTED,
            input_tokens=requests.c.expected_input_tokens,
            cost_micro=requests.c.expected_micro,
            usd_micro=requests.c.expected_usd_micro,
            usage_source=case((is_estimated, "estimated"), else_="none"),
        )
    )
    with driver_cursor(connection) as cursor:
        statements.add_hour.run(cursor, hours)
        statements.add_to_token.run(cursor, token_deltas(hours, used_at))
    return sum(hour.requests for hour in hours)


def _mark_on_server(
    connection: Connection,
    statements: Statements,
    left_by: ColumnElement[bool],
    epoch: int | None,
) -> int:
    """Recorders of other replicas settle rows concurrently: rows are locked first, in their
    order."""
    locked = select(requests).where(IS_RUNNING, left_by).order_by(requests.c.id).with_for_update()
    rows = [_interrupted(RequestRow._make(row)) for row in connection.execute(locked)]
    end = update(requests).where(requests.c.id == bindparam("row_id"))
    changed = ("state", "end_reason", "input_tokens", "cost_micro", "usd_micro", "usage_source")
    if rows:
        connection.execute(
            end.values({name: bindparam(f"new_{name}") for name in changed}),
            [
                {"row_id": row.id} | {f"new_{name}": getattr(row, name) for name in changed}
                for row in rows
            ],
        )
    hours, totals = sums_of(row._replace(total_us=0) for row in rows)
    with driver_cursor(connection) as cursor:
        statements.add_hour.run(cursor, sorted(hours))
        statements.add_to_token.run(cursor, sorted(totals))
    _add_spending(connection, rows)
    if epoch is not None:
        _take_from_leases(connection, rows, epoch)
    return len(rows)


def _interrupted(row: RequestRow) -> RequestRow:
    return row._replace(
        state=ExchangeState.INTERRUPTED,
        end_reason=ExchangeState.INTERRUPTED,
        input_tokens=row.expected_input_tokens,
        cost_micro=row.expected_micro,
        usd_micro=row.expected_usd_micro,
        usage_source="estimated" if row.expected_input_tokens > 0 else "none",
    )


def _add_spending(connection: Connection, rows: Iterable[RequestRow]) -> None:
    """Add the cost of ended rows to the table of spending."""
    deltas = [delta._asdict() for delta in spending_deltas(rows)]
    if not deltas:
        return
    connection.execute(insert_or_add(connection.dialect, spending), deltas)


def _take_from_leases(connection: Connection, rows: Iterable[RequestRow], epoch: int) -> None:
    """What was added to spending, on a server."""
    deltas = [delta._asdict() for delta in lease_deltas(rows)]
    if not deltas:
        return
    lease = budget_leases.c
    taken = (
        update(budget_leases)
        .where(
            lease.epoch == epoch,
            lease.holder_kind == bindparam("kind"),
            lease.holder_id == bindparam("id"),
        )
        .values(units=lease.units - bindparam("spent"), usd=lease.usd - bindparam("spent_usd"))
    )
    names = {"holder_kind": "kind", "holder_id": "id", "units": "spent", "usd": "spent_usd"}
    connection.execute(taken, [{names[key]: delta[key] for key in names} for delta in deltas])
