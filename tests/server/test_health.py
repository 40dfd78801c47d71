"""Health checks: they need no key, so they reveal little."""

from __future__ import annotations

from pathlib import Path

from tests.support.gateway import RunningGateway, run_gateway


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
