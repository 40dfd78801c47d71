"""Settles what a replica has left running as interrupted, with its spending and its leases. Each is
billed the expected cost of its prompt, as nothing more is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Table, bindparam, select, update

from gateway.store.log.batch import sums_of
from gateway.store.log.expressions import IS_RUNNING, add_to_row, add_to_token, insert_into
from gateway.store.measures import MEASURES, TRAFFIC_KEY
from gateway.store.postgresql.batch import lease_deltas, spending_deltas
from gateway.store.postgresql.links import link_interrupted
from gateway.store.postgresql.schema import budget_leases, spending
from gateway.store.records import ExchangeState, RequestRow, TokenDelta
from gateway.store.schema import requests, tokens, traffic, usage_hours

_CHANGED = ("state", "end_reason", "input_tokens", "cost_micro", "usd_micro", "usage_source")


def mark_interrupted(
    connection: Connection, left_by: ColumnElement[bool], epoch: int | None = None
) -> int:
    """Settle the running rows that match as interrupted; returns their number. `epoch` is that of
    the replica whose leases their cost is taken from, if it keeps them."""
    rows = _interrupt_running(connection, left_by)
    # What is added to sums has no duration.
    ended = [row._replace(total_us=0) for row in rows]
    hours, totals, slots = sums_of(ended)
    _add(connection, usage_hours, [hour._asdict() for hour in sorted(hours)])
    if totals:
        types = dict.fromkeys(TokenDelta._fields, BigInteger()) | {"token_id": tokens.c.id.type}
        terms = {name: bindparam(f"given_{name}", type_=type_) for name, type_ in types.items()}
        given = [
            {f"given_{name}": value for name, value in delta._asdict().items()}
            for delta in sorted(totals)
        ]
        connection.execute(add_to_token(terms), given)
    _add(connection, spending, [delta._asdict() for delta in spending_deltas(rows)])
    if epoch is not None:
        _take_from_leases(connection, rows, epoch)
    names = (*TRAFFIC_KEY, *MEASURES)
    _add(connection, traffic, [dict(zip(names, slot, strict=True)) for slot in sorted(slots)])
    link_interrupted(connection, rows)
    return len(rows)


def _interrupt_running(connection: Connection, left_by: ColumnElement[bool]) -> list[RequestRow]:
    """Settle the running rows that match; returns them as they are then.

    Rows are locked first, in their order: recorders of other replicas settle rows concurrently."""
    locked = select(requests).where(IS_RUNNING, left_by).order_by(requests.c.id).with_for_update()
    rows = [_interrupted(RequestRow._make(row)) for row in connection.execute(locked)]
    if rows:
        connection.execute(
            update(requests)
            .where(requests.c.id == bindparam("row_id"))
            .values({name: bindparam(f"new_{name}") for name in _CHANGED}),
            [
                {"row_id": row.id} | {f"new_{name}": getattr(row, name) for name in _CHANGED}
                for row in rows
            ],
        )
    return rows


def _interrupted(row: RequestRow) -> RequestRow:
    return row._replace(
        state=ExchangeState.INTERRUPTED,
        end_reason=ExchangeState.INTERRUPTED,
        input_tokens=row.expected_input_tokens,
        cost_micro=row.expected_micro,
        usd_micro=row.expected_usd_micro,
        usage_source="estimated" if row.expected_input_tokens > 0 else "none",
    )


def _add(connection: Connection, table: Table, deltas: Sequence[dict[str, Any]]) -> None:
    """Add values of the table's columns to its rows of the same keys."""
    if deltas:
        connection.execute(add_to_row(insert_into(connection, table)), deltas)


def _take_from_leases(connection: Connection, rows: Iterable[RequestRow], epoch: int) -> None:
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
