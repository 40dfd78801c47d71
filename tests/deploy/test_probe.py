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
class Door:
    """What each path answers, and what was seen at each."""

    server: TestServer
    statuses: dict[str, int] = field(default_factory=dict)
    seen: dict[str, web.Request] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    command_lines: list[bytes] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.seen[request.path] = request
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
async def door() -> AsyncIterator[Door]:
    app = web.Application()
    server = TestServer(app, host="127.0.0.1")
    door = Door(server)
    app.router.add_route("*", "/{path:.*}", door.answer)
    await server.start_server()
    yield door
    await server.close()


async def test_all_answer(door: Door) -> None:
    code, line = await door.probe(GATEWAY_KEY=KEY)
    assert code == 0
    assert line.startswith("GATEWAY OK")
    assert line.count("\n") == 1
    assert list(door.seen) == [
        "/healthz",
        "/readyz",
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/responses",
    ]


async def test_requests_are_what_each_format_asks_for(door: Door) -> None:
    await door.probe("--messages", "alpha-x[1m]", GATEWAY_KEY=KEY)
    chat = orjson.loads(door.bodies["/v1/chat/completions"])
    messages = orjson.loads(door.bodies["/v1/messages"])
    responses = orjson.loads(door.bodies["/v1/responses"])
    assert (chat["model"], messages["model"]) == ("beta-5.4-mini", "alpha-x[1m]")
    assert chat["messages"] == messages["messages"]
    assert (chat["max_tokens"], messages["max_tokens"], responses["max_output_tokens"]) == (16,) * 3
    assert responses["store"] is False
    headers = door.seen["/v1/messages"].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["content-type"] == "application/json"


async def test_key_is_in_no_command_line_and_no_output(door: Door) -> None:
    _, line = await door.probe(GATEWAY_KEY=KEY)
    assert any(b"probe.sh" in command for command in door.command_lines)
    assert not any(KEY.encode() in command for command in door.command_lines)
    assert KEY not in line


@pytest.mark.parametrize("content", [KEY, KEY + "\n", f"minted probe\n{KEY}\n", KEY + "\r\n"])
async def test_key_from_a_file(door: Door, tmp_path: Path, content: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content.encode())
    code, _ = await door.probe("--key-file", str(path))
    assert code == 0
    assert door.seen["/v1/responses"].headers["authorization"] == f"Bearer {KEY}"


async def test_one_format_down_is_a_warning(door: Door) -> None:
    door.statuses["/v1/messages"] = 503
    code, line = await door.probe(GATEWAY_KEY=KEY)
    assert code == 1
    assert "messages answers 503 (req_seen)" in line
    assert "chat responses answered" in line


async def test_every_format_down_is_critical(door: Door) -> None:
    door.statuses = dict.fromkeys(["/v1/chat/completions", "/v1/messages", "/v1/responses"], 401)
    code, line = await door.probe(GATEWAY_KEY=KEY)
    assert code == 2
    assert line.count("answers 401") == 3


async def test_not_ready_is_critical_and_asks_no_model(door: Door) -> None:
    door.statuses["/readyz"] = 503
    code, line = await door.probe(GATEWAY_KEY=KEY)
    assert code == 2
    assert "not ready" in line
    assert list(door.seen) == ["/healthz", "/readyz"]


async def test_nobody_there_is_critical(door: Door) -> None:
    await door.server.close()
    code, line = await door.probe(GATEWAY_KEY=KEY)
    assert code == 2
    assert "not at all" in line


async def test_a_format_can_be_left_out(door: Door) -> None:
    code, _ = await door.probe("--chat", "-", "--responses", "-", GATEWAY_KEY=KEY)
    assert code == 0
    assert list(door.seen) == ["/healthz", "/readyz", "/v1/messages"]


async def test_without_cost_no_model_is_asked(door: Door) -> None:
    code, line = await door.probe("--no-cost", "--messages", "alpha-x", GATEWAY_KEY=KEY)
    assert code == 0
    assert "models count answered" in line
    assert list(door.seen) == ["/healthz", "/readyz", "/v1/models", "/v1/messages/count_tokens"]
    assert door.seen["/v1/models"].method == "GET"
    assert door.seen["/v1/models"].headers["authorization"] == f"Bearer {KEY}"
    assert orjson.loads(door.bodies["/v1/messages/count_tokens"])["model"] == "alpha-x"


async def test_health_alone_needs_no_key(door: Door) -> None:
    code, line = await door.probe("--health-only")
    assert code == 0
    assert "alive and ready" in line
    assert list(door.seen) == ["/healthz", "/readyz"]


@pytest.mark.parametrize(
    "arguments",
    [(), ("--key-file", "/nonexistent"), ("--key", KEY), ("--chat", 'x","y":"z'), ("--url",)],
)
async def test_a_probe_that_cannot_run_says_so(door: Door, arguments: tuple[str, ...]) -> None:
    code, line = await door.probe(*arguments)
    assert code == 3
    assert line.startswith("GATEWAY UNKNOWN")
    assert KEY not in line
    assert not door.seen
