"""Settles the rows that an earlier boot left running: nothing more will be known of them.

Each such exchange is billed the expected cost of its prompt.
"""

from __future__ import annotations

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    case,
    exists,
    func,
    literal,
    select,
    update,
)

from gateway.store.batch import token_deltas
from gateway.store.database import driver_cursor
from gateway.store.records import ExchangeState, HourDelta
from gateway.store.schema import requests
from gateway.store.server_schema import replicas
from gateway.store.statements import HOUR_KEY, IS_RUNNING, Statements, sum_of


def left_by_earlier_boots(dialect: str, boot_id: str) -> ColumnElement[bool]:
    """The rows of all boots but this one, and those of other replicas."""
    earlier = requests.c.boot_id != boot_id
    if dialect == "sqlite":
        return earlier
    replica = exists().where(replicas.c.boot_id == requests.c.boot_id)
    return and_(earlier, ~replica)


def mark_interrupted(
    connection: Connection, statements: Statements, left_by: ColumnElement[bool]
) -> int:
    """Settle the running rows of some boots as interrupted; returns their number."""
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
