"""On a database server a request leaves for its upstream when its row is written."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg

from gateway.core.formats import Format
from gateway.server.record.exchange import INTENT_TIMEOUT
from gateway.store.records import ExchangeState
from tests.server.key_limits import start_request
from tests.server.proxy.test_relay_leases import leasing_gateway
from tests.support.postgres import postgres_server
from tests.support.upstream import ScriptedUpstream, fixture_reply


async def test_an_upstream_is_asked_after_the_row_is_written(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    loop = asyncio.get_running_loop()
    async with leasing_gateway(postgres_server(), tmp_path, upstream) as gateway:
        server = gateway.daemon.runtime.config.database
        assert server is not None
        other = await asyncpg.connect(server.url.get_secret_value())
        await other.execute("BEGIN; LOCK TABLE requests IN SHARE MODE")
        began = loop.time()
        running = start_request(gateway)
        await asyncio.sleep(INTENT_TIMEOUT / 2)
        released = loop.time()
        await other.close()
        answer = await running
        assert answer.status == 200
        assert (await gateway.row()).state is ExchangeState.OK
    (request,) = upstream.requests
    assert request.arrived_at > min(released, began + INTENT_TIMEOUT)
