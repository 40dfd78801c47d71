"""Settles what an earlier run has left running, as interrupted."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, case, func, literal, select, update

from gateway.store.database import driver_cursor
from gateway.store.log.batch import MAX_BATCH, token_deltas
from gateway.store.log.expressions import HOUR_KEY, IS_RUNNING, sum_of
from gateway.store.log.traffic_rows import SLOT_KEY
from gateway.store.measures import MEASURES, OutcomeKind
from gateway.store.records import USAGE_COUNTS, ExchangeState, HourDelta, RequestRow
from gateway.store.schema import requests
from gateway.store.sqlite.links import add_link
from gateway.store.sqlite.statements import Statements

_IS_ESTIMATED = requests.c.expected_input_tokens > 0
_COUNTED = {
    **HOUR_KEY,
    "requests": func.count(),
    "errors": func.count(),
    "estimated": sum_of(case((_IS_ESTIMATED, 1), else_=0)),
    "input_tokens": sum_of(requests.c.expected_input_tokens),
    "cost_micro": sum_of(requests.c.expected_micro),
    "usd_micro": sum_of(requests.c.expected_usd_micro),
}
_TRAFFIC: Mapping[str, ColumnElement[int]] = {
    **{name: _COUNTED[name] for name in USAGE_COUNTS if name in _COUNTED},
    OutcomeKind.INTERRUPTED: func.count(),
}


def mark_interrupted(
    connection: Connection, statements: Statements, left_by: ColumnElement[bool]
) -> int:
    """Settle the running rows that match, each billed the expected cost of its prompt, as nothing
    more is known of it; returns their number.

    Nobody else writes meanwhile, so the rows need not be read before: they are summed, then
    updated."""
    matches = (IS_RUNNING, left_by)
    sums = [_COUNTED.get(name, literal(0)) for name in HourDelta._fields]
    last_start = func.max(requests.c.started_at)
    query = select(*sums, last_start).where(*matches).group_by(*HOUR_KEY.values())
    hours: list[HourDelta] = []
    used_at: dict[str, int] = {}
    for *sum_, last in connection.execute(query):
        hour = HourDelta._make(sum_)
        hours.append(hour)
        used_at[hour.token_id] = max(last, used_at.get(hour.token_id, last))
    measures = (_TRAFFIC.get(name, literal(0)) for name in MEASURES)
    by_slot = select(*SLOT_KEY.values(), *measures).where(*matches).group_by(*SLOT_KEY.values())
    slots = [tuple(row) for row in connection.execute(by_slot)]
    settled = connection.execute(
        update(requests)
        .where(*matches)
        .values(
            state=ExchangeState.INTERRUPTED,
            end_reason=ExchangeState.INTERRUPTED,
            input_tokens=requests.c.expected_input_tokens,
            cost_micro=requests.c.expected_micro,
            usd_micro=requests.c.expected_usd_micro,
            usage_source=case((_IS_ESTIMATED, "estimated"), else_="none"),
        )
        .returning(*requests.c)
    )
    rows = [RequestRow._make(row) for row in settled]
    with driver_cursor(connection) as cursor:
        statements.add_hour.run(cursor, hours)
        statements.add_to_token.run(cursor, token_deltas(hours, used_at))
        statements.add_traffic.run(cursor, slots)
        for start in range(0, len(rows), MAX_BATCH):
            add_link(cursor, statements.boot_id, rows[start : start + MAX_BATCH])
    return len(rows)
