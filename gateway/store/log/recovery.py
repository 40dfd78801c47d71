"""Settles the rows that an earlier process has left running, as `interrupted`. Each is billed the
expected cost of its prompt, as nothing more is known of it.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, bindparam, select, update

from gateway.store.log.expressions import IS_RUNNING
from gateway.store.records import ExchangeState, RequestRow
from gateway.store.schema import requests

_CHANGED = ("state", "end_reason", "input_tokens", "cost_micro", "usd_micro", "usage_source")


def interrupt_running(connection: Connection, left_by: ColumnElement[bool]) -> list[RequestRow]:
    """Settle the running rows that match; returns them as they are to be added to the sums.

    Rows are locked first, in their order: on a server recorders of other replicas settle rows
    concurrently."""
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
    return [row._replace(total_us=0) for row in rows]


def _interrupted(row: RequestRow) -> RequestRow:
    return row._replace(
        state=ExchangeState.INTERRUPTED,
        end_reason=ExchangeState.INTERRUPTED,
        input_tokens=row.expected_input_tokens,
        cost_micro=row.expected_micro,
        usd_micro=row.expected_usd_micro,
        usage_source="estimated" if row.expected_input_tokens > 0 else "none",
    )
