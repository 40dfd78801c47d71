"""How much a gateway holds where its cost for a request is to be the same: many keys, many
channels, a long request log."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.bench.gateway_server import Checkout, Size, run_command

IMPORT_SECONDS = 600.0


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


def growths(rows: int) -> list[tuple[str, str, Size, Size]]:
    """Name and title, the small and the large size."""
    few = Size(endpoints=("whole-chat",), extra_channels=4)
    some_keys, many_keys = (replace(few, prepare=partial(add_keys, n)) for n in (9, 9_999))
    many_rows = replace(few, prepare=partial(add_rows, rows))
    return [
        ("keys", "10 → 10,000 keys", some_keys, many_keys),
        ("channels", "5 → 500 channels", few, replace(few, extra_channels=499)),
        ("rows", f"0 → {rows:,} log rows", few, many_rows),
    ]
