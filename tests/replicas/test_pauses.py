"""A replica that is paused is lost, then expired; it comes back, and serves nothing that was
forbidden meanwhile. Of two with one name one does not start."""

from __future__ import annotations

import asyncio
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Fleet, Replica, run_fleet

EXPIRY = 10
"""Seconds, of the fleets of tests."""


def status_of(replica: Replica, key: str, timeout: float = 10) -> int:
    request = urllib.request.Request(f"{replica.address}/v1/models")
    request.add_header("authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


async def listed(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """As the first replica sees them."""
    answer = await fleet.replicas[0].command("replicas")
    return {each["name"]: each for each in answer["items"]}


async def until(condition: Callable[[], Awaitable[bool]], seconds: float) -> float:
    started = time.monotonic()
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.1)
    return time.monotonic() - started


@pytest.mark.full
@pytest.mark.timeout(180)
async def test_a_paused_replica_expires_and_comes_back(
    tmp_path: Path, record_property: Any
) -> None:
    async with run_fleet(tmp_path, 2) as fleet:
        first, paused = fleet.replicas
        kept = await fleet.mint()
        revoked = await first.command("key", "mint", "--name", "revoked")
        assert [status_of(paused, key) for key in (kept, revoked["key"])] == [200, 200]

        async def is_lost() -> bool:
            return (await listed(fleet))["r2"]["state"] == "lost"

        async def is_expired() -> bool:
            return (await listed(fleet))["r2"]["state"] == "expired"

        async def is_served() -> bool:
            return await asyncio.to_thread(status_of, paused, kept) == 200

        async def is_back() -> bool:
            return (await listed(fleet)).get("r2", {}).get("state") == "serving"

        paused.signal(signal.SIGSTOP)
        record_property("lost", await until(is_lost, 15))
        await first.command("key", "revoke", revoked["id"])
        record_property("expired", await until(is_expired, 3 * EXPIRY))
        assert status_of(first, kept) == 200
        paused.signal(signal.SIGCONT)
        # What was revoked meanwhile is never served, and what was not is refused only shortly.
        assert status_of(paused, revoked["key"]) in (401, 503)
        record_property("back", await until(is_served, 10))
        assert status_of(paused, revoked["key"]) == 401
        await until(is_back, 5)
        assert "r2 was not heard of for 10 s: 0 of its requests are settled" in first.log


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_a_second_replica_of_one_name_does_not_start(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 2, started=False) as fleet:
        first, second = fleet.replicas
        second.config.write_text(second.config.read_text().replace('"name":"r2"', '"name":"r1"'))
        assert '"r1"' in second.config.read_text()
        await first.start()
        second.launch()
        assert second.process is not None
        assert await asyncio.to_thread(second.process.wait, 30) != 0
        assert re.search("another replica has the name 'r1'", second.log)
        assert "Traceback" not in second.log
        assert first.readiness() == 200
        first.kill()
        second.launch()  # it waits for nothing: the first could still run
        assert await asyncio.to_thread(second.process.wait, 30) != 0
        await asyncio.sleep(EXPIRY)
        await second.start()  # now nobody has heard of it for its expiry


@pytest.mark.timeout(120)
async def test_a_killed_replica_starts_again_at_once(tmp_path: Path, record_property: Any) -> None:
    async with run_fleet(tmp_path, 2) as fleet:
        first, killed = fleet.replicas
        killed.kill()
        started = time.monotonic()
        await killed.start()
        record_property("seconds", time.monotonic() - started)
        assert status_of(killed, await fleet.mint()) == 200

        async def serves() -> bool:
            return (await listed(fleet))["r2"]["state"] == "serving"

        await until(serves, 10)
        assert await first.stop() == 0
