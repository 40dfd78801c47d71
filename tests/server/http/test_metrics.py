"""`GET /metrics`: who may read it, and that reading it harms nobody."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from gateway.core.formats import Format
from gateway.core.limits import MICRO_PER_UNIT
from gateway.server.http import long_response
from gateway.telemetry.observed_request import ObservedRequest
from tests.support.gateway import (
    UPSTREAM_KEY,
    UPSTREAM_MODEL,
    RunningGateway,
    channels,
    run_gateway,
)
from tests.support.upstream import ScriptedUpstream, fixture_reply, fixture_stream, json_response
from tests.telemetry.test_metrics import ROW, ended

pytestmark = pytest.mark.shared_gateway

TOKEN = "metrics-token-8812"


async def scrape(gateway: RunningGateway, **headers: str) -> str:
    async with gateway.http.get("/metrics", headers=headers) as answer:
        assert answer.status == 200
        return await answer.text()


async def status(gateway: RunningGateway, headers: Mapping[str, str]) -> int:
    async with gateway.http.get("/metrics", headers=headers) as answer:
        body = await answer.text()
        assert ("gateway_requests_total" in body) == (answer.status == 200)
        return answer.status


def value(text: str, name: str, /, **labels: str) -> float:
    """The sum of the samples with these labels."""
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return sum(
        sample.value
        for family in parse("\n".join(lines) + "\n")
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


async def test_what_a_scrape_says(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_stream("chat"), fixture_reply("chat"))
    await gateway.post(Format.CHAT, stream=True)
    await gateway.post(Format.CHAT)
    await gateway.post(Format.CHAT, model="nobody")
    await gateway.get("/v1/models", key="sk-unknown")
    await gateway.rows(3)
    text = await scrape(gateway)
    assert value(text, "gateway_requests_total", outcome="ok", status="2xx") == 2
    assert value(text, "gateway_requests_total", code="model_not_found", model="other") == 1
    assert value(text, "gateway_requests_total", code="invalid_api_key", status="4xx") == 1
    assert value(text, "gateway_tokens_total", **{"class": "output"}) == 8
    assert value(text, "gateway_attempts_total", verdict="ok", channel="chat-main") == 2
    assert value(text, "gateway_time_to_first_token_seconds_count") == 1
    assert value(text, "gateway_requests_running") == 1  # this one
    assert value(text, "gateway_client_connections") >= 1
    assert value(text, "gateway_malformed_requests_total") == 0
    assert value(text, "gateway_channel_accounts_usable") == 3
    assert value(text, "gateway_account_state", state="healthy") == 3
    assert value(text, "gateway_config_last_reload_successful") == 1
    assert value(text, "gateway_build_info") == 1
    assert value(text, "gateway_key_requests_total") == 0
    assert gateway.token.id not in text
    assert value(await scrape(gateway), "gateway_requests_total", endpoint="/metrics") == 1


async def test_limits_and_keys(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(fixture_reply("chat"))
    config = {"limits": {"requests_per_minute": 10}, "metrics": {"keys": True}}
    async with run_gateway(tmp_path, channels(upstream.address), **config) as gateway:
        await gateway.operations.create_group(
            "team", ["*"], limits={"budget": 2000 * MICRO_PER_UNIT}
        )
        token, key = await gateway.operations.create_key("laptop", "team")
        await gateway.post(Format.CHAT, key=key)
        await gateway.rows()
        text = await scrape(gateway)
    ratio = "gateway_limit_used_ratio"
    assert value(text, ratio, holder="gateway", limit="requests_per_minute") == 0.1
    assert value(text, ratio, holder="group", name="team", limit="budget") == 0.01
    assert value(text, "gateway_key_info", key=token.id, name="laptop", group="team") == 1
    assert value(text, "gateway_key_requests_total", key=token.id, outcome="ok") == 1
    assert value(text, "gateway_key_units_total", key=token.id) == 20


async def test_lost_proofs(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    error = {"message": "the encrypted content could not be verified", "code": None}
    refusal = json_response({"error": error}, 400)
    upstream.respond_with(refusal, fixture_reply("responses"))
    proof = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    answer = await gateway.post(
        Format.RESPONSES, input=[proof, {"role": "user", "content": "Hi"}], store=False
    )
    assert answer.headers["x-gateway-dropped"] == "thinking.refused"
    await gateway.rows(1)
    assert value(await scrape(gateway), "gateway_lost_proofs_total", reason="refused") == 1


async def test_accounts_that_fail(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({"error": {"message": "no"}}, 401))
    await gateway.post(Format.CHAT)
    text = await scrape(gateway)
    assert value(text, "gateway_account_state", state="auth_failed") == 3
    assert value(text, "gateway_account_state", state="healthy") == 0
    assert value(text, "gateway_channel_accounts_usable", channel="chat-main") == 0
    assert value(text, "gateway_attempts_total", verdict="key refused") == 3


LOCAL: tuple[dict[str, str], ...] = (
    {},
    {"host": "localhost:9"},
    {"host": "LOCALHOST"},
    {"host": "127.8.8.8:80"},
    {"host": "[::1]:8080"},
    {"host": "[::ffff:127.0.0.1]"},
)
FOREIGN: tuple[dict[str, str], ...] = (
    {"x-forwarded-for": "203.0.113.7"},
    {"x-forwarded-for": "127.0.0.1"},
    {"x-forwarded-for": ""},
    {"forwarded": "for=127.0.0.1"},
    {"via": "1.1 proxy"},
    {"x-real-ip": "127.0.0.1"},
    {"X-Forwarded-Proto": "https"},
    {"x-forwarded-host": "gateway.example"},
    {"cf-connecting-ip": "203.0.113.7"},
    {"fly-client-ip": "203.0.113.7"},
    {"x-cluster-client-ip": "203.0.113.7"},
    {"x-envoy-external-address": "203.0.113.7"},
    {"x-original-forwarded-for": "203.0.113.7"},
    {"host": "gateway.example"},
    {"host": "localhost.example:80"},
    {"host": "127.0.0.1.example"},
    {"host": "[::1].example"},
    {"host": "10.0.0.1"},
    {"host": ""},
    {"authorization": f"Bearer {TOKEN}", "via": "1.1 proxy"},
)


@pytest.mark.parametrize("headers", LOCAL)
async def test_local_readers_need_no_token(
    gateway: RunningGateway, headers: dict[str, str]
) -> None:
    assert await status(gateway, headers) == 200


@pytest.mark.parametrize("headers", FOREIGN)
async def test_readers_elsewhere_need_one(gateway: RunningGateway, headers: dict[str, str]) -> None:
    assert await status(gateway, headers) == 403


@pytest.mark.parametrize("address", ["203.0.113.7", "10.0.0.1", "::2", "nonsense", ""])
async def test_a_peer_that_is_not_this_machine(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr("aiohttp.web.BaseRequest.remote", address)
    assert await status(gateway, {}) == 403


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_proxy_that_sends_no_header_of_its_own(
    gateway: RunningGateway, version: str
) -> None:
    reader, writer = await asyncio.open_connection(*gateway.daemon.listener.addresses[0])
    writer.write(f"GET /metrics HTTP/{version}\r\nhost: 127.0.0.1\r\n\r\n".encode())
    expected = b"403" if version == "1.0" else b"200"
    assert (await reader.readline()).split()[1] == expected
    writer.close()


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x-forwarded-for": "127.0.0.1"}, 200),
        ({"x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "https"}, 200),
        ({"x-forwarded-for": "203.0.113.7, 127.0.0.1"}, 403),
        ({"x-forwarded-for": "127.0.0.1, 203.0.113.7"}, 403),
        ({"x-forwarded-for": "203.0.113.7"}, 403),
        ({"x-forwarded-for": "x"}, 403),
        ({"x-forwarded-proto": "https"}, 403),
        ({"x-real-ip": "127.0.0.1"}, 403),
        ({"via": "1.1 proxy"}, 403),
    ],
)
async def test_behind_a_trusted_proxy_the_clients_address_counts(
    upstream: ScriptedUpstream, tmp_path: Path, headers: dict[str, str], expected: int
) -> None:
    server = {"trusted_proxies": ["127.0.0.1/32"]}
    async with run_gateway(tmp_path, channels(upstream.address), server=server) as gateway:
        assert await status(gateway, headers) == expected


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN} ", 200),
        (None, 401),
        ("Bearer", 401),
        ("Bearer wrong", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Basic {TOKEN}", 401),
        ("Bearer \udcff", 401),
    ],
)
async def test_with_a_token_everybody_needs_it(
    upstream: ScriptedUpstream, tmp_path: Path, authorization: str | None, expected: int
) -> None:
    metrics = {"token": TOKEN}
    async with run_gateway(tmp_path, channels(upstream.address), metrics=metrics) as gateway:
        headers = {} if authorization is None else {"authorization": authorization}
        for others in ({}, {"x-forwarded-for": "203.0.113.7", "host": "gateway.example"}):
            assert await status(gateway, headers | others) == expected
        async with gateway.http.get("/metrics", headers={"x-api-key": gateway.key}) as answer:
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_off(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    metrics = {"enabled": False}
    async with run_gateway(tmp_path, channels(upstream.address), metrics=metrics) as gateway:
        assert await status(gateway, {}) == 404
        upstream.respond_with(fixture_stream("chat"))
        assert (await gateway.post(Format.CHAT, stream=True)).status == 200
        assert gateway.daemon.runtime.observers == ()


@pytest.mark.own_gateway
async def test_a_reload_applies_all_options(gateway: RunningGateway) -> None:
    runtime = gateway.daemon.runtime

    def reload(**options: object) -> None:
        section = runtime.config.metrics.model_validate(options)
        runtime.replace_config(runtime.config.model_copy(update={"metrics": section}))

    def others(_: ObservedRequest) -> None:
        pass

    runtime.observers += (others,)
    reload(token=TOKEN, keys=True)
    assert await status(gateway, {}) == 401
    assert await status(gateway, {"authorization": f"Bearer {TOKEN}"}) == 200
    assert "gateway_key_info{" in await scrape(gateway, authorization=f"Bearer {TOKEN}")
    reload(enabled=False)
    assert await status(gateway, {"authorization": f"Bearer {TOKEN}"}) == 404
    assert runtime.observers == (others,)
    reload()
    assert await status(gateway, {}) == 200
    assert len(runtime.observers) == 2


async def test_methods(gateway: RunningGateway) -> None:
    async with gateway.http.head("/metrics") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
        assert answer.content_type == "text/plain"
    for method in ("POST", "PUT", "DELETE"):
        async with gateway.http.request(method, "/metrics") as answer:
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.own_gateway
async def test_while_the_gateway_stops(gateway: RunningGateway) -> None:
    gateway.daemon.runtime.draining = True
    assert value(await scrape(gateway), "gateway_draining") == 1


def fill(gateway: RunningGateway) -> None:
    """As many series as there can be of requests."""
    metrics = gateway.daemon.runtime.metrics
    assert metrics is not None
    for number in range(metrics.requests.capacity):
        name = f"model-{number}"
        metrics.count(ended(ROW._replace(catalog_model=name, group_name=name)))


@pytest.mark.slow("renders large metrics many times")
@pytest.mark.large
async def test_concurrent_scrapes_do_not_stall_others(gateway: RunningGateway) -> None:
    fill(gateway)
    await scrape(gateway)  # imports the library
    worst, done = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal worst
        while not done.is_set():
            started = time.thread_time()  # not the time of other threads and processes
            await asyncio.sleep(0.005)
            worst = max(worst, time.thread_time() - started)

    gc.collect()
    gc.freeze()  # as `gateway serve` does
    try:
        watching = asyncio.ensure_future(watch())
        texts = await asyncio.gather(*(scrape(gateway) for _ in range(10)))
        done.set()
        await watching
    finally:
        gc.unfreeze()
    assert all(len(text) > 1_000_000 for text in texts)
    assert worst < 0.1


async def test_bodies_that_fill_the_memory_do_not_stop_scrapes(gateway: RunningGateway) -> None:
    fill(gateway)
    runtime = gateway.daemon.runtime
    runtime.bodies.total = full = runtime.current.max_bodies
    text = await scrape(gateway)
    assert value(text, "gateway_bodies_bytes") == value(text, "gateway_bodies_limit_bytes") == full
    runtime.bodies.total = 0


@pytest.mark.slow("renders large metrics many times")
async def test_a_reader_that_does_not_read(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cut off, and no other scrape waits for it."""
    monkeypatch.setattr(long_response, "READ_SECONDS", 2.0)
    fill(gateway)
    reader, writer = await asyncio.open_connection(
        *gateway.daemon.listener.addresses[0], limit=1024
    )
    for _ in range(8):
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
    async with asyncio.timeout(20):
        while not gateway.daemon.runtime.active_requests:
            await asyncio.sleep(0.02)
        assert value(await scrape(gateway), "gateway_requests_running") <= 2
        while gateway.daemon.runtime.active_requests:
            await asyncio.sleep(0.02)
        with suppress(ConnectionError):
            read = await reader.read(10**8)
            assert len(read) < 8 * 10**6
            while more := await reader.read(10**8):  # what was on its way
                read += more
    writer.close()
    assert read.count(b"HTTP/1.1 200") <= 2


async def test_clients_cannot_add_series(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """Whatever they put where labels come from: 200 requests make a handful of rows."""
    chance = random.Random(3)
    codes = [f"code_{chance.getrandbits(32)}" for _ in range(20)]
    upstream.respond_with(
        *(json_response({"error": {"message": "no", "code": code}}, 400) for code in codes)
    )

    def word() -> str:
        return f"{chance.getrandbits(64):x}"

    for number in range(50):
        agent = {"user-agent": word(), "x-request-id": word(), "x-session-id": word()}
        await gateway.post(Format.CHAT, model=word() * (number + 1), headers=agent)
        await gateway.post(Format.MESSAGES, headers=agent)
        await gateway.get(f"/v1/models/{word()}", key=word())
        await gateway.get(f"/{word()}/{'%20' * number}", key=word())
    text = await scrape(gateway)
    rows = [line for line in text.splitlines() if line.startswith("gateway_requests_total{")]
    assert len(rows) < 15
    assert value(text, "gateway_requests_total") == 200
    assert max(map(len, text.splitlines())) < 500
    assert not [code for code in codes if code in text]


async def test_no_secret_and_no_address_is_in_it(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(
        json_response(
            {"error": {"message": f"key {UPSTREAM_KEY} is wrong", "code": UPSTREAM_KEY}}, 401
        )
    )
    metrics = {"token": TOKEN, "keys": True}
    async with run_gateway(tmp_path, channels(upstream.address), metrics=metrics) as gateway:
        await gateway.post(Format.CHAT, headers={"x-api-key": gateway.key})
        await gateway.get(f"/v1/models/{gateway.key}")
        await gateway.get(f"/{gateway.key}")
        text = await scrape(gateway, authorization=f"Bearer {TOKEN}")
    assert gateway.token.id in text
    port = urlsplit(upstream.address).port
    secrets = (UPSTREAM_KEY, gateway.key, gateway.key[-8:], TOKEN, UPSTREAM_MODEL, f":{port}")
    assert [secret for secret in secrets if secret in text] == []


async def test_the_last_scrape_of_a_gateway_that_stops(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """While a stream still runs, a connection that is open can be scraped."""
    stream = fixture_stream("chat")
    upstream.respond_with(stream.with_changes(delay=0.8))
    async with run_gateway(tmp_path, channels(upstream.address)) as gateway:
        running = asyncio.ensure_future(gateway.post(Format.CHAT, stream=True))
        await scrape(gateway)
        await asyncio.sleep(0.2)
        listener, runtime = gateway.daemon.listener, gateway.daemon.runtime
        draining = asyncio.ensure_future(listener.drain(runtime, 5))
        await asyncio.sleep(0.1)
        text = await scrape(gateway)
        assert value(text, "gateway_draining") == 1
        assert value(text, "gateway_requests_running") == 2
        assert (await running).status == 200
        await draining
