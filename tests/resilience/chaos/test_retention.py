"""Old rows are deleted while clients are served, who hardly notice.

Independent of in which order rows go.
"""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from aiohttp import ClientSession, TCPConnector

from gateway.core.formats import Format
from tests.resilience.chaos.client import headers, request_fields
from tests.resilience.chaos.load import Load
from tests.resilience.chaos.process import (
    GatewayProcess,
    create_key,
    is_consistent,
    rows,
    write_config,
)
from tests.support.gateway import PATHS
from tests.support.upstream import fixture_stream, scripted_upstream

OLD: Final = 50_000
RATE: Final = 200
HOUR: Final = 3_600_000_000
DAY: Final = 24 * HOUR
AFTER: Final = 3
"""Seconds of serving without any deletion, to compare with."""
NOTICED: Final = 0.25
"""Seconds."""
MOST: Final = 16
"""Requests at once."""
ROUNDS: Final = 3
"""One without any delay shows it: the others are for machines that have other things to do."""


def remember(folder: Path, count: int) -> None:
    """The ledger has so many more rows of a hundred days ago, with an attempt each."""
    hour = (time.time_ns() // 1000 - 100 * DAY) // HOUR
    names = (f"req_{hour * HOUR + number:014x}{number:010x}" for number in range(count))
    with closing(sqlite3.connect(folder / "state" / "gateway.db")) as ledger, ledger:
        (token,) = ledger.execute("SELECT id FROM tokens").fetchone()
        ledger.executemany(
            "INSERT INTO requests (id, started_at, token_id, group_name, endpoint, format, stream,"
            " bytes_in, state, input_tokens, cost_micro, boot_id) VALUES"
            " (?, ?, ?, 'default', '/v1/messages', 'messages', 1, 2, 'ok', 10, 7, 'boot')",
            ((name, hour * HOUR + number, token) for number, name in enumerate(names)),
        )
        ledger.execute(
            "INSERT INTO attempts (request_id, number, channel, account, upstream_model, format,"
            " lane, reason, started_us, total_us, verdict) SELECT id, 1, 'main', 'a1', 'm',"
            " 'messages', 'native', 'x', 1, 2, 'ok' FROM requests WHERE boot_id = 'boot'"
        )
        sums = {"requests": count, "input_tokens": 10 * count, "cost_micro": 7 * count}
        more = ", ".join(f"{name} = {name} + :{name}" for name in sums)
        ledger.execute(
            "INSERT INTO usage_hours (hour, token_id, group_name, model, requests, input_tokens,"
            " cost_micro) VALUES (:hour, :token, 'default', '', :requests, :input_tokens,"
            f" :cost_micro) ON CONFLICT DO UPDATE SET {more}",
            sums | {"hour": hour, "token": token},
        )
        ledger.execute(f"UPDATE tokens SET {more}", sums)


def any_left(folder: Path) -> bool:
    with closing(sqlite3.connect(f"file:{folder}/state/gateway.db?mode=ro", uri=True)) as ledger:
        oldest = ledger.execute("SELECT boot_id FROM requests ORDER BY id LIMIT 1").fetchone()
    return oldest is not None and oldest[0] == "boot"


async def be_answered(http: ClientSession, key: str, number: int) -> None:
    format = Format.CHAT
    body = request_fields(format, "Hello", stream=True)
    async with http.post(PATHS[format], json=body, headers=headers(key, f"{number}")) as answer:
        assert answer.status == 200
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")


async def noticed(folder: Path, config: Path, key: str) -> tuple[int, float]:
    """How many requests were answered, and how many seconds the slowest of them took longer while
    rows were deleted than the slowest one after that."""
    remember(folder, OLD)
    with GatewayProcess(folder, "--config", config) as gateway:
        connector = TCPConnector(limit=0)
        async with ClientSession(gateway.address(), connector=connector) as http:
            load = Load(partial(be_answered, http, key), RATE, MOST)
            await load.go_on(lambda: not any_left(folder))
            meanwhile, load.took = load.took, []
            await load.go_on_for(AFTER)
        gateway.signal(signal.SIGTERM)
        assert await gateway.ended(20) == 0
    assert "could not be deleted" not in gateway.stderr
    return load.sent, max(meanwhile) - max(load.took)


@pytest.mark.timeout(120)
async def test_a_deletion_delays_no_request(tmp_path: Path) -> None:
    async with scripted_upstream() as upstream:
        upstream.respond_with(fixture_stream("chat"))
        keep = {"logs": {"keep": "90d"}}
        config = write_config(tmp_path, upstream.address, sections=keep)
        key = await create_key(tmp_path)
        answered, slower = await noticed(tmp_path, config, key)
        for _ in range(ROUNDS - 1):
            if slower > NOTICED:
                more, slower = await noticed(tmp_path, config, key)
                answered += more
    assert slower <= NOTICED
    assert len(rows(tmp_path)) == answered
    assert is_consistent(tmp_path)
