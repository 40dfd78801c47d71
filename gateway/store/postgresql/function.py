"""The function that writes a batch on a database server; all names in it come from the schema."""
# ruff: noqa: S608

from __future__ import annotations

from functools import cache
from typing import Final

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql

from gateway.store.postgresql.batch import FunctionArguments, LeaseDelta
from gateway.store.postgresql.links import LINK_FUNCTION
from gateway.store.postgresql.schema import spending
from gateway.store.records import OUTCOME_FIELDS, ExchangeState, TokenDelta
from gateway.store.schema import attempts, requests, searches, traffic, usage_hours

ROWS_CHANGED: Final = "GW001"
"""The error where a row exists that is to be inserted, or is settled that is to be settled."""

_INTEGER: Final = "bigint"
_COLUMNS: Final = ", ".join(requests.c.keys())

LOCK: Final = f"SELECT {_COLUMNS} FROM requests WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE"
"""The rows with the ids, locked."""

_ARGUMENTS: Final = ", ".join(
    f"${number}" for number in range(1, len(FunctionArguments._fields) + 4)
)

CALL: Final = f"SELECT pg_temp.record_entries({_ARGUMENTS})"
"""The call with a `FunctionArguments`, the boot's id, the epoch or null, and whether the rows are
locked."""


@cache
def function_text() -> str:
    """The statements that create the function and the types of its arguments' rows."""
    names = {"request_row": requests, "attempt_row": attempts, "search_row": searches}
    types = {name: _types(table) for name, table in names.items()}
    types["hour_row"] = _types(usage_hours)
    types["token_row"] = dict.fromkeys(TokenDelta._fields, _INTEGER) | {"token_id": "text"}
    types["spending_row"] = _types(spending)
    text = {"holder_kind": "text", "holder_id": "text"}
    types["lease_row"] = dict.fromkeys(LeaseDelta._fields, _INTEGER) | text
    types["traffic_row"] = _types(traffic)
    created = [
        f"CREATE TYPE pg_temp.{name} AS ("
        + ", ".join(f'"{column}" {type_}' for column, type_ in columns.items())
        + ");"
        for name, columns in types.items()
    ]
    return "\n".join([*created, f"{LINK_FUNCTION};", _body()])


def _types(table: Table) -> dict[str, str]:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return {column.name: column.type.compile(dialect) for column in table.columns}


def _body() -> str:
    row_values = ", ".join(
        "CASE given.boot_id WHEN '' THEN boot ELSE given.boot_id END"
        if name == "boot_id"
        else f"given.{name}"
        for name in requests.c.keys()  # noqa: SIM118
    )
    outcome = ", ".join(f"{name} = given.{name}" for name in OUTCOME_FIELDS)
    return f"""
CREATE FUNCTION pg_temp.record_entries(
    inserted pg_temp.request_row[], settled pg_temp.request_row[],
    attempted pg_temp.attempt_row[], searched pg_temp.search_row[],
    hours pg_temp.hour_row[], totals pg_temp.token_row[],
    spent pg_temp.spending_row[], leases pg_temp.lease_row[],
    slots pg_temp.traffic_row[], linked_ids text, rows_digest text,
    boot text, own_epoch bigint, locked boolean
) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $body$
DECLARE
    written bigint;
BEGIN
    IF cardinality(inserted) > 0 THEN
        INSERT INTO requests ({_COLUMNS})
        SELECT {row_values} FROM unnest(inserted) AS given
        ON CONFLICT (id) DO NOTHING;
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> cardinality(inserted) THEN
            RAISE EXCEPTION 'rows exist' USING ERRCODE = '{ROWS_CHANGED}';
        END IF;
    END IF;
    IF cardinality(settled) > 0 THEN
        -- Planned for these ids, so that it opens the days of these alone.
        EXECUTE $update$
            UPDATE requests SET {outcome} FROM unnest($1) AS given
            WHERE requests.id = given.id AND requests.id BETWEEN $2 AND $3
                AND (requests.state = '{ExchangeState.RUNNING}'
                    OR ($4 AND requests.state = '{ExchangeState.INTERRUPTED}'))
        $update$ USING settled, settled[1].id, settled[cardinality(settled)].id, locked;
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> cardinality(settled) THEN
            RAISE EXCEPTION 'rows are settled' USING ERRCODE = '{ROWS_CHANGED}';
        END IF;
    END IF;
    IF cardinality(attempted) > 0 THEN
        INSERT INTO attempts ({_names(attempts)}) SELECT * FROM unnest(attempted)
        ON CONFLICT DO NOTHING;
    END IF;
    IF cardinality(searched) > 0 THEN
        INSERT INTO searches ({_names(searches)}) SELECT * FROM unnest(searched)
        ON CONFLICT DO NOTHING;
    END IF;
    IF cardinality(hours) > 0 THEN
        {_upsert(usage_hours, "hours")};
    END IF;
    IF cardinality(totals) > 0 THEN
        UPDATE tokens SET {_added_to_token()} FROM unnest(totals) AS given
        WHERE tokens.id = given.token_id;
    END IF;
    IF cardinality(spent) > 0 THEN
        {_upsert(spending, "spent")};
    END IF;
    IF own_epoch IS NOT NULL AND cardinality(leases) > 0 THEN
        UPDATE budget_leases AS lease SET
            units = lease.units - given.units, usd = lease.usd - given.usd
        FROM unnest(leases) AS given
        WHERE lease.holder_kind = given.holder_kind AND lease.holder_id = given.holder_id
            AND lease.epoch = own_epoch;
    END IF;
    IF cardinality(slots) > 0 THEN
        {_upsert(traffic, "slots")};
    END IF;
    IF linked_ids <> '' THEN
        PERFORM pg_temp.add_link(boot, linked_ids, rows_digest);
    END IF;
END
$body$;"""


def _names(table: Table) -> str:
    return ", ".join(column.name for column in table.columns)


def _upsert(table: Table, argument: str) -> str:
    key = [column.name for column in table.primary_key.columns]
    added = ", ".join(
        f"{column.name} = {table.name}.{column.name} + excluded.{column.name}"
        for column in table.columns
        if column.name not in key
    )
    return (
        f"INSERT INTO {table.name} ({_names(table)}) SELECT * FROM unnest({argument})"
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {added}"
    )


def _added_to_token() -> str:
    counts = [name for name in TokenDelta._fields if name not in ("token_id", "used_at")]
    added = [f"{name} = tokens.{name} + given.{name}" for name in counts]
    return ", ".join([*added, "last_used_at = greatest(tokens.last_used_at, given.used_at)"])
