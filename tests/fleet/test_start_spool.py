"""What a replica's earlier process left in its spool is written before its leases end."""

from __future__ import annotations

from pathlib import Path

import asyncpg

from gateway.store.postgresql.spool import SPOOL_NAME, Spool
from gateway.store.records import ExchangeState, LogEntry
from tests.store.sample_rows import intent
from tests.support.gateway import run_gateway
from tests.support.postgres import new_database_url
from tests.support.valkey import valkey_server

# Notes how many rows the log has when a replica's row, and with it a lease, is deleted.
_WATCH = """
CREATE TABLE seen (rows bigint);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO seen SELECT count(*) FROM requests; RETURN old; END $$;
CREATE TRIGGER note BEFORE DELETE ON replicas FOR EACH ROW EXECUTE FUNCTION note();
"""
_EARLIER = """
INSERT INTO replicas VALUES
    ('r1', 1000000, 'boot-1', 'state-1', 'expired', '', '', 1, '', 1, 1, 10000000, '{}');
INSERT INTO budget_leases VALUES ('key', 'tok_0', 1000000, 5, 0);
"""


async def test_the_spool_is_written_before_leases_end(tmp_path: Path) -> None:
    url = await new_database_url()
    (tmp_path / "replica").write_text("state-1")
    spool = Spool(tmp_path / SPOOL_NAME, 2**22)
    await spool.open()
    ended = [intent(number, state=ExchangeState.OK, total_us=1) for number in range(1_200)]
    await spool.append([LogEntry(row) for row in ended], "boot-1")
    await spool.close()
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_WATCH)
        await connection.execute(_EARLIER)
        config = {
            "database": url,
            "shared": {"url": valkey_server().url, "prefix": "start-spool"},
            "replica": {"name": "r1"},
        }
        async with run_gateway(tmp_path, [], **config):
            assert await connection.fetchval("SELECT count(*) FROM budget_leases") == 0
            assert [each["rows"] for each in await connection.fetch("SELECT rows FROM seen")] == [
                len(ended)
            ]
    finally:
        await connection.close()
