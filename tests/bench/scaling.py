"""Whether a request costs the same with many keys, many channels and a long request log.

Two gateways of the same checkout run side by side, a small and a large one, and take turns.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from tests.bench.context import Bench
from tests.bench.gateway_server import Checkout, Size, run_command
from tests.bench.report import REFERENCE, Row, Target
from tests.bench.rounds import measure
from tests.bench.scenarios import Scenario
from tests.bench.servers import Server

IMPORT_SECONDS = 600.0
SAME = 1.05


def add_keys(count: int, checkout: Checkout, config: Path) -> None:
    names = config.parent / "keys.csv"
    names.write_text("name\n" + "".join(f"key-{number}\n" for number in range(count)))
    out = config.parent / "keys.out"
    words = ("key", "import", str(names), "--out", str(out))
    run_command(checkout, config, *words, seconds=IMPORT_SECONDS)


# One row for each 10 ms until now. Ids are ordered by time.
FILL = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows)
INSERT INTO requests (
  id, started_at, token_id, group_name, endpoint, format, model, channel, account, upstream_model,
  lane, stream, client_address, user_agent, bytes_in, state, status, stop_reason, input_tokens,
  output_tokens, usage_source, first_event_us, total_us, bytes_out, boot_id, upstream_format,
  attempts, catalog_model
)
SELECT
  printf('req_%014x%010x', :now - (:rows - n) * 10000, n), :now - (:rows - n) * 10000, :token,
  'default', '/v1/chat/completions', 'chat', 'beta-whole-chat', 'whole-chat', 'a1',
  'beta-whole-chat', 'native', 0, '127.0.0.1', 'bench', 400, 'ok', 200, 'stop', 57, 200,
  'upstream', 900, 1000, 300, 'bench', 'chat', 1, 'beta-whole-chat'
FROM numbers
"""


def add_rows(count: int, checkout: Checkout, config: Path) -> None:
    """Settled rows of the only key, written while no gateway runs."""
    (database,) = (config.parent / "state").glob("*.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        (token,) = connection.execute("SELECT id FROM tokens LIMIT 1").fetchone()
        values = {"rows": count, "now": time.time_ns() // 1000, "token": token}
        connection.execute(FILL, values)


@dataclass(frozen=True, slots=True)
class Growth:
    """What grows, from how much to how much."""

    name: str
    title: str
    small: Size
    large: Size


def growths(rows: int) -> list[Growth]:
    few = Size(endpoints=("whole-chat",), extra_channels=4)
    return [
        Growth(
            "keys",
            "10 → 10,000 keys",
            replace(few, prepare=partial(add_keys, 9)),
            replace(few, prepare=partial(add_keys, 9_999)),
        ),
        Growth("channels", "5 → 500 channels", few, replace(few, extra_channels=499)),
        Growth(
            "rows",
            f"0 → {rows:,} log rows",
            few,
            replace(few, prepare=partial(add_rows, rows)),
        ),
    ]


def measure_growth(growth: Growth, bench: Bench) -> list[Row]:
    """CPU per request of the large gateways; the small one of this checkout is the reference."""
    scenario = Scenario(
        name=f"scale:{growth.name}",
        title="",
        kind="whole",
        client="chat",
        upstream="chat",
        metrics=(),
        connections=32,
        seconds=bench.options.seconds,
    )
    with ExitStack() as stack:
        bench.progress(f"{scenario.name}: preparing")
        tested = {REFERENCE: stack.enter_context(bench.fresh_gateway(Checkout(), growth.small))}
        for checkout in bench.options.checkouts:
            large = bench.fresh_gateway(checkout, growth.large)
            tested[checkout.name] = stack.enter_context(large)
        values = take_turns(scenario, tested, bench)
    return [
        Row(
            name=scenario.name,
            title=f"{growth.title}: CPU per request",
            unit="µs",
            values=values,
            targets=(Target(SAME, REFERENCE),),
        )
    ]


def take_turns(scenario: Scenario, tested: dict[str, Server], bench: Bench) -> dict[str, float]:
    rounds: dict[str, list[float]] = {name: [] for name in tested}
    for server in tested.values():
        measure(scenario.warm_up(), server, bench.upstream)
    for number in range(bench.options.rounds):
        bench.progress(f"{scenario.name}: round {number + 1} of {bench.options.rounds}")
        for name, server in tested.items():
            rounds[name].append(measure(scenario, server, bench.upstream).cpu_us_per_request)
    return {name: median(each) for name, each in rounds.items()}
