"""SIGTERM while thousands of rows wait for a ledger that could not be written: none is lost.

It must not know how rows are batched.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, TCPConnector

from gateway.core.formats import Format
from gateway.store.log.merged_rejections import OWN_ROWS
from tests.resilience.chaos.client import headers, request_fields
from tests.resilience.chaos.process import (
    GatewayProcess,
    create_key,
    is_consistent,
    rows,
    write_config,
)
from tests.resilience.chaos.sample_replies import complete_body
from tests.support.gateway import PATHS
from tests.support.timing import SLACK
from tests.support.upstream import ReceivedRequest, Response, json_response, scripted_upstream

REPLIES = 200
REFUSED = 4800
CONNECTIONS = 8
PIPELINED = 50
COST = 12_500_000
"""Micro-units of a reply."""
SOON = SLACK
"""Seconds from the signal to the end of the process."""


async def answer(call: ReceivedRequest) -> Response:
    return json_response(complete_body(call.format))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Another program keeps the ledger from being written."""
    with closing(sqlite3.connect(folder / "state" / "gateway.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


async def be_answered(http: ClientSession, key: str, name: str) -> None:
    format = Format.CHAT
    body = request_fields(format, name)
    async with http.post(PATHS[format], json=body, headers=headers(key, name)) as reply:
        assert reply.status == 200


async def be_refused(address: str, key: str, times: int) -> None:
    """One request after the other on a connection, none of which is JSON; nobody waits for the
    answer to each."""
    place = urlsplit(address)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    request = (
        f"POST {PATHS[Format.CHAT]} HTTP/1.1\r\nhost: gateway\r\ncontent-length: 1\r\n"
        f"authorization: Bearer {key}\r\n\r\n{{"
    )
    for number in range(times):
        if number % PIPELINED == 0:
            writer.write(request.encode() * min(PIPELINED, times - number))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None
        await reader.readexactly(int(length[1]))
    writer.close()
    await writer.wait_closed()


@pytest.mark.timeout(120)
async def test_queued_rows_are_written_before_the_end(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with scripted_upstream(answer) as model:
        config = write_config(tmp_path, model.address)
        key = await create_key(tmp_path)
        with GatewayProcess(tmp_path, "--config", config) as gateway:
            address = gateway.address()
            with locked(tmp_path):
                connector = TCPConnector(limit=0)
                async with (
                    ClientSession(address, connector=connector) as http,
                    asyncio.TaskGroup() as group,
                ):
                    for number in range(REPLIES):
                        group.create_task(be_answered(http, key, f"paid-{number}"))
                    for _ in range(CONNECTIONS):
                        group.create_task(be_refused(address, key, REFUSED // CONNECTIONS))
                assert len(rows(tmp_path)) == 0
            gateway.signal(signal.SIGTERM)
            told_at = loop.time()
            assert await gateway.ended(30) == 0
            took = loop.time() - told_at
        assert "could not be written" not in gateway.stderr
    ledger = rows(tmp_path)
    counted = Counter[str]()
    for row in ledger:
        counted[row["state"]] += row["requests"]
    assert counted == {"ok": REPLIES, "rejected": REFUSED}
    assert len(ledger) < REPLIES + 2 * OWN_ROWS
    assert sum(row["cost_micro"] for row in ledger) == REPLIES * COST
    assert is_consistent(tmp_path)
    assert took <= SOON


@pytest.mark.timeout(60)
async def test_a_stop_that_loses_rows_says_how_many(tmp_path: Path) -> None:
    async with scripted_upstream(answer) as model:
        config = write_config(tmp_path, model.address)
        key = await create_key(tmp_path)
        with GatewayProcess(tmp_path, "--config", config) as gateway:
            async with ClientSession(gateway.address()) as http:
                with locked(tmp_path):
                    for number in range(3):
                        await be_answered(http, key, f"lost-{number}")
                    gateway.signal(signal.SIGTERM)
                    assert await gateway.ended(30) == 1
    assert gateway.stderr.splitlines()[-1] == (
        "gateway: the database could not be written (database is locked): the request log lacks "
        "3 requests or their ends"
    )
