"""Secrets of every kind, through a gateway and its failures: none is in what it writes, sends or
stores. Each has a value that occurs nowhere else.

The upstream repeats all of them, wherever an upstream can write something but in replies.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from aiohttp import ClientResponse, ClientSession, CookieJar

from gateway.admin.config_history import FOLDER
from gateway.core.formats import Format
from tests.resilience.chaos.process import GatewayProcess, create_key, write_config
from tests.support.forked_process import run_forked
from tests.support.gateway import ALPHA, BETA, PATHS, request_body
from tests.support.paths import ROOT
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    event_stream,
    fixture_reply,
    json_response,
    scripted_upstream,
)

pytestmark = [pytest.mark.processes, pytest.mark.timeout(150)]

CANARY: Final = re.compile(rb"canary[0-9a-zA-Z]{12}")
ENVIRONMENT, FILE, LITERAL = "canaryENVIRONMENT00", "canaryKEYOFFILE000", "canaryLITERALKEY00"
KEY_HEADER, PLAIN_HEADER = "canaryHEADERTOKEN0", "canaryPLAINHEADER0"
SEARCH, SEARCH_HEADER = "canarySEARCHKEY000", "canarySEARCHHEADER"
METRICS, HOOK_SECRET, HOOK_URL = "canaryMETRICSTOKEN", "canaryHOOKSECRET00", "canaryHOOKURL00000"
HOOK_HEADER, COLLECTOR = "canaryHOOKHEADER00", "canaryCOLLECTOR000"
PASSWORD, WRONG_PASSWORD = "canaryPASSWORD0000", "canaryWRONGPASSWRD"
SECOND_PASSWORD: Final = "canarySECONDPASSWD"
WRONG_KEY, RELOADED = "sk-canaryWRONGKEY0000", "canaryRELOADEDKEY0"
MISPLACED = "canaryMISPLACED000"
UPSTREAMS: Final = (
    *(ENVIRONMENT, FILE, LITERAL, KEY_HEADER, PLAIN_HEADER, SEARCH, SEARCH_HEADER),
    *(METRICS, HOOK_SECRET, HOOK_URL, HOOK_HEADER, COLLECTOR),
)
"""Everything that an upstream may repeat: the gateway knows these."""


@dataclass(slots=True)
class Setup:
    """A gateway with its upstream, collector, webhook receiver and search endpoint. `answers` are
    all that clients got; `learned` are secrets that were made meanwhile."""

    folder: Path
    process: GatewayProcess
    address: str
    http: ClientSession
    upstream: ScriptedUpstream
    collector: ScriptedUpstream
    receiver: ScriptedUpstream
    searcher: ScriptedUpstream
    key: str
    answers: list[bytes] = field(default_factory=list)
    learned: list[str] = field(default_factory=list)

    async def note(self, answer: ClientResponse) -> ClientResponse:
        body = await answer.read()
        headers = repr([each for each in answer.headers.items() if each[0] != "Set-Cookie"])
        self.answers.append(headers.encode() + body)
        return answer

    async def post(self, format: Format, *, key: str = "", **fields: Any) -> int:
        headers = {
            "authorization": f"Bearer {key or self.key}",
            "content-type": "application/json",
            "anthropic-version": "2023-06-01",
        }
        body = orjson.dumps(request_body(format, **fields))
        path = self.address + PATHS[format]
        async with self.http.post(path, data=body, headers=headers) as answer:
            return (await self.note(answer)).status

    async def get(self, path: str, **headers: str) -> int:
        async with self.http.get(self.address + path, headers=headers) as answer:
            return (await self.note(answer)).status

    def command(self, *words: str, text: str = "") -> str:
        """What a command prints to either channel; it must succeed."""
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)} | SECRETS
        result = run_forked(
            *("gateway", *words),
            cwd=self.folder,
            env=environment | {"GATEWAY_CONFIG": str(self.folder / "channels.yaml")},
            input=text,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout + result.stderr


SECRETS: Final = {"CANARY_KEY": ENVIRONMENT, "CANARY_HOOK": HOOK_SECRET}


def configuration(folder: Path, setup: dict[str, ScriptedUpstream]) -> dict[str, Any]:
    address = setup["upstream"].address
    key_file = folder / "key"
    key_file.write_text(FILE)
    accounts = [
        {"name": "environment", "key": "${CANARY_KEY}"},
        {"name": "file", "key": f"file:{key_file}"},
        {"name": "literal", "key": LITERAL},
    ]
    lines = [
        {
            "name": f"{format}-main",
            "format": format.value,
            "base_url": address if format is Format.MESSAGES else f"{address}/v1",
            "models": {ALPHA: "up", BETA: "up"},
            "headers": {"x-setup-token": KEY_HEADER, "x-setup": PLAIN_HEADER},
            "accounts": accounts,
            "traits": {"web_search": False},
        }
        for format in Format
    ]
    webhook = {
        "name": "receiver",
        "url": f"{setup['receiver'].address}/hooks/services/{HOOK_URL}",
        "secret": "${CANARY_HOOK}",
        "headers": {"x-hook-token": HOOK_HEADER},
        "allowed_networks": ["127.0.0.0/8"],
    }
    return {
        "channels": lines,
        "metrics": {"token": METRICS, "keys": True},
        "alerts": {"webhooks": [webhook], "check_every": 0.1, "disk_free": None},
        "search": {
            "url": f"{setup['searcher'].address}/search",
            "key": SEARCH,
            "headers": {"x-search-token": SEARCH_HEADER},
        },
        "traces": {
            "endpoint": setup["collector"].address,
            "headers": {"x-collector-token": COLLECTOR},
        },
    }


LOG: Final = {"format": "json", "level": "debug", "requests": True}


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    async with AsyncExitStack() as stack:
        names = ("upstream", "collector", "receiver", "searcher")
        servers = {name: await stack.enter_async_context(scripted_upstream()) for name in names}
        for server in servers.values():
            server.respond_with(Response(chunks=(b"ok",)))
        file = write_config(tmp_path, sections=configuration(tmp_path, servers), log=LOG)
        (tmp_path / "state").mkdir()
        key = await create_key(tmp_path)
        environment = {"OTEL_BSP_SCHEDULE_DELAY": "100"} | SECRETS
        process = stack.enter_context(  # its command line is its own
            GatewayProcess(tmp_path, "--config", file, python=sys.executable, **environment)
        )
        found = await asyncio.to_thread(process.wait_for_output, r"serving on (http://[0-9.:]+)")
        http = await stack.enter_async_context(ClientSession(cookie_jar=CookieJar(unsafe=True)))
        yield Setup(tmp_path, process, found[1], http, **servers, key=key)


def repeated(secrets: tuple[str, ...] = UPSTREAMS) -> str:
    """As upstreams and libraries repeat secrets: whole, in headers, cut, within a URL."""
    whole = [f"key {each}, Bearer {each}, x-api-key: {each}, ?key={each}" for each in secrets]
    return " ".join([*whole, *(each[:-2] + "..." for each in secrets), secrets[-1]])


def failures(format: Format) -> Iterator[Response]:
    """All that an upstream can do wrong, each with all secrets."""
    text = repeated()
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": text}}
    headers = {name: text for name in ("x-request-id", "retry-after", "openai-processing-ms")}
    headers |= {"openai-version": text, "x-codex-turn-state": text, "x-models-etag": text}
    for status in (400, 401, 402, 403, 404, 413, 422, 429, 500, 503, 529):
        yield json_response(error, status)
        yield json_response(error, status).with_changes(
            headers={"content-type": "application/json", **headers}
        )
    yield json_response({"error": text}, 400)
    yield json_response({"error": {"message": "m", "code": text, "param": text, "type": text}}, 400)
    yield json_response({"detail": [{"loc": [text], "msg": text}]}, 422)
    yield json_response(text.encode(), 200)
    yield json_response({text: text}, 200)
    yield Response(status=200, headers={"content-type": "text/html"}, chunks=(text.encode(),))
    yield Response(status=302, headers={"location": f"http://{ENVIRONMENT}.test/?key={FILE}"})
    yield Response(raw=f"HTTP/1.1 200 {text}\r\nx: {text}\r\n\r\n".encode())
    yield Response(raw=text.encode())
    frame = orjson.dumps(error)
    yield event_stream(b"event: error\ndata: " + frame + b"\n\n")
    yield event_stream(b"data: " + frame + b"\n\n", ending=Ending.RESET)
    yield event_stream(b"data: {" + text.encode() + b"\n\n")
    headers["content-type"] = "application/json"
    yield fixture_reply(format).with_changes(headers=headers)


async def clients_and_upstreams(setup: Setup) -> None:
    for format in Format:
        for failure in failures(format):
            setup.upstream.respond_with(failure)
            await setup.post(format)
            await setup.post(format, stream=True)


async def strangers(setup: Setup) -> None:
    """Wrong keys wherever a client can put one, and malformed requests with the right one."""
    setup.upstream.respond_with(fixture_reply("chat"))
    for format in Format:
        await setup.post(format, key=WRONG_KEY)
        await setup.post(format, model="unknown")
        await setup.post(format, max_tokens="x", max_output_tokens="x")
    for key in (WRONG_KEY, setup.key):
        await setup.get("/v1/models", authorization=f"Basic {key}")
        await setup.get("/v1/models", **{"x-api-key": f"{key} {key}"})
        await setup.get(f"/v1/models?key={key}")
        await setup.get("/metrics", authorization=f"Bearer {key}")
    host, port = setup.address.removeprefix("http://").split(":")
    for request in (
        b"POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer KEY\r\nx y: KEY\r\n\r\n",
        b"POST /v1/chat/completions HTTP/9.1\r\nauthorization: Bearer KEY\r\n\r\n",
        b"GET /KEY HTTP/1.1\r\nhost: x\r\nexpect: KEY\r\n\r\n",
        b"KEY / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03KEY\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request.replace(b"KEY", setup.key.encode()))
        async with asyncio.timeout(20):
            setup.answers.append(await reader.read())
        writer.close()


async def operators(setup: Setup) -> None:
    """The console and the commands; keys that are made are shown once, to who made them."""
    setup.command("admin", "password", text=f"{PASSWORD}\n")
    origin = {"origin": setup.address, "sec-fetch-site": "same-origin"}
    for password in (WRONG_PASSWORD, PASSWORD):
        form = {"password": password}
        async with setup.http.post(
            f"{setup.address}/console/sign-in", data=form, headers=origin, allow_redirects=False
        ) as answer:
            await setup.note(answer)
    cookies = [cookie.value for cookie in setup.http.cookie_jar]
    assert cookies, "the right password signs in"
    setup.learned += cookies
    for page in ("", "/tokens", "/groups", "/channels", "/logs"):
        assert await setup.get(f"/console{page}") == 200, page
    for path in ("/accounts", "/requests", "/keys", "/config", "/alerts"):
        await setup.get(f"/admin/api{path}")
    made = setup.command("key", "mint", "--name", "second", "--json")
    (second,) = set(re.findall(r"sk-[A-Za-z0-9]{40,}", made))
    rotated = setup.command("key", "rotate", "second", "--overlap", "1h", "--json")
    (third,) = set(re.findall(r"sk-[A-Za-z0-9]{40,}", rotated))
    setup.learned += [second, third]
    setup.command("admin", "add", "second", "--role", "operator", text=f"{SECOND_PASSWORD}\n")
    made = setup.command("admin", "token", "create", "script", "--scope", "all", "--json")
    (token,) = set(re.findall(r"gwa_[A-Za-z0-9]{40,}", made))
    setup.learned.append(token)
    for value in (token, token[:-1] + "0", WRONG_KEY):
        await setup.get("/admin/api/keys", authorization=f"Bearer {value}")
        await setup.get(f"/admin/api/keys?token={value}")
        await setup.post(Format.CHAT, key=value)
    setup.answers.append(setup.command("admin", "audit", "--json").encode())
    setup.answers.append(setup.command("admin", "token", "list", "--json").encode())
    setup.upstream.respond_with(fixture_reply("chat"))
    for key in (second, third):
        assert await setup.post(Format.CHAT, key=key) != 401
    for words in (("account", "list"), ("check",), ("logs", "list", "--json"), ("key", "list")):
        setup.answers.append(setup.command(*words).encode())
    setup.answers.append(setup.command("logs", "export").encode())


async def reloads(setup: Setup) -> None:
    """Another key, then files that are wrong in ways that put secrets where none belong."""
    file = setup.folder / "channels.yaml"
    servers = {
        "upstream": setup.upstream,
        "collector": setup.collector,
        "receiver": setup.receiver,
        "searcher": setup.searcher,
    }
    good = configuration(setup.folder, servers)
    good["channels"][0]["accounts"] = [{"name": "literal", "key": RELOADED}]
    write_config(setup.folder, sections=good, log=LOG)
    setup.answers.append(setup.command("reload").encode())
    error = {"error": {"message": repeated((RELOADED, LITERAL))}}
    setup.upstream.respond_with(json_response(error, 400))
    for format in Format:
        await setup.post(format)
    for wrong in (
        {"channels": MISPLACED},
        {"channels": [{"name": MISPLACED + " ", "keys": MISPLACED}]},
        {"metrics": {"token": {"value": MISPLACED}}},
        {"alerts": {"webhooks": [{"name": "a", "url": f"ftp://{MISPLACED}", "x": MISPLACED}]}},
        {"traces": {"endpoint": f"http://user:{MISPLACED}@127.0.0.1"}},
    ):
        write_config(setup.folder, sections=good | wrong, log=LOG)
        setup.process.signal(signal.SIGHUP)
        await asyncio.sleep(0.3)
        await setup.get("/readyz")
    file.write_text(f"channels: [{{key: {MISPLACED}: {MISPLACED}\n\t- {MISPLACED}")
    setup.process.signal(signal.SIGHUP)
    await asyncio.sleep(0.3)
    write_config(setup.folder, sections=good, log=LOG)
    setup.command("reload")


def leaks(text: bytes, setup: Setup) -> set[str]:
    """The canaries and keys in a text."""
    found = {match.decode() for match in CANARY.findall(text)}
    secrets = [setup.key, *setup.learned]
    return found | {secret for secret in secrets if secret.encode() in text}


@pytest.mark.slow("provokes every failure, several of them by a process")
async def test_no_secret_leaves(setup: Setup) -> None:
    assert await setup.get("/metrics", authorization=f"Bearer {METRICS}") == 200
    setup.upstream.respond_with(fixture_reply("chat"))
    assert await setup.post(Format.CHAT) == 200
    await clients_and_upstreams(setup)
    await strangers(setup)
    await operators(setup)
    await reloads(setup)
    assert await setup.get("/metrics", authorization=f"Bearer {METRICS}") == 200
    line = Path(f"/proc/{setup.process.pid}/cmdline").read_bytes()
    setup.process.signal(signal.SIGTERM)
    assert await setup.process.ended(30) == 0
    surfaces: dict[str, bytes] = {
        "log": setup.process.stderr.encode(),
        "output": setup.process.stdout.encode(),
        "command line": line,
        "spans": b"".join(request.body for request in setup.collector.requests),
        "alerts": b"".join(request.body for request in setup.receiver.requests),
    }
    surfaces |= {
        f"file {path.name}": path.read_bytes()
        for path in (setup.folder / "state").rglob("*")
        if path.is_file() and path.parent.name != FOLDER
    }
    # Accepted files are kept as they are, with the keys that stand in them.
    kept = [*(setup.folder / "state" / FOLDER).iterdir()]
    assert kept and {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    assert not any(MISPLACED in path.read_text() for path in kept)
    surfaces |= {f"answer {number}": text for number, text in enumerate(setup.answers)}
    assert {name: found for name, text in surfaces.items() if (found := leaks(text, setup))} == {}
    # It was all there to be told.
    log = surfaces["log"]
    assert log.count(b"gateway.requests") > 200
    assert log.count(b"[redacted]") > 50
    assert b"the configuration is unchanged" in log
    assert len(surfaces["spans"]) > 10_000
    assert surfaces["alerts"]
    assert b"[redacted]" in surfaces["file gateway.db"]
    sent = b"".join(repr([*each.headers.items()]).encode() for each in setup.upstream.requests)
    for secret in (ENVIRONMENT, FILE, LITERAL, KEY_HEADER, PLAIN_HEADER, RELOADED):
        assert secret.encode() in sent, "the upstream gets what is its own"
