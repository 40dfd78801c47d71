"""Writes links of the request log on a database server, by a function of the session: a link gets
the digest of the one before within the transaction. What is put into its text is of the project."""
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, text

from gateway.store.log.links import OPEN_ENDS, RECOVERY, digest_rows
from gateway.store.postgresql.schema import AdvisoryLock
from gateway.store.records import DAY_US, RequestRow

LINK_FUNCTION: Final = f"""
CREATE OR REPLACE FUNCTION pg_temp.add_link(by_writer text, of_ids text, of_rows text)
RETURNS void LANGUAGE plpgsql AS $link$
DECLARE
    at bigint := floor(extract(epoch FROM clock_timestamp()) * 1000000);
    today bigint := at / {DAY_US};
    last bigint;
    before text;
BEGIN
    PERFORM pg_advisory_xact_lock({AdvisoryLock.LINKS:d}, hashtext(by_writer));
    SELECT number, digest INTO last, before FROM links
        WHERE day = today AND writer = by_writer ORDER BY number DESC LIMIT 1;
    IF NOT FOUND THEN
        last := 0;
        SELECT coalesce(string_agg(ends.digest, ' '), '') INTO before
            FROM ({OPEN_ENDS.format(day="today")}) AS ends;
    END IF;
    INSERT INTO links VALUES (
        today, by_writer, last + 1, at, before, of_rows, of_ids,
        encode(sha256(convert_to(
            concat_ws(E'\\n', today, by_writer, last + 1, at, before, of_rows, of_ids), 'UTF8'
        )), 'hex')
    );
END
$link$
"""

_ADD: Final = text("SELECT pg_temp.add_link(:writer, :ids, :rows_digest)")


def link_interrupted(connection: Connection, rows: Iterable[RequestRow]) -> None:
    """Gives each of the rows a link of its own."""
    values = [
        {"writer": RECOVERY, "ids": row.id, "rows_digest": digest_rows([row])} for row in rows
    ]
    if values:
        connection.exec_driver_sql(LINK_FUNCTION)
        connection.execute(_ADD, values)
