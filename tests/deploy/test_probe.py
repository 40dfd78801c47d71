"""The probe against a real server on loopback that answers as told; it knows no gateway."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-probe0123456789"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


@dataclass
class FakeGateway:
    """What each path answers, and what was seen at each."""

    server: TestServer
    statuses: dict[str, int] = field(default_factory=dict)
    requests: dict[str, web.Request] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    command_lines: list[bytes] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.requests[request.path] = request
        self.bodies[request.path] = await request.read()
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                self.command_lines.append(process.read_bytes())
            except OSError:
                continue  # ended in the meantime
        status = self.statuses.get(request.path, 200)
        return web.json_response({}, status=status, headers={"x-request-id": "req_seen"})

    async def probe(self, *arguments: str, **environment: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.server.port}"
        probe = await asyncio.create_subprocess_exec(
            ROOT / "scripts" / "probe.sh",
            *("--url", url, "--timeout", "10", *arguments),
            env={"PATH": os.environ.get("PATH", os.defpath), **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await asyncio.wait_for(probe.communicate(), 30)
        assert probe.returncode is not None
        return probe.returncode, output.decode()


@pytest.fixture
async def gateway() -> AsyncIterator[FakeGateway]:
    app = web.Application()
    server = TestServer(app, host="127.0.0.1")
    gateway = FakeGateway(server)
    app.router.add_route("*", "/{path:.*}", gateway.answer)
    await server.start_server()
    yield gateway
    await server.close()


async def test_all_answer(gateway: FakeGateway) -> None:
    code, line = await gateway.probe(GATEWAY_KEY=KEY)
    assert code == 0
    assert line.startswith("GATEWAY OK")
    assert line.count("\n") == 1
    assert list(gateway.requests) == [
        "/healthz",
        "/readyz",
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/responses",
    ]


async def test_requests_match_the_format(gateway: FakeGateway) -> None:
    await gateway.probe("--messages", "alpha-x[1m]", GATEWAY_KEY=KEY)
    chat = orjson.loads(gateway.bodies["/v1/chat/completions"])
    messages = orjson.loads(gateway.bodies["/v1/messages"])
    responses = orjson.loads(gateway.bodies["/v1/responses"])
    assert (chat["model"], messages["model"]) == ("beta-5.4-mini", "alpha-x[1m]")
    assert chat["messages"] == messages["messages"]
    assert (chat["max_tokens"], messages["max_tokens"], responses["max_output_tokens"]) == (16,) * 3
    assert responses["store"] is False
    headers = gateway.requests["/v1/messages"].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["content-type"] == "application/json"


async def test_key_is_in_no_command_line_and_no_output(gateway: FakeGateway) -> None:
    _, line = await gateway.probe(GATEWAY_KEY=KEY)
    assert any(b"probe.sh" in command for command in gateway.command_lines)
    assert not any(KEY.encode() in command for command in gateway.command_lines)
    assert KEY not in line


@pytest.mark.parametrize("content", [KEY, KEY + "\n", f"minted probe\n{KEY}\n", KEY + "\r\n"])
async def test_key_from_a_file(gateway: FakeGateway, tmp_path: Path, content: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content.encode())
    code, _ = await gateway.probe("--key-file", str(path))
    assert code == 0
    assert gateway.requests["/v1/responses"].headers["authorization"] == f"Bearer {KEY}"


async def test_one_format_down_is_a_warning(gateway: FakeGateway) -> None:
    gateway.statuses["/v1/messages"] = 503
    code, line = await gateway.probe(GATEWAY_KEY=KEY)
    assert code == 1
    assert "messages answers 503 (req_seen)" in line
    assert "chat responses answered" in line


async def test_every_format_down_is_critical(gateway: FakeGateway) -> None:
    gateway.statuses = dict.fromkeys(["/v1/chat/completions", "/v1/messages", "/v1/responses"], 401)
    code, line = await gateway.probe(GATEWAY_KEY=KEY)
    assert code == 2
    assert line.count("answers 401") == 3


async def test_not_ready_is_critical_and_sends_no_prompt(gateway: FakeGateway) -> None:
    gateway.statuses["/readyz"] = 503
    code, line = await gateway.probe(GATEWAY_KEY=KEY)
    assert code == 2
    assert "not ready" in line
    assert list(gateway.requests) == ["/healthz", "/readyz"]


async def test_an_unreachable_gateway_is_critical(gateway: FakeGateway) -> None:
    await gateway.server.close()
    code, line = await gateway.probe(GATEWAY_KEY=KEY)
    assert code == 2
    assert "not at all" in line


async def test_a_format_can_be_left_out(gateway: FakeGateway) -> None:
    code, _ = await gateway.probe("--chat", "-", "--responses", "-", GATEWAY_KEY=KEY)
    assert code == 0
    assert list(gateway.requests) == ["/healthz", "/readyz", "/v1/messages"]


async def test_without_cost_no_prompt_is_sent(gateway: FakeGateway) -> None:
    code, line = await gateway.probe("--no-cost", "--messages", "alpha-x", GATEWAY_KEY=KEY)
    assert code == 0
    assert "models count answered" in line
    assert list(gateway.requests) == [
        "/healthz",
        "/readyz",
        "/v1/models",
        "/v1/messages/count_tokens",
    ]
    assert gateway.requests["/v1/models"].method == "GET"
    assert gateway.requests["/v1/models"].headers["authorization"] == f"Bearer {KEY}"
    assert orjson.loads(gateway.bodies["/v1/messages/count_tokens"])["model"] == "alpha-x"


async def test_health_alone_needs_no_key(gateway: FakeGateway) -> None:
    code, line = await gateway.probe("--health-only")
    assert code == 0
    assert "alive and ready" in line
    assert list(gateway.requests) == ["/healthz", "/readyz"]


@pytest.mark.parametrize(
    "arguments",
    [(), ("--key-file", "/nonexistent"), ("--key", KEY), ("--chat", 'x","y":"z'), ("--url",)],
)
async def test_a_probe_that_cannot_run_says_so(
    gateway: FakeGateway, arguments: tuple[str, ...]
) -> None:
    code, line = await gateway.probe(*arguments)
    assert code == 3
    assert line.startswith("GATEWAY UNKNOWN")
    assert KEY not in line
    assert not gateway.requests
