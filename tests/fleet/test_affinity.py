"""A reply of one replica, named at another: its account is known there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.config.cluster import SharedServer
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.fleet import affinity
from gateway.fleet.affinity import SharedAffinity
from gateway.fleet.valkey.connection import Connection
from gateway.routing.affinity import Affinity, AffinityIndex, AffinitySource
from tests.fleet.test_health import OTHER, config
from tests.support.valkey import valkey_server

TOKEN = "tok_1"
CONVERSATION = Affinity((TOKEN, "beta-5.4", "session"), AffinitySource.HEADER)


def continuing(id: str) -> Prompt:
    return Prompt(format=Format.RESPONSES, model="beta-5.4", turns=(), previous_response_id=id)


@asynccontextmanager
async def replica(
    prefix: str, key: str = "secret-of-the-first"
) -> AsyncIterator[tuple[AffinityIndex, SharedAffinity, Connection]]:
    server = SharedServer.model_validate({"url": valkey_server().url, "prefix": prefix})
    connection, index, settings = Connection(server), AffinityIndex(), config(key)
    await connection.open()
    await connection.call("SCRIPT", "LOAD", affinity._RECORD.text)  # so that one run is the order
    try:
        yield index, SharedAffinity(connection, index, lambda: settings), connection
    finally:
        await connection.close()


async def look_up(index: AffinityIndex, sharing: SharedAffinity, id: str) -> Affinity | None:
    if (digest := index.unknown_reply(continuing(id), TOKEN)) is not None:
        await sharing.look_up(digest)
    return index.for_prompt(continuing(id), {}, TOKEN, "beta-5.4")


async def test_a_reply_of_another_replica_keeps_its_account() -> None:
    async with replica("affinity1") as (a, _, connection), replica("affinity1") as (b, sharing, _):
        a.record(CONVERSATION, TOKEN, "resp_1", OTHER)
        await connection.call("PING")
        found = await look_up(b, sharing, "resp_1")
        assert found is not None
        assert (found.account_ref, found.key) == (OTHER, CONVERSATION.key)
        assert b.unknown_reply(continuing("resp_1"), TOKEN) is None  # it is not asked for again
        assert await look_up(b, sharing, "resp_2") is None
        assert b.unknown_reply(continuing("resp_1"), "tok_2") is not None  # of another key
        names = await connection.call("KEYS", f"{connection.root}affinity:*")
        assert "resp_1" not in repr(names)
        ttl = await connection.call("TTL", next(each for each in names if b"minute" not in each))
        assert 0 < ttl <= affinity.TTL


async def test_another_account_of_the_same_name_does_not_count() -> None:
    async with (
        replica("affinity2") as (a, _, connection),
        replica("affinity2", key="a-new-secret") as (b, sharing, _),
    ):
        a.record(CONVERSATION, TOKEN, "resp_1", ("main", "first"))
        await connection.call("PING")
        assert await look_up(b, sharing, "resp_1") is None


async def test_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "MAX_PER_MINUTE", 100)
    async with replica("affinity3") as (a, _, connection):
        for number in range(300):
            a.record(CONVERSATION, TOKEN, f"resp_{number}", OTHER)
        names = await connection.call("KEYS", f"{connection.root}affinity:*")
        assert len(names) == 101


async def test_without_the_server_nothing_waits() -> None:
    async with replica("affinity4") as (a, sharing, connection):
        await connection.close()
        async with asyncio.timeout(1):
            a.record(CONVERSATION, TOKEN, "resp_1", OTHER)
            assert await look_up(a, sharing, "resp_2") is None
