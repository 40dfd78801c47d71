"""The page for connecting clients: its snippets work unchanged."""

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
async def page(simulated_gateway: RunningGateway) -> VisitedPage:
    async with signed_in_visitor(simulated_gateway) as visitor:
        return await visitor.get("/console/connect")


async def _run(*command: str) -> str:
    """The output of the command, which must succeed in time."""
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


def _filled(page: VisitedPage, id: str, gateway: RunningGateway) -> str:
    text = page.inside(id)
    assert text is not None
    assert gateway.address in text
    return text.replace(KEY, gateway.key)


@pytest.mark.parametrize("format", ["chat", "messages", "responses"])
async def test_the_curl_snippets_work(
    page: VisitedPage, simulated_gateway: RunningGateway, format: str
) -> None:
    text = _filled(page, f"{format}-curl", simulated_gateway)
    printed = await _run("sh", "-c", text.replace("curl -sS", "curl -sS --fail-with-body"))
    assert "usage" in printed


@pytest.mark.slow("starts an interpreter for each snippet")
@pytest.mark.processes
async def test_the_python_snippets_work(
    page: VisitedPage, simulated_gateway: RunningGateway
) -> None:
    programs = [
        _filled(page, f"{format}-python", simulated_gateway)
        for format in ("chat", "messages", "responses")
    ]
    outputs = await asyncio.gather(*(_run(sys.executable, "-c", text) for text in programs))
    assert all(output.strip() for output in outputs)


async def test_base_urls_of_agents(page: VisitedPage, simulated_gateway: RunningGateway) -> None:
    config = tomllib.loads(page.inside("responses-agent") or "")
    provider = config["model_providers"][config["model_provider"]]
    assert provider["base_url"] == f"{simulated_gateway.address}/v1"
    assert provider["wire_api"] == "responses"
    assert provider["env_key"] in (page.inside("responses-agent-key") or "")
    environment = page.inside("messages-agent") or ""
    assert f"ANTHROPIC_BASE_URL={simulated_gateway.address}" in environment


async def test_the_page_has_no_key(page: VisitedPage, simulated_gateway: RunningGateway) -> None:
    assert KEY in page.text
    assert "sk-" not in page.html
    assert page.html.count("data-copy=") == 3 + 9


async def test_the_public_url(tmp_path: Path) -> None:
    public = "http://gateway.test/proxy"
    async with (
        run_gateway(
            tmp_path, channels("http://127.0.0.1:1"), server={"public_url": public}
        ) as gateway,
        signed_in_visitor(gateway) as visitor,
    ):
        page = await visitor.get("/console/connect")
        assert page.inside("base-url-1") == f"{public}/v1"
        assert page.inside("base-url-2") == public
        assert str(urlsplit(gateway.address).port) not in page.text


async def test_without_channels_the_model_is_a_placeholder(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, []) as gateway, signed_in_visitor(gateway) as visitor:
        assert '"MODEL"' in ((await visitor.get("/console/connect")).inside("chat-curl") or "")


async def test_clients_with_a_wrong_base_url(visitor: Visitor, gateway: RunningGateway) -> None:
    assert "None since the gateway started." in (await visitor.get("/console/connect")).text
    for _ in range(2):
        await gateway.http.post("/v1/v1/messages", headers={"user-agent": "<b>agent/1.2"})
    page = await visitor.get("/console/connect")
    assert "/v1/v1/ <b>agent 2" in page.text
    assert "<b>" not in page.html
