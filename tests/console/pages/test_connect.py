"""The page that tells how clients are connected: what stands there works as it stands there."""

from __future__ import annotations

import asyncio
import os
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.console.visitor import VisitedPage, Visitor, signed_in_visitor
from tests.support.gateway import RunningGateway, channels, run_gateway

KEY = "YOUR_KEY"

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def shown(simulated_gateway: RunningGateway) -> VisitedPage:
    async with signed_in_visitor(simulated_gateway) as visitor:
        return await visitor.get("/console/connect")


async def _run(*command: str) -> str:
    """What the command prints. It is ended where it lasts."""
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=clean
    )
    try:
        async with asyncio.timeout(40):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, printed.decode()
    return printed.decode()


def _filled(shown: VisitedPage, id: str, gateway: RunningGateway) -> str:
    text = shown.inside(id)
    assert text is not None
    assert gateway.address in text
    return text.replace(KEY, gateway.key)


@pytest.mark.parametrize("format", ["chat", "messages", "responses"])
async def test_the_commands_work_as_they_stand(
    shown: VisitedPage, simulated_gateway: RunningGateway, format: str
) -> None:
    text = _filled(shown, f"{format}-curl", simulated_gateway)
    printed = await _run("sh", "-c", text.replace("curl -sS", "curl -sS --fail-with-body"))
    assert "usage" in printed


@pytest.mark.processes
async def test_the_programs_work_as_they_stand(
    shown: VisitedPage, simulated_gateway: RunningGateway
) -> None:
    programs = [
        _filled(shown, f"{client_format}-python", simulated_gateway)
        for client_format in ("chat", "messages", "responses")
    ]
    outputs = await asyncio.gather(*(_run(sys.executable, "-c", text) for text in programs))
    assert all(output.strip() for output in outputs)


async def test_agents_get_the_address_that_they_want(
    shown: VisitedPage, simulated_gateway: RunningGateway
) -> None:
    config = tomllib.loads(shown.inside("responses-agent") or "")
    provider = config["model_providers"][config["model_provider"]]
    assert provider["base_url"] == f"{simulated_gateway.address}/v1"
    assert provider["wire_api"] == "responses"
    assert provider["env_key"] in (shown.inside("responses-agent-key") or "")
    environment = shown.inside("messages-agent") or ""
    assert f"ANTHROPIC_BASE_URL='{simulated_gateway.address}'" in environment


async def test_no_key_stands_on_the_page(
    shown: VisitedPage, simulated_gateway: RunningGateway
) -> None:
    assert KEY in shown.text
    assert "sk-" not in shown.html
    assert shown.html.count("data-copy=") == 3 + 9


async def test_the_public_address_goes_first(tmp_path: Path) -> None:
    public = "http://gateway.test/proxy"
    async with (
        run_gateway(
            tmp_path, channels("http://127.0.0.1:1"), server={"public_url": public}
        ) as gateway,
        signed_in_visitor(gateway) as visitor,
    ):
        shown = await visitor.get("/console/connect")
        assert shown.inside("base-url-1") == f"{public}/v1"
        assert shown.inside("base-url-2") == public
        assert str(urlsplit(gateway.address).port) not in shown.text


async def test_without_channels_no_model_is_named(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, []) as gateway, signed_in_visitor(gateway) as visitor:
        assert '"MODEL"' in ((await visitor.get("/console/connect")).inside("chat-curl") or "")


async def test_clients_that_call_a_wrong_address_are_counted(
    visitor: Visitor, gateway: RunningGateway
) -> None:
    assert "None since the gateway started." in (await visitor.get("/console/connect")).text
    for _ in range(2):
        await gateway.http.post("/v1/v1/messages", headers={"user-agent": "<b>agent/1.2"})
    shown = await visitor.get("/console/connect")
    assert "/v1/v1/ <b>agent 2" in shown.text
    assert "<b>" not in shown.html
