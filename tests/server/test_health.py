"""Health checks: they need no key, so they reveal little."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.core.formats import Format
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.support.databases import locked
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.timing import SLACK
from tests.support.upstream import ScriptedUpstream, fixture_reply


async def test_healthz_and_readyz(gateway: RunningGateway) -> None:
    for path in ("/healthz", "/readyz"):
        async with gateway.http.get(path) as answer:
            assert answer.status == 200
            body = await answer.json()
            config = body.pop("config", None)
            assert body == {"status": "ok" if path == "/healthz" else "ready"}
            assert (config is None) is (path == "/healthz")
            assert "x-request-id" in answer.headers
        async with gateway.http.head(path) as answer:
            assert answer.status == 200


async def test_not_ready_without_channels(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, []) as gateway:
        assert (await gateway.get("/healthz")).status == 200
        answer = await gateway.get("/readyz")
        assert answer.status == 503
        assert answer.headers["retry-after"] == "5"


async def test_the_configuration_in_force(gateway: RunningGateway) -> None:
    runtime = gateway.daemon.runtime
    runtime.loaded_at = 1_790_000_000_123_456
    config = {"hash": runtime.current.hash, "loaded_at": "2026-09-21T14:13:20Z"}
    async with gateway.http.get("/readyz") as answer:
        assert (await answer.json())["config"] == config
    runtime.config_error = "channels.yaml:12: 3 errors, see the process log"
    for draining, status in ((False, 200), (True, 503)):
        runtime.draining = draining
        async with gateway.http.get("/readyz") as answer:
            assert answer.status == status
            assert (await answer.json())["config"] == config | {"error": runtime.config_error}


async def test_not_ready_while_draining(gateway: RunningGateway) -> None:
    gateway.daemon.runtime.draining = True
    assert (await gateway.get("/readyz")).status == 503
    assert (await gateway.get("/healthz")).status == 200


LIMITS = {"delay": {"max_write_delay": 0.2}, "backlog": {"max_unwritten": 100}}


@pytest.mark.parametrize("limit", LIMITS)
async def test_requests_are_refused_while_too_many_rows_wait(
    upstream: ScriptedUpstream, tmp_path: Path, limit: str
) -> None:
    """Nothing more is spent that nobody could account for, and refusals add nothing to what
    waits."""
    upstream.respond_with(fixture_reply(Format.CHAT))
    async with run_gateway(tmp_path, channels(upstream.address), logs=LIMITS[limit]) as gateway:
        recorder = gateway.daemon.runtime.recorder
        with locked(tmp_path / DATABASE_NAME):
            asked = await asyncio.gather(*(gateway.post(Format.CHAT) for _ in range(60)))
            assert {answer.status for answer in asked} <= {200, 503}
            async with asyncio.timeout(SLACK):
                while not recorder.is_behind(gateway.daemon.runtime.config.logs):
                    await asyncio.sleep(0.01)
            waiting, seen = recorder.backlog, len(upstream.requests)
            for format in Format:
                refused = await gateway.post(format)
                assert (refused.status, refused.headers["retry-after"]) == (503, "5")
                assert "requests cannot be recorded" in await refused.text()
            assert (await gateway.get("/v1/models")).status == 503
            assert (await gateway.get("/v1/models", key="sk-unknown")).status == 401
            ready = await gateway.get("/readyz")
            assert (ready.status, (await ready.json())["reason"]) == (
                503,
                "the request log cannot be written",
            )
            assert (recorder.backlog, len(upstream.requests)) == (waiting, seen)
        async with asyncio.timeout(SLACK):
            while (await gateway.get("/readyz")).status == 503:
                await asyncio.sleep(0.05)
        assert (await gateway.post(Format.CHAT)).status == 200
        assert len(await gateway.rows(seen + 1)) == seen + 1
