"""Browsers: nothing unless origins are configured."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import ClientSession

from gateway.core.formats import Format
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_stream

ORIGIN = "https://console.test"
ASK = {"origin": ORIGIN, "access-control-request-method": "POST"}


async def _preflight(http: ClientSession, path: str, **headers: str) -> tuple[int, dict[str, str]]:
    async with http.options(path, headers={**ASK, **headers}) as answer:
        return answer.status, {name.lower(): value for name, value in answer.headers.items()}


async def test_off(gateway: RunningGateway) -> None:
    status, headers = await _preflight(gateway.http, "/v1/messages")
    assert status == 405
    assert "access-control-allow-origin" not in headers
    answer = await gateway.get("/v1/models", origin=ORIGIN)
    assert answer.status == 200
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("configured", [[ORIGIN, "http://other.test"], ["*"]])
async def test_on(upstream: ScriptedUpstream, tmp_path: Path, configured: list[str]) -> None:
    upstream.respond_with(fixture_stream("chat"))
    lines = channels(upstream.address)
    async with run_gateway(tmp_path, lines, server={"cors": configured}) as gateway:
        status, headers = await _preflight(gateway.http, "/v1/messages")
        assert status == 204
        assert headers["access-control-allow-origin"] == ORIGIN
        allowed = headers["access-control-allow-headers"].split(", ")
        assert {"authorization", "x-api-key", "content-type", "anthropic-version"} <= set(allowed)
        assert "x-gateway-strict" in allowed
        assert len(allowed) == len(set(allowed))
        assert "access-control-allow-credentials" not in headers

        for answer in (
            await gateway.get("/v1/models", origin=ORIGIN),
            await gateway.get("/v1/models", "sk-wrong", origin=ORIGIN),
            await gateway.post(Format.CHAT, stream=True, headers={"origin": ORIGIN}),
        ):
            assert answer.headers["access-control-allow-origin"] == ORIGIN
            assert answer.headers["vary"] == "origin"
            output = answer.headers["access-control-expose-headers"].split(", ")
            assert {"request-id", "x-request-id", "retry-after", "x-should-retry"} < set(output)
            assert {"x-gateway-dropped", "x-gateway-estimated"} < set(output)
            assert {"x-ratelimit-remaining-tokens", "anthropic-ratelimit-tokens-reset"} < set(
                output
            )

        status, headers = await _preflight(gateway.http, "/v1/messages", origin="https://evil.test")
        assert ("access-control-allow-origin" in headers) == (configured == ["*"])
        assert headers["vary"] == "origin"
        answer = await gateway.get("/v1/models")
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["vary"] == "origin"


async def test_headers_with_names_of_the_configuration(tmp_path: Path) -> None:
    named = {"version_headers": ["House-Version"], "beta_headers": ["house-beta", "other-beta"]}
    async with run_gateway(tmp_path, [], server={"cors": [ORIGIN], **named}) as gateway:
        _, headers = await _preflight(gateway.http, "/v1/messages")
        allowed = headers["access-control-allow-headers"].split(", ")
        assert {"house-version", "house-beta", "other-beta"} <= set(allowed)
        assert not {"anthropic-version", "vendor-version", "vendor-beta"} & set(allowed)
