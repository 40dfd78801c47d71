"""Starting and stopping one gateway, in the test's own loop."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from aiohttp import ClientSession

from gateway.config.load import parse_config
from gateway.config.schema import Config
from gateway.core.formats import Format
from gateway.daemon import run_daemon, systemd_notifications
from gateway.server.http.listener import BindError
from gateway.store.errors import StateLocked
from tests.resilience.chaos.client import headers, request_fields
from tests.resilience.chaos.sample_replies import sample_stream
from tests.support.databases import database_options, on_server
from tests.support.formats.endings import error_at_end
from tests.support.gateway import PATHS, channels, run_gateway
from tests.support.timing import SLACK
from tests.support.upstream import ReceivedRequest, scripted_upstream


def config(state_dir: Path, **server: Any) -> Config:
    text = {"state_dir": str(state_dir), "server": {"port": 0} | server}
    text |= database_options(state_dir)
    return parse_config(orjson.dumps(text).decode())


async def knock(address: str) -> int:
    async with ClientSession(address) as http, http.get("/healthz") as answer:
        return answer.status


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
async def test_it_serves_on_its_address(tmp_path: Path, host: str, expected: str) -> None:
    async with run_daemon(config(tmp_path, host=host)) as daemon:
        assert daemon.address.rpartition(":")[0] == f"http://{expected}"
        assert await knock(daemon.address) == 200


async def test_it_leaves_only_the_database(tmp_path: Path) -> None:
    async with run_daemon(config(tmp_path)) as daemon:
        await knock(daemon.address)
    before = psutil.Process().num_fds()
    async with run_daemon(config(tmp_path)) as daemon:
        await knock(daemon.address)
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    assert len(asyncio.all_tasks()) == 1
    assert psutil.Process().num_fds() == before
    left = ["lock", "replica", "spool.db"] if on_server() else ["gateway.db", "lock"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    assert (tmp_path / "lock").read_text() == ""


async def test_one_state_directory_has_one_daemon(tmp_path: Path) -> None:
    async with run_daemon(config(tmp_path)) as daemon:
        with pytest.raises(StateLocked, match=f"in use by process {os.getpid()}"):
            async with run_daemon(config(tmp_path)):
                raise AssertionError("a second daemon runs")
        assert await knock(daemon.address) == 200


async def test_a_failed_start_releases_everything(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        await fails_to_start(config(tmp_path, port=port))
    assert len(asyncio.all_tasks()) == 1
    async with run_daemon(config(tmp_path)) as daemon:
        assert await knock(daemon.address) == 200


async def test_a_change_of_keys_applies_immediately_and_survives(tmp_path: Path) -> None:
    async with run_daemon(config(tmp_path)) as daemon:
        token, key = await daemon.operations.create_key("tests", "default")
        revoked, gone = await daemon.operations.create_key("tests", "default")
        await daemon.operations.revoke_key(revoked.id)
    async with run_daemon(config(tmp_path)) as daemon, ClientSession(daemon.address) as http:
        for name, status in ((key, 200), (gone, 401)):
            bearer = {"authorization": f"Bearer {name}"}
            async with http.get("/v1/models", headers=bearer) as answer:
                assert answer.status == status
        assert [each.id for each in await daemon.operations.list_keys()] == [token.id, revoked.id]


async def fails_to_start(config: Config) -> None:
    with pytest.raises(BindError, match="address already in use"):
        async with run_daemon(config):
            raise AssertionError("two servers on one port")


async def begin_and_wait(call: ReceivedRequest) -> None:
    await call.answer.begin_stream()
    await call.answer.say(sample_stream(call.format).opening)
    await call.disconnected.wait()


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_abort_twice_ends_requests_once(tmp_path: Path, turns: int) -> None:
    """Signals can come at any time, also during the effect of the first."""
    async with (
        scripted_upstream(begin_and_wait) as model,
        run_gateway(tmp_path, channels(model.address), server={"drain_timeout": 30}) as gateway,
        gateway.http.post(
            PATHS[Format.MESSAGES],
            json=request_fields(Format.MESSAGES, "waits", stream=True),
            headers=headers(gateway.key, "waits"),
        ) as answer,
    ):
        begun = await answer.content.readany()
        gateway.daemon.runtime.draining = True
        gateway.daemon.abort()
        for _ in range(turns):
            await asyncio.sleep(0)
        gateway.daemon.abort()
        async with asyncio.timeout(SLACK):
            body = begun + await answer.read()
        assert error_at_end(Format.MESSAGES, body)
        assert (await gateway.row()).end_reason == "failed"


async def test_systemd_is_notified_of_a_failed_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        async with run_daemon(config(tmp_path / "state", drain_timeout=3)) as daemon:
            with pytest.raises(KeyError):
                async with systemd_notifications(daemon):
                    raise KeyError
            assert systemd.recv(1024).decode() == f"READY=1\nSTATUS=serving on {daemon.address}"
            assert systemd.recv(1024) == b"STOPPING=1\nEXTEND_TIMEOUT_USEC=23000000"
