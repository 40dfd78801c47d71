"""A request log of millions of rows on a PostgreSQL of its own: how long its pages take, how long
its tables are locked while a day is dropped, and how long writers wait meanwhile.

    python -m tests.bench.large_log --rows 10000000 --days 14

The server is Debian's, flushes to disk, and has 64 MB of shared buffers. Its folder is removed at
the end; with `--folder` it is kept, and found again by the next run.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg
from asyncpg.connection import LoggedQuery

from gateway.config.cluster import DatabaseServer
from gateway.store import logs, tokens
from gateway.store.database import Database
from gateway.store.integrity import check
from gateway.store.log_search import search
from gateway.store.logs import LogFilter
from gateway.store.overview import overview
from gateway.store.partitions import DAY_US, Day, create_range
from gateway.store.recorder import Recorder
from gateway.store.records import HOUR_US, ExchangeState
from gateway.store.retention import delete_before
from gateway.store.server_database import ServerDatabase
from gateway.store.usage import Dimension, usage
from gateway.store.usage_days import add_up_days
from tests.bench.load import percentile
from tests.store.sample_rows import attempt, intent, settled, token
from tests.support.postgres import PostgresServer

FIRST: Final = Day.named("20260901")
KEYS: Final = 1000
RARE_KEY: Final = "tok_rare"
SAMPLES: Final = 40
PARTS: Final = 100
DATABASE: Final = "large_log"

# Of 10,000 rows: 200 errors, 100 rejected, 3 with the rare key, 1 with the rare model, 2 cut.
_ROWS: Final = """
INSERT INTO requests (
    id, started_at, token_id, group_name, endpoint, format, model, channel, account,
    upstream_model, lane, stream, client_address, user_agent, bytes_in, state, status, stop_reason,
    input_tokens, cache_read_tokens, output_tokens, usage_source, first_event_us, total_us,
    bytes_out, error_code, upstream_status, upstream_error, boot_id, upstream_format, config_hash,
    attempts, catalog_model, expected_input_tokens, expected_micro, tariff, cost_micro, usd_micro
)
SELECT 'req_' || lpad(to_hex(at), 14, '0') || lpad(to_hex(hash::bigint * 500), 10, '0'),
    at, key, 'group-' || length(key), '/v1/chat/completions', 'chat', model, 'main', 'account-1',
    model, 'native', true, '10.0.0.' || n % 250, 'client/1.0 (linux; python 3.11)', 12000 + n % 999,
    state, CASE state WHEN 'ok' THEN 200 WHEN 'rejected' THEN 429 ELSE 502 END,
    CASE state WHEN 'ok' THEN 'stop' END, 3000 + n % 5000, 1000, 400 + n % 300, 'upstream',
    300000 + n % 999999, 9000000 + n % 9999999, 52000,
    CASE WHEN state <> 'ok' THEN 'upstream_error' END, CASE WHEN state <> 'ok' THEN 500 END,
    CASE WHEN state <> 'ok' THEN 'the model is overloaded, try again later' END,
    'a1b2c3d4e5f60718', 'chat', 'c0ffee00c0ffee00', 1, model, 3000, 9000,
    '{{"multiplier": "1", "input": "3", "output": "15"}}', 15000 + n % 999, 15000 + n % 999
FROM (
    SELECT n, hash, {start} + n * {step} AS at,
        CASE WHEN n % 3333 = 7 THEN '{rare}' ELSE 'tok_' || hash % {keys} END AS key,
        CASE WHEN n % 10000 = 11 THEN 'rare-model'
            ELSE 'model-' || (hash % {keys} + (n % 4) / 3) % 30 END AS model,
        CASE WHEN n % 50 = 3 THEN 'error' WHEN n % 100 = 17 THEN 'rejected'
            WHEN n % 5000 = 1 THEN 'upstream_cut' ELSE 'ok' END AS state
    FROM (
        SELECT n, hashint8(n + {start}) & 2147483647 AS hash
        FROM generate_series(0::bigint, {count} - 1) AS n
    ) AS numbers
) AS rows
"""
_ATTEMPTS: Final = """
INSERT INTO attempts (
    request_id, number, channel, account, upstream_model, format, lane, reason, started_us,
    first_event_us, total_us, status, verdict
)
SELECT id, 1, channel, account, upstream_model, format, lane, 'first by priority', 800,
    first_event_us, total_us, COALESCE(upstream_status, 200), 'ok'
FROM requests WHERE id >= $1 AND id < $2
"""
_HOURS: Final = f"""
INSERT INTO usage_hours (
    hour, token_id, group_name, model, requests, errors, input_tokens, cache_read_tokens,
    output_tokens, cost_micro, usd_micro, first_events, first_event_us, total_us
)
SELECT started_at / {HOUR_US}, token_id, group_name, catalog_model, count(*),
    sum(CASE WHEN state = 'ok' THEN 0 ELSE 1 END), sum(input_tokens), sum(cache_read_tokens),
    sum(output_tokens), sum(cost_micro), sum(usd_micro), count(*), sum(first_event_us),
    sum(total_us)
FROM requests WHERE id >= $1 AND id < $2 GROUP BY 1, 2, 3, 4
"""
_TOTALS: Final = """
UPDATE tokens SET requests = sums.requests, input_tokens = sums.input_tokens,
    output_tokens = sums.output_tokens, cost_micro = sums.cost_micro, usd_micro = sums.usd_micro
FROM (
    SELECT token_id, sum(requests) AS requests, sum(input_tokens) AS input_tokens,
        sum(output_tokens) AS output_tokens, sum(cost_micro) AS cost_micro,
        sum(usd_micro) AS usd_micro
    FROM usage_hours GROUP BY token_id
) AS sums WHERE sums.token_id = tokens.id
"""
_SPENDING: Final = """
INSERT INTO spending (holder_kind, holder_id, period, start, units, usd)
SELECT 'key', token_id, 'total', 0, sum(cost_micro), sum(usd_micro) FROM usage_hours GROUP BY 2
UNION ALL
SELECT 'group', group_name, 'total', 0, sum(cost_micro), sum(usd_micro) FROM usage_hours GROUP BY 2
"""


def say(text: str) -> None:
    print(text, flush=True)


async def fill(database: ServerDatabase, rows: int, days: int) -> None:
    """As many rows for each of the days, with their attempts, hourly sums and totals."""
    for name in (RARE_KEY, *(f"tok_{number}" for number in range(KEYS))):
        await tokens.add_token(database, token(id=name))
    await create_range(database, FIRST, Day(FIRST.number + days))
    session = await database.connect(command_timeout=3600)
    began = time.monotonic()
    for number in range(FIRST.number, FIRST.number + days):
        await _fill_day(session, Day(number), rows // days)
        done = (number - FIRST.number + 1) * (rows // days)
        say(f"  {done:,} rows, {done / (time.monotonic() - began):,.0f}/s")
    await session.execute(_TOTALS)
    await session.execute(_SPENDING)
    await session.execute("VACUUM ANALYZE")
    await session.close()


async def _fill_day(session: asyncpg.Connection, day: Day, count: int) -> None:
    start = day.number * DAY_US
    fields = {"start": start, "step": DAY_US // count, "count": count, "keys": KEYS}
    await session.execute(_ROWS.format(**fields, rare=RARE_KEY))
    for statement in (_ATTEMPTS, _HOURS):
        await session.execute(statement, *day.bounds)


def reads(database: Database, days: int) -> dict[str, Callable[[], Awaitable[Any]]]:
    """What operators ask for, by what it is."""
    first, end = FIRST.number * DAY_US, (FIRST.number + days) * DAY_US
    choose = random.Random(1)

    def deep() -> str:
        return logs.first_id(choose.randrange(first, end))

    def hour() -> dict[str, int]:
        since = choose.randrange(first, end - HOUR_US)
        return {"since": since, "until": since + HOUR_US}

    def day() -> dict[str, int]:
        since = choose.randrange(first, end - DAY_US)
        return {"since": since, "until": since + DAY_US}

    def page(**filters: Any) -> Awaitable[Any]:
        return search(database, LogFilter(**filters))

    def key() -> str:
        return f"tok_{choose.randrange(KEYS)}"

    return {
        "first page": lambda: search(database),
        "deep page": lambda: search(database, before=deep()),
        "of a key": lambda: page(token_id=key()),
        "of a key, deep": lambda: search(database, LogFilter(token_id=key()), before=deep()),
        "of a key with 1 in 3,333 rows": lambda: page(token_id=RARE_KEY),
        "of a key, failed": lambda: page(token_id=key(), state=ExchangeState.ERROR),
        "of a key without any": lambda: page(token_id="tok_none"),
        "failed": lambda: page(state=ExchangeState.ERROR),
        "failed, 1 in 5,000 rows": lambda: page(state=ExchangeState.UPSTREAM_CUT),
        "failed, none such": lambda: page(error_code="none_such"),
        "running": lambda: page(state=ExchangeState.RUNNING),
        "of a model": lambda: page(model=f"model-{choose.randrange(30)}"),
        "of a model in an hour": lambda: page(model="model-3", **hour()),
        "of a model with 1 in 10,000 rows": lambda: page(model="rare-model"),
        "of that model in an hour": lambda: page(model="rare-model", **hour()),
        "of that model in a day": lambda: page(model="rare-model", **day()),
        "of a model without any": lambda: page(model="no-such-model"),
        "of a key, a rare model": lambda: page(token_id=key(), model="rare-model"),
        "of an account without any, hour": lambda: page(account="none", **hour()),
        "text that none has, hour": lambda: page(text="nowhere", **hour()),
        "tail": lambda: logs.tail(database, after=logs.first_id(end - 1000)),
        "one request": lambda: logs.get(database, deep()),
        "overview of a day": lambda: overview(database, end - DAY_US, end),
        "overview of all days": lambda: overview(database, first, end),
        "usage by key": lambda: usage(database, [Dimension.KEY]),
        "usage of a key by day": lambda: usage(database, [Dimension.DAY], token_id=key()),
        "usage by day and key": lambda: usage(database, [Dimension.DAY, Dimension.KEY]),
    }


def searches() -> dict[str, LogFilter]:
    """What is found nowhere, and has no index."""
    last = (FIRST.number + 13) * DAY_US
    return {
        "of an account without any, a day": LogFilter(account="none", since=last),
        "of an account without any": LogFilter(account="none"),
        "text that none has": LogFilter(text="nowhere"),
        "of a model, a status that none has": LogFilter(model="model-3", status=range(300, 301)),
    }


async def measure_search(database: Database, name: str, wanted: LogFilter) -> None:
    """The parts until the whole log was searched."""
    times, before = list[float](), None
    while not times or (before is not None and len(times) < PARTS):
        began = time.perf_counter()
        before = (await search(database, wanted, before=before)).searched_to
        times.append(time.perf_counter() - began)
    say(f"  {name:34} {len(times)} parts, longest {max(times):.2f} s, all {sum(times):.1f} s")


async def measure(name: str, read: Callable[[], Awaitable[Any]], samples: int) -> tuple[float, ...]:
    """p50 and p95 in milliseconds."""
    times = []
    for _ in range(samples):
        began = time.perf_counter()
        try:
            await read()
        except Exception as error:
            say(f"  {name:34} {type(error).__name__}: {error}")
            return (2000.0, 2000.0)
        times.append((time.perf_counter() - began) * 1000)
    times.sort()
    p50, p95 = percentile(times, 0.5), percentile(times, 0.95)
    say(f"  {name:34} {p50:8.1f} {p95:8.1f} ms")
    return p50, p95


def time_locks(database: ServerDatabase) -> list[float]:
    """Seconds from the lock of `requests` to the end of its transaction, for each that later
    connections make."""
    connect, locked, began = database.connect, list[float](), list[float]()

    def see(query: LoggedQuery) -> None:
        if query.query.startswith("LOCK TABLE ONLY requests ") and query.exception is None:
            began.append(time.monotonic())
        elif began and query.query.startswith(("COMMIT", "ROLLBACK")):
            locked.append(time.monotonic() - began.pop())

    async def connect_and_see(command_timeout: float | None = None) -> asyncpg.Connection:
        session = await connect(command_timeout)
        session.add_query_logger(see)
        return session

    database.connect = connect_and_see  # type: ignore[method-assign]
    return locked


async def measure_drop(database: ServerDatabase, days: int) -> None:
    """How long a writer waits while the oldest day goes."""
    recorder = Recorder(database)
    await recorder.start()
    at, end_of_first = (FIRST.number + days) * DAY_US, (FIRST.number + 1) * DAY_US
    waits: dict[bool, list[float]] = {False: [], True: []}
    locked = time_locks(database)
    dropping: asyncio.Future[int] | None = None
    began, number = time.monotonic(), 0
    while dropping is None or not dropping.done():
        number += 1
        row = intent(number, "tok_1", id=f"req_{at + number:014x}{number:010x}", started_at=at)
        before = time.monotonic()
        await recorder.record_intent(row)
        waits[dropping is not None].append(time.monotonic() - before)
        recorder.record_settlement(settled(row), (attempt(),))
        if dropping is None and time.monotonic() - began > 2:
            started = time.monotonic()
            dropping = asyncio.ensure_future(delete_before(database, end_of_first))
    count, took = await dropping, time.monotonic() - started
    await recorder.close()
    say(f"  {count:,} rows dropped in {took:.2f} s, {len(waits[True])} rows written meanwhile")
    say("  tables locked for " + ", ".join(f"{each * 1000:.1f} ms" for each in locked))
    for name, times in (("before", waits[False]), ("meanwhile", waits[True])):
        say(
            f"  a row waited {name}: p50 {percentile(sorted(times), 0.5) * 1000:.1f} ms,"
            f" longest {max(times) * 1000:.1f} ms"
        )


async def report_sizes(session: asyncpg.Connection) -> None:
    query = """
        SELECT split_part(relname, '_', 1), sum(pg_table_size(oid)), sum(pg_indexes_size(oid))
        FROM pg_class WHERE relkind = 'r' AND relispartition GROUP BY 1 ORDER BY 1
    """
    rows = await session.fetchval("SELECT count(*) FROM requests")
    for name, table, indexes in await session.fetch(query):
        say(f"  {name:10} {table / rows:6.0f} bytes a row, its indexes {indexes / rows:6.0f}")


@contextmanager
def server_in(folder: Path | None) -> Iterator[PostgresServer]:
    place = folder or Path(tempfile.mkdtemp(prefix="gateway-large-log-"))
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    server = PostgresServer(place, durable=True)
    try:
        yield server
    finally:
        server.stop(signal.SIGINT)
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)


async def run(server: PostgresServer, rows: int, days: int, only: str, drop: bool) -> float:
    """The longest p95 of a page."""
    admin = await asyncpg.connect(server.url("postgres"))
    exists = await admin.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE)
    if not exists:
        await admin.execute(f"CREATE DATABASE {DATABASE}")
    await admin.close()
    place = DatabaseServer.model_validate({"url": server.url(DATABASE), "timeout": 60})
    database = await Database.open(place)
    assert isinstance(database, ServerDatabase)
    session = await database.connect(command_timeout=600)
    if not exists:
        say(f"filling {rows:,} rows of {days} days")
        await fill(database, rows, days)
    began = time.monotonic()
    say(f"{await add_up_days(database)} days added up in {time.monotonic() - began:.2f} s")
    say("sizes")
    await report_sizes(session)
    say(f"reads, p50 and p95 of {SAMPLES}")
    worst = 0.0
    for name, read in reads(database, days).items():
        if only in name:
            worst = max(worst, (await measure(name, read, SAMPLES))[1])
    say("searches through everything")
    for name, wanted in searches().items():
        if only in name:
            await measure_search(database, name, wanted)
    if drop:
        say("dropping a day")
        await measure_drop(database, days)
        report = await check(database)
        say(f"  db check: {'ok' if report.ok else report.discrepancies[:3]}")
    await session.close()
    await database.close()
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", default="", help="reads with this in their name")
    parser.add_argument("--no-drop", action="store_true")
    options = parser.parse_args()
    with server_in(options.folder) as server:
        worst = asyncio.run(
            run(server, options.rows, options.days, options.only, not options.no_drop)
        )
    sys.exit(worst > 150)


if __name__ == "__main__":
    main()
