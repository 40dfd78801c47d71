"""Old rows are deleted as configured, while the gateway runs; sums stay."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from gateway.admin import retention as room
from gateway.admin.retention import delete_old_rows
from gateway.config.load import parse_config
from gateway.core.formats import Format
from gateway.runtime import unix_microseconds
from gateway.store.log.usage import Dimension, usage
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.support.databases import on_server, raw_connection
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.timing import SLACK
from tests.support.upstream import ScriptedUpstream, fixture_reply

DAY = 86_400

SQLITE_STUCK = (
    "CREATE TRIGGER stuck BEFORE DELETE ON requests BEGIN SELECT RAISE(ABORT, 'no'); END",
    "DROP TRIGGER stuck",
)
SERVER_STUCK = (
    "CREATE RULE stuck AS ON DELETE TO requests_default DO INSTEAD NOTHING",
    "DROP RULE stuck ON requests_default",
)
"""What lets deletions fail, and its end."""


def at(gateway: RunningGateway, days: float) -> None:
    """From now on it is so many days later than it is."""
    gateway.daemon.runtime.now = lambda: unix_microseconds() + int(days * DAY * 1e6)


async def clean(gateway: RunningGateway) -> int:
    return await delete_old_rows(gateway.daemon.runtime, gateway.operations.database)


async def add_requests(gateway: RunningGateway, days: float, times: int = 2) -> None:
    """Requests that were made then."""
    at(gateway, days)
    known = len(await gateway.rows(0))
    for _ in range(times):
        assert (await gateway.post(Format.CHAT)).status == 200
    await gateway.rows(known + times)
    at(gateway, 0)


def gateway_with_retention(upstream: ScriptedUpstream, state: Path, **logs: Any) -> Any:
    return run_gateway(state, channels(upstream.address), logs=logs)


async def test_old_rows_are_deleted_and_totals_kept(
    upstream: ScriptedUpstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    caplog.set_level(logging.INFO, "gateway.admin.retention")
    async with gateway_with_retention(upstream, tmp_path, keep="3d") as gateway:
        await add_requests(gateway, -5)
        await add_requests(gateway, -1.5, times=1)
        before = await usage(gateway.operations.database, [Dimension.HOUR, Dimension.KEY])
        spent = (await gateway.operations.get_key(gateway.token.id)).cost_micro
        assert await clean(gateway) == 2
        assert len(await gateway.rows()) == 1
        assert await usage(gateway.operations.database, [Dimension.HOUR, Dimension.KEY]) == before
        assert (await gateway.operations.get_key(gateway.token.id)).cost_micro == spent
        assert (await gateway.operations.check_integrity()).ok
        assert await clean(gateway) == 0
        at(gateway, 6)
        assert await clean(gateway) == 1
    messages = [record.getMessage() for record in caplog.records]
    assert [message for message in messages if not message.startswith("created days")] == [
        "deleted 2 rows of the request log that were older than logs.keep",
        "deleted 1 rows of the request log that were older than logs.keep",
    ]


async def test_without_a_limit_rows_are_kept(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    await add_requests(gateway, -365)
    assert await clean(gateway) == 0
    assert len(await gateway.rows()) == 2
    report = await gateway.operations.check_integrity()
    assert report.ok
    assert report.rows == 2


async def test_a_changed_configuration_applies(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    await add_requests(gateway, -5)
    config = gateway.daemon.runtime.config
    gateway.daemon.runtime.replace_config(
        config.model_copy(update={"logs": parse_config("logs: {keep: 1d}").logs})
    )
    assert await clean(gateway) == 2
    assert await gateway.rows(0) == []


async def test_rows_are_deleted_soon_after_the_start(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at once: the first requests have the start for themselves."""
    assert 1 <= room.START_DELAY <= 60
    upstream.respond_with(fixture_reply("chat"))
    async with gateway_with_retention(upstream, tmp_path) as gateway:
        await add_requests(gateway, -5)
    began = time.monotonic()
    monkeypatch.setattr(room, "START_DELAY", 0.5)
    async with (
        gateway_with_retention(upstream, tmp_path, keep="2d") as gateway,
        asyncio.timeout(SLACK),
    ):
        while await gateway.rows(0):
            await asyncio.sleep(0.01)
        assert time.monotonic() - began > 0.5
        assert (await gateway.operations.check_integrity()).ok


async def test_end_users_are_cleared_where_rows_are_kept_longer(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with gateway_with_retention(upstream, tmp_path) as gateway:
        await gateway.operations.update_key(gateway.token.id, trust=("end-user", "tag"))
        for number, days in enumerate((-5, -1), 1):
            at(gateway, days)
            tag = {"x-gateway-tag": "nightly"}
            assert (await gateway.post(Format.CHAT, user="ann", headers=tag)).status == 200
            await gateway.rows(number)
        assert [row.end_user for row in await gateway.rows(2)] == ["ann", "ann"]
    monkeypatch.setattr(room, "START_DELAY", 0.05)
    async with (
        gateway_with_retention(upstream, tmp_path, end_users={"keep": "2d"}) as gateway,
        asyncio.timeout(SLACK),
    ):
        while (rows := await gateway.rows(2))[0].end_user is not None:
            await asyncio.sleep(0.01)
        assert [(row.end_user, row.tag) for row in rows] == [(None, "nightly"), ("ann", "nightly")]
        assert (await gateway.operations.check_integrity()).ok


async def test_a_failed_deletion_is_retried(
    upstream: ScriptedUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Requests are served meanwhile."""
    upstream.respond_with(fixture_reply("chat"))
    async with gateway_with_retention(upstream, tmp_path) as gateway:
        await add_requests(gateway, -5)
    monkeypatch.setattr(room, "START_DELAY", 0.05)
    monkeypatch.setattr(room, "CHECK_INTERVAL", 0.05)  # earlier it would create that day
    stuck, not_stuck = SERVER_STUCK if on_server() else SQLITE_STUCK
    with raw_connection(tmp_path / DATABASE_NAME) as connection:
        connection.execute(stuck)
    async with gateway_with_retention(upstream, tmp_path, keep="2d") as gateway:
        async with asyncio.timeout(SLACK):
            while "could not be deleted" not in caplog.text:
                await asyncio.sleep(0.01)
        assert (await gateway.post(Format.CHAT)).status == 200
        assert len(await gateway.rows(3)) == 3
        with raw_connection(tmp_path / DATABASE_NAME) as connection:
            connection.execute(not_stuck)
        async with asyncio.timeout(SLACK):
            while len(await gateway.rows()) > 1:
                await asyncio.sleep(0.01)
        assert (await gateway.operations.check_integrity()).ok


async def test_a_round_adds_up_past_days(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """With a file there is nothing to add up."""
    upstream.respond_with(fixture_reply("chat"))
    async with gateway_with_retention(upstream, tmp_path) as gateway:
        await add_requests(gateway, -5)
        await add_requests(gateway, 0)
        database = gateway.operations.database
        await room.add_up_usage(database)
        if on_server():
            async with database.reader.connect() as connection:
                days = await connection.execute(text("SELECT sum(requests) FROM usage_days"))
                assert days.scalar_one() == 2
        (row,) = await usage(database)
        assert row.requests == 4
        assert (await gateway.operations.check_integrity()).ok
