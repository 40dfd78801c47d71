"""Settles what a replica has left running, with its spending and its leases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Table, bindparam, update

from gateway.store.log.batch import sums_of
from gateway.store.log.expressions import add_to_row, add_to_token
from gateway.store.log.recovery import interrupt_running
from gateway.store.postgresql.batch import lease_deltas, spending_deltas
from gateway.store.postgresql.schema import budget_leases, spending
from gateway.store.records import RequestRow, TokenDelta
from gateway.store.schema import tokens, usage_hours


def mark_interrupted(
    connection: Connection, left_by: ColumnElement[bool], epoch: int | None = None
) -> int:
    """Settle the running rows that match as interrupted; returns their number. `epoch` is that of
    the replica whose leases their cost is taken from, if it keeps them."""
    rows = interrupt_running(connection, left_by)
    hours, totals = sums_of(rows)
    _add(connection, usage_hours, sorted(hours))
    if totals:
        types = dict.fromkeys(TokenDelta._fields, BigInteger()) | {"token_id": tokens.c.id.type}
        terms = {name: bindparam(f"given_{name}", type_=type_) for name, type_ in types.items()}
        given = [
            {f"given_{name}": value for name, value in delta._asdict().items()}
            for delta in sorted(totals)
        ]
        connection.execute(add_to_token(terms), given)
    _add(connection, spending, spending_deltas(rows))
    if epoch is not None:
        _take_from_leases(connection, rows, epoch)
    return len(rows)


def _add(connection: Connection, table: Table, deltas: Sequence[Any]) -> None:
    """Add named tuples with the table's columns to its rows of the same keys."""
    if deltas:
        from sqlalchemy.dialects import postgresql  # one process alone does not load it

        insertion = add_to_row(postgresql.insert(table))
        connection.execute(insertion, [delta._asdict() for delta in deltas])


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
