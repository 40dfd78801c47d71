"""A new configuration in a running gateway: all of it or nothing, without a failed request."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.admin.reload import ConfigSource
from gateway.admin.socket_path import socket_path
from gateway.config.document import ConfigError
from gateway.config.load import parse_config
from gateway.core.formats import Format
from gateway.routing.circuit_breaker import HealthState
from tests.admin.config_follower import NAME, ConfigFollower, follow_config, messages_channel, write
from tests.resilience.faults.upstream import FaultUpstream, fault_upstream
from tests.support.formats.endings import is_complete
from tests.support.gateway import PATHS, request_body

SECRET = "sk-live-4471aa99"
BROKEN = {
    "nothing": "",
    "no channels": "server: {port: 0}\n",
    "half a line": "channels:\n  - {name: a, form",
    "no YAML": "a: b: c\n",
    "no text": b"\xff\xfe\x00",
    "a list": "- 1\n",
    "an unknown key": f"chanels: []\nserver: {{key: {SECRET}}}\n",
    "a repeated key": "channels: []\nchannels: []\n",
    "a wrong type": "channels: 7\nserver: {port: none}\n",
    "no accounts": "channels: [{name: a, format: chat, base_url: 'http://a/v1', models: [m]}]\n",
    "a variable that is not set": (
        "channels: [{name: a, format: messages, base_url: 'http://127.0.0.1:1',"
        " models: [alpha-sonnet-4-6], accounts: [{name: a, key: '${GATEWAY_TEST_UNSET}'}]}]\n"
    ),
    "an anchor": "channels: &a []\nmodels: *a\n",
}


@pytest.fixture
async def faulty() -> AsyncIterator[FaultUpstream]:
    async with fault_upstream() as upstream:
        yield upstream


async def test_broken_files_under_load_fail_no_request(
    tmp_path: Path, faulty: FaultUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    async with follow_config(tmp_path, messages_channel(faulty, "one", "two")) as it:
        statuses: list[int] = []
        done = asyncio.Event()

        async def ask_on(stream: bool) -> None:
            while not done.is_set():
                answer = await it.gateway.post(Format.MESSAGES, stream=stream)
                sound = not stream or is_complete(Format.MESSAGES, await answer.read())
                statuses.append(answer.status if sound else 0)

        current, (_, before), problems = it.runtime.current, await it.ready(), 0
        asking = [asyncio.ensure_future(ask_on(bool(n % 2))) for n in range(4)]
        try:
            for text in BROKEN.values():
                it.write(text)
                request = len(statuses)
                with pytest.raises(ConfigError) as error:
                    await it.reloader.reload()
                problems += len(error.value.problems)
                assert it.runtime.current is current
                status, config = await it.ready()
                assert status == 200
                assert re.fullmatch(
                    r"channels\.yaml(:\d+)?: \d errors?, see the process log", config.pop("error")
                )
                assert config == before
                await it.until(lambda request=request: len(statuses) > request + 8)
        finally:
            done.set()
            await asyncio.gather(*asking)
        assert set(statuses) == {200}
        assert {row.config_hash for row in await it.gateway.rows()} == {before["hash"]}
        assert len(BROKEN) == 12
        assert caplog.text.count("the configuration is unchanged: ") == problems
        assert f"{it.file}:2: server.key: unknown key" in caplog.text
        assert SECRET not in caplog.text
        await it.reload(messages_channel(faulty, "one", "two"))
        assert "error" not in (await it.ready())[1]


async def test_a_removed_account_ends_its_streams(tmp_path: Path, faulty: FaultUpstream) -> None:
    async with follow_config(tmp_path, messages_channel(faulty, "old", plan="tick:0.02:25")) as it:
        old, gateway = it.runtime.current, it.gateway
        async with gateway.http.post(
            PATHS[Format.MESSAGES],
            json=request_body(Format.MESSAGES, stream=True),
            headers={"x-api-key": gateway.key, "anthropic-version": "2023-06-01"},
        ) as running:
            begun = await running.content.readany()
            reloaded = await it.reload(messages_channel(faulty, "new"))
            assert reloaded.changes.added == (f"account {NAME}/new",)
            assert reloaded.changes.removed == (f"account {NAME}/old",)
            assert (await gateway.post(Format.MESSAGES)).status == 200
            assert [call.key for call in faulty.requests] == ["old", "new"]
            assert (old.active_requests, old.upstream.is_closed) == (1, False)
            assert is_complete(Format.MESSAGES, begun + await running.read())
        await it.until(lambda: old.upstream.is_closed)
        first, second = await gateway.rows(2)
        assert (first.account, first.state, second.account) == ("old", "ok", "new")
        assert first.config_hash == old.hash
        assert second.config_hash == it.runtime.current.hash == reloaded.hash != old.hash


async def test_an_idle_connection_is_closed_immediately(
    tmp_path: Path, faulty: FaultUpstream
) -> None:
    async with follow_config(tmp_path, messages_channel(faulty, "one")) as it:
        assert (await it.gateway.post(Format.MESSAGES)).status == 200
        await it.gateway.rows()
        old = it.runtime.current
        await it.reload(messages_channel(faulty, "one", priority=3))
        await it.until(lambda: old.upstream.is_closed)


async def test_a_new_key_applies_immediately_and_ends_a_ban(
    tmp_path: Path, faulty: FaultUpstream
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first\n")
    accounts = [{"name": "one", "key": f"file:{secret}"}]
    faulty.set_plan("refuse:401", key="first")
    async with follow_config(tmp_path, messages_channel(faulty, accounts=accounts)) as it:
        place, model = (NAME, "one"), "alpha-sonnet-4-6"
        assert (await it.gateway.post(Format.MESSAGES)).status >= 500
        now = asyncio.get_running_loop().time()
        assert it.runtime.health.status(place, model, now).state is HealthState.AUTH_FAILED
        secret.write_text("second\n")
        reloaded = await it.reloader.reload()
        assert reloaded.changes.changed == (f"account {NAME}/one",)
        assert it.runtime.health.status(place, model, now).state is HealthState.HEALTHY
        assert (await it.gateway.post(Format.MESSAGES)).status == 200
        assert faulty.requests[-1].key == "second"


async def test_health_of_unchanged_accounts_is_kept(tmp_path: Path, faulty: FaultUpstream) -> None:
    faulty.set_plan("refuse:401", key="bad")
    async with follow_config(tmp_path, messages_channel(faulty, "bad", "off", "good")) as it:
        health, now = it.runtime.health, asyncio.get_running_loop().time()

        def states() -> list[str]:
            return [health.status((NAME, name), "m", now).state for name in ("bad", "off")]

        health.disable((NAME, "off"))
        for number in range(30):
            await it.gateway.post(Format.MESSAGES, system=f"conversation {number}")
            if states()[0] is HealthState.AUTH_FAILED:
                break
        assert states() == [HealthState.AUTH_FAILED, HealthState.DISABLED]
        await it.reload(messages_channel(faulty, "bad", "off", "good", weight=3))
        assert states() == [HealthState.AUTH_FAILED, HealthState.DISABLED]
        await it.reload(messages_channel(faulty, "bad", "off", "good", headers={"x-more": "1"}))
        assert states() == [HealthState.HEALTHY, HealthState.DISABLED]
        await it.reload(messages_channel(faulty, "good"))
        await it.reload(messages_channel(faulty, "bad", "off", "good"))
        assert states() == [HealthState.HEALTHY, HealthState.HEALTHY]


async def test_fixed_settings_need_a_restart(
    tmp_path: Path, faulty: FaultUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    async with follow_config(tmp_path, messages_channel(faulty, "one")) as it:
        old = it.runtime.config
        server = {"port": 1, "max_body": "1KiB", "commit_after": 3, "drain_timeout": 1}
        state_dir = str(tmp_path / "elsewhere")
        reloaded = await it.reload(
            messages_channel(faulty, "one"), server=server, state_dir=state_dir, traces={}
        )
        assert reloaded.warnings == tuple(
            f"{name} stays unchanged until a restart."
            for name in ("server.port", "server.max_body", "state_dir", "traces")
        )
        assert all(warning in caplog.text for warning in reloaded.warnings)
        new = it.runtime.config
        assert (new.server.port, new.server.max_body) == (0, old.server.max_body)
        assert (new.state_dir, new.server.commit_after) == (old.state_dir, 3)
        assert new.traces is None
        assert (await it.gateway.post(Format.MESSAGES, system="x" * 3000)).status == 200


async def test_affinity_headers(tmp_path: Path, faulty: FaultUpstream) -> None:
    named = {"x-thread": "t-1"}
    affinity = {"headers": ["X-Thread"]}
    async with follow_config(tmp_path, messages_channel(faulty, "one"), affinity=affinity) as it:
        await it.gateway.post(Format.MESSAGES, headers=named)
        await it.reload(messages_channel(faulty, "one"), affinity={"headers": ["x-other"]})
        await it.gateway.post(Format.MESSAGES, headers=named)
        await it.reload(messages_channel(faulty, "one"), affinity=affinity)
        await it.gateway.post(Format.MESSAGES, headers=named)
        affinities = [row.affinity for row in await it.gateway.rows(3)]
        assert affinities == ["session header", "prompt prefix", "session header"]


async def test_the_model_list(tmp_path: Path, faulty: FaultUpstream) -> None:
    async with follow_config(tmp_path, messages_channel(faulty, "one")) as it:
        before = await (await it.gateway.get("/v1/models")).json()
        reloaded = await it.reload(
            messages_channel(faulty, "one", models=["alpha-x"]),
            models=[{"id": "alpha-x", "family": "alpha"}],
        )
        after = await (await it.gateway.get("/v1/models")).json()
        assert [model["id"] for model in after["data"]] == ["alpha-x"] != before["data"]
        assert "model alpha-x" in reloaded.changes.added
        assert (await it.gateway.post(Format.MESSAGES)).status == 503


async def test_an_unchanged_file_changes_nothing(
    tmp_path: Path, faulty: FaultUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with follow_config(tmp_path, messages_channel(faulty, "one")) as it:
        current = it.runtime.current
        first, second = await asyncio.gather(it.reloader.reload(), it.reloader.reload())
        assert first == second
        assert it.runtime.current is current
        assert caplog.text.count(f"{current.hash} is active: unchanged") == 2


async def test_file_changes_are_applied(tmp_path: Path, faulty: FaultUpstream) -> None:
    async with follow_config(tmp_path, messages_channel(faulty, "one"), period=0.03) as it:
        first = it.runtime.current.hash

        async def used_key() -> str:
            assert (await it.gateway.post(Format.MESSAGES)).status == 200
            return faulty.requests[-1].key

        it.configure(messages_channel(faulty, "two"))
        await it.until(lambda: it.runtime.current.hash != first)
        assert await used_key() == "two"
        it.file.unlink()
        await it.until(
            lambda: it.runtime.config_error == "channels.yaml: 1 error, see the process log"
        )
        assert await used_key() == "two"
        it.configure(messages_channel(faulty, "one"))
        await it.until(lambda: it.runtime.current.hash == first)
        assert it.runtime.config_error is None
        assert await used_key() == "one"


async def test_an_invalid_file_is_reported_once(
    tmp_path: Path, faulty: FaultUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    async with follow_config(tmp_path, messages_channel(faulty, "one"), period=0.01) as it:
        it.write("channels: 7\n")
        await it.until(lambda: it.runtime.config_error is not None)
        await asyncio.sleep(0.2)
        assert caplog.text.count("channels: must be a list") == 1


async def test_an_internal_error_does_not_end_following(
    tmp_path: Path, faulty: FaultUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    async with follow_config(tmp_path, messages_channel(faulty, "one")) as it:
        sound = it.reloader.source.load

        def fault() -> None:
            raise KeyError

        it.reloader.source.load = fault
        it.gateway.daemon.reload()
        await it.until(lambda: "its reload failed" in caplog.text)
        it.reloader.source.load = sound
        it.configure(messages_channel(faulty, "two"))
        it.gateway.daemon.reload()
        await it.until(lambda: it.runtime.config.channels[0].accounts[0].name == "two")


def test_a_change_applies_when_the_file_is_stable(tmp_path: Path) -> None:
    file = tmp_path / "channels.yaml"
    write(file, "models: []")
    source = ConfigSource(file, lambda: parse_config("{}"))
    source.read()
    assert [source.changed() for _ in range(3)] == [False] * 3
    write(file, "half")
    assert not source.changed()
    write(file, "half, and the rest")
    assert not source.changed()
    assert source.changed()
    source.read()
    assert not source.changed()
    file.unlink()
    assert [source.changed() for _ in range(2)] == [False, True]


async def test_over_the_socket(tmp_path: Path, faulty: FaultUpstream) -> None:
    async with follow_config(tmp_path, messages_channel(faulty, "one")) as it:
        status, answer = await over_the_socket(it)
        assert (status, answer["ok"], answer["hash"]) == (200, True, it.runtime.current.hash)
        assert answer["changes"] == {"added": [], "removed": [], "changed": []}
        it.write("channels: 7\n")
        status, answer = await over_the_socket(it)
        assert (status, answer["ok"]) == (200, False)
        (mistake,) = answer["mistakes"]
        assert (mistake["path"], mistake["line"]) == ("channels", 1)
        assert mistake["file"] == str(it.file)


async def over_the_socket(it: ConfigFollower) -> tuple[int, dict[str, Any]]:
    connector = aiohttp.UnixConnector(str(socket_path(it.file.parent / "state")))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post("http://gateway/admin/api/reload", data=b"{}") as answer,
    ):
        return answer.status, await answer.json()
