"""nginx and Caddy in front of a gateway, configured exactly as the documentation says."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession, ClientTimeout, CookieJar, TCPConnector

from gateway.core.formats import Format
from gateway.server.http.framework import CONNECTION_OPTIONS
from tests.console.browser import PASSWORD
from tests.deploy.proxies import Proxy, documented, run_proxy
from tests.support.gateway import PATHS, RunningGateway, channel, request_body, run_gateway
from tests.support.paths import STREAMS
from tests.support.programs import find_program
from tests.support.tcp_server import listening
from tests.support.upstream import (
    Ending,
    ScriptedUpstream,
    by_frame,
    fixture_reply,
    fixture_stream,
)

KINDS = ("nginx", "caddy")
MESSAGES = PATHS[Format.MESSAGES]
LIMIT = 20


@dataclass(frozen=True, slots=True)
class Front:
    """A gateway behind a proxy; `http` talks to the proxy, with the key."""

    gateway: RunningGateway
    proxy: Proxy
    http: ClientSession

    def body(self, **fields: Any) -> dict[str, Any]:
        return request_body(Format.MESSAGES, **fields)


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


@asynccontextmanager
async def front(
    kind: str, tmp_path: Path, address: str, changes: dict[str, str] | None = None, **server: Any
) -> AsyncIterator[Front]:
    folder = tmp_path / kind
    folder.mkdir()
    port = free_port()
    server = {
        "trusted_proxies": ["127.0.0.1/32"],
        "public_url": f"https://127.0.0.1:{port}",
        **server,
    }
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(
            run_gateway(tmp_path / "state", [channel(Format.MESSAGES, address)], server=server)
        )
        host = gateway.address.removeprefix("http://")
        proxy = await stack.enter_async_context(
            run_proxy(kind, host, port, folder, **changes or {})
        )
        http = await stack.enter_async_context(
            ClientSession(
                proxy.url,
                connector=TCPConnector(ssl=proxy.trust, local_addr=("127.0.0.2", 0)),
                headers={
                    "x-api-key": gateway.key,
                    "anthropic-version": "2023-06-01",
                },
                timeout=ClientTimeout(total=60),
            )
        )
        yield Front(gateway, proxy, http)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class SteppedUpstream:
    """Sends a stream frame by frame, each when `go_on` is set; `sent` counts them."""

    def __init__(self) -> None:
        text = (STREAMS / "text" / "messages.sse").read_bytes()
        self.frames = [frame + b"\n\n" for frame in text.split(b"\n\n") if frame.strip()]
        deltas = [number for number, frame in enumerate(self.frames) if b"_delta" in frame]
        self.opening = deltas[0] + 1
        """Frames until the first content, which the gateway sends together."""
        self.sent = 0
        self.go_on = asyncio.Semaphore(0)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None
        await reader.readexactly(int(length[1]))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for number, frame in enumerate(self.frames):
            if number >= self.opening:
                await self.go_on.acquire()
            writer.write(frame)
            await writer.drain()
            self.sent += 1


async def test_each_event_arrives_before_the_next_is_sent(kind: str, tmp_path: Path) -> None:
    upstream = SteppedUpstream()
    async with (
        listening(upstream.talk) as port,
        front(kind, tmp_path, f"http://127.0.0.1:{port}") as it,
        asyncio.timeout(LIMIT),
        it.http.post(MESSAGES, json=it.body(stream=True)) as answer,
    ):
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        assert "content-encoding" not in answer.headers
        for number in range(1, len(upstream.frames) + 1):
            frame = await answer.content.readuntil(b"\n\n")
            assert frame.split(b"\n")[0] == upstream.frames[number - 1].split(b"\n")[0]
            assert upstream.sent == max(number, upstream.opening)
            if number >= upstream.opening:
                upstream.go_on.release()
        assert await answer.content.read() == b""
    assert len(upstream.frames) - upstream.opening >= 3


async def test_the_same_with_http_2(kind: str, tmp_path: Path) -> None:
    curl, upstream = find_program("curl"), SteppedUpstream()
    async with (
        listening(upstream.talk) as port,
        front(kind, tmp_path, f"http://127.0.0.1:{port}") as it,
        asyncio.timeout(LIMIT),
    ):
        headers = {**it.http.headers, "content-type": "application/json"}
        lines = [part for name, text in headers.items() for part in ("-H", f"{name}: {text}")]
        process = await asyncio.create_subprocess_exec(
            *(curl, "--http2", "-sSN", "--max-time", str(LIMIT), *lines),
            *("--cacert", str(tmp_path / kind / "server.pem"), "-w", "HTTP/%{http_version}"),
            *("--data-binary", orjson.dumps(it.body(stream=True)).decode()),
            it.proxy.url + MESSAGES,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        for number in range(1, len(upstream.frames) + 1):
            frame = await process.stdout.readuntil(b"\n\n")
            assert frame.split(b"\n")[0] == upstream.frames[number - 1].split(b"\n")[0]
            assert upstream.sent == max(number, upstream.opening)
            if number >= upstream.opening:
                upstream.go_on.release()
        assert await process.stdout.read() == b"HTTP/2"
        assert await process.wait() == 0


async def test_pings_pass(
    kind: str, tmp_path: Path, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.server.http.client_stream.PING_INTERVAL", 0.2)
    upstream.respond_with(fixture_stream("messages").with_changes(delay=3))
    async with (
        front(kind, tmp_path, upstream.address, commit_after=0.2) as it,
        asyncio.timeout(LIMIT),
        it.http.post(MESSAGES, json=it.body(stream=True)) as answer,
    ):
        loop = asyncio.get_running_loop()
        times = []
        while b"ping" in (await answer.content.readuntil(b"\n\n")):
            times.append(loop.time())
        assert len(times) >= 5
        assert times[-1] - times[0] > 1


@pytest.mark.slow("waits until a proxy notices")
async def test_a_disconnect_reaches_the_upstream(
    kind: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    stalled = by_frame(fixture_stream("messages", ending=Ending.STALLED))
    upstream.respond_with(stalled.with_changes(chunks=stalled.chunks[:4]))
    async with front(kind, tmp_path, upstream.address) as it, asyncio.timeout(LIMIT):
        answer = await it.http.post(MESSAGES, json=it.body(stream=True))
        await answer.content.readuntil(b"\n\n")
        request = await upstream.wait_for_request()
        assert not request.disconnected.is_set()
        answer.close()
        await request.disconnected.wait()
        assert (await it.gateway.row()).state == "client_gone"


async def test_large_bodies_pass_and_too_large_ones_get_the_gateways_error(
    kind: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("messages"))
    async with front(kind, tmp_path, upstream.address, max_body="24MiB") as it:

        async def post(words: int) -> tuple[int, Any]:
            messages = [{"role": "user", "content": "all work and no play " * words}]
            body = BytesIO(orjson.dumps(it.body(messages=messages)))
            json = {"content-type": "application/json"}
            async with it.http.post(MESSAGES, data=body, headers=json) as answer:
                return answer.status, orjson.loads(await answer.read())

        async with asyncio.timeout(60):
            assert (await post(2**20))[0] == 200  # 21 MiB
            assert len(upstream.last_request.body) > 20 * 2**20
            status, answer = await post(2**20 * 3 // 2)
            assert (status, answer["error"]["type"]) == (413, "request_too_large")


async def test_the_clients_address_comes_from_the_proxy_alone(
    kind: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("messages"))
    claimed = {"x-forwarded-for": "8.8.8.8", "forwarded": "for=8.8.8.8", "x-real-ip": "8.8.8.8"}
    async with front(kind, tmp_path, upstream.address) as it:
        async with it.http.post(MESSAGES, json=it.body(), headers=claimed) as answer:
            assert answer.status == 200
        connector = TCPConnector(local_addr=("127.0.0.3", 0))
        async with (
            ClientSession(it.gateway.address, connector=connector) as direct,
            direct.post(
                MESSAGES, json=it.body(), headers=claimed | dict(it.http.headers)
            ) as answer,
        ):
            assert answer.status == 200
        rows = await it.gateway.rows(2)
    assert [row.client_address for row in rows] == ["127.0.0.2", "127.0.0.3"]


async def test_connections_to_the_gateway_are_reused(
    kind: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("messages"))
    async with front(kind, tmp_path, upstream.address) as it:

        async def ask(times: int) -> list[int]:
            statuses = []
            for number in range(times):
                async with it.http.post(MESSAGES, json=it.body()) as answer:
                    await answer.read()
                    statuses.append(answer.status)
                await asyncio.sleep(0.01 * (number % 3))
            return statuses

        async with asyncio.timeout(50):
            results = await asyncio.gather(*(ask(30) for _ in range(8)))
        assert {status for statuses in results for status in statuses} == {200}
        assert len(it.gateway.daemon.listener._connections()) <= 16


def test_idle_connections_are_closed_by_the_proxy_first() -> None:
    """The other way round a request can meet the close: the client would get a 502."""
    closes_after = CONNECTION_OPTIONS["keepalive_timeout"]
    (nginx,) = re.findall(r"keepalive_timeout (\d+)s;", documented("nginx"))
    (caddy,) = re.findall(r"keepalive (\d+)s\n", documented("caddy"))
    assert max(int(nginx), int(caddy)) <= closes_after - 10


async def test_the_read_timeout_of_nginx_ends_a_silent_reply(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("messages").with_changes(delay=10))
    changes = {"proxy_read_timeout": "1s"}
    async with (
        front("nginx", tmp_path, upstream.address, changes) as it,
        it.http.post(MESSAGES, json=it.body()) as answer,
    ):
        assert answer.status == 504
    seconds = {"m": 60, "s": 1}
    ((number, unit),) = re.findall(r"proxy_read_timeout (\d+)([ms]);", documented("nginx"))
    whole = 600  # the default of a channel's timeouts: a reply without a stream has no pings
    assert int(number) * seconds[unit] > whole


async def test_the_console_behind_tls(
    kind: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with front(kind, tmp_path, upstream.address) as it:
        await it.gateway.daemon.console.access.admins.set_password(PASSWORD)
        origin = {"origin": it.proxy.url, "sec-fetch-site": "same-origin"}
        async with ClientSession(
            it.proxy.url,
            connector=TCPConnector(ssl=it.proxy.trust),
            cookie_jar=CookieJar(unsafe=True),
        ) as browser:
            form = {"password": PASSWORD, "next": "/console/tokens"}
            async with browser.post("/console/sign-in", data=form, headers=origin) as answer:
                assert answer.status == 200
                assert str(answer.url) == f"{it.proxy.url}/console/tokens"
                assert it.proxy.url in str(answer.url)
            names = {cookie.key for cookie in browser.cookie_jar}
            assert names == {"__Host-session"}
            other = origin | {"origin": "https://elsewhere.example", "sec-fetch-site": "cross-site"}
            async with browser.post("/console/sign-in", data=form, headers=other) as answer:
                assert answer.status == 403


async def test_certificates_are_needed(kind: str, tmp_path: Path) -> None:
    """Who does not trust the certificate does not get through, and plain HTTP gets nothing."""
    async with front(kind, tmp_path, "http://127.0.0.1:9") as it:
        async with ClientSession() as http:
            with pytest.raises(Exception, match="certificate verify failed"):
                await http.get(f"{it.proxy.url}/readyz")
            plain = it.proxy.url.replace("https:", "http:")
            async with http.get(f"{plain}/readyz") as answer:
                assert answer.status == 400
        async with it.http.get("/readyz") as answer:
            assert answer.status == 200
