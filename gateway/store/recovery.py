"""What an earlier run left open, settled: nothing more will ever be known of it.

Each such exchange is billed what its prompt alone was expected to cost. This room must not know
how that was reckoned.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, literal, select, update

from gateway.store.batch import token_deltas
from gateway.store.driver import driver_cursor
from gateway.store.records import ExchangeState, HourDelta
from gateway.store.schema import requests
from gateway.store.statements import HOUR_KEY, IS_RUNNING, Statements, sum_of

_guessed = requests.c.expected_input_tokens > 0


def mark_interrupted(connection: Connection, statements: Statements, boot_id: str) -> int:
    """Settle the open rows of all boots but this one as interrupted, and answer how many."""
    left_open = (IS_RUNNING, requests.c.boot_id != boot_id)
    hours: list[HourDelta] = []
    used_at: dict[str, int] = {}
    for row in connection.execute(_sums().where(*left_open)):
        hour, last = HourDelta._make(row[:-1]), row[-1]
        hours.append(hour)
        used_at[hour.token_id] = max(last, used_at.get(hour.token_id, last))
    connection.execute(
        update(requests)
        .where(*left_open)
        .values(
            state=ExchangeState.INTERRUPTED,
            end_reason=ExchangeState.INTERRUPTED,
            input_tokens=requests.c.expected_input_tokens,
            cost_micro=requests.c.expected_micro,
            usage_source=case((_guessed, "estimated"), else_="none"),
        )
    )
    with driver_cursor(connection) as cursor:
        statements.add_hour.run(cursor, hours)
        statements.add_to_token.run(cursor, token_deltas(hours, used_at))
    return sum(hour.requests for hour in hours)


def _sums() -> Select[Any]:
    """The fields of Hour, and the latest start."""
    counts: dict[str, ColumnElement[int]] = {
        "requests": func.count(),
        "errors": func.count(),
        "estimated": sum_of(case((_guessed, 1), else_=0)),
        "input_tokens": sum_of(requests.c.expected_input_tokens),
        "cost_micro": sum_of(requests.c.expected_micro),
    }
    columns = [
        HOUR_KEY[name] if name in HOUR_KEY else counts.get(name, literal(0))
        for name in HourDelta._fields
    ]
    return select(*columns, func.max(requests.c.started_at)).group_by(*HOUR_KEY.values())
