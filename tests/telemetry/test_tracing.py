"""Traces of a running gateway that go to a collector by OTLP over HTTP, and its failures."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.core.formats import Format
from gateway.telemetry import tracing
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    fixture_reply,
    scripted_upstream,
)

TAKEN = Response(headers={"content-type": "application/x-protobuf"}, chunks=(b"",))


@pytest.fixture
async def collector() -> AsyncIterator[ScriptedUpstream]:
    async with scripted_upstream() as collector:
        collector.respond_with(TAKEN)
        yield collector


@asynccontextmanager
async def tracing_gateway(
    state_dir: Path, upstream: ScriptedUpstream, **traces: Any
) -> AsyncIterator[RunningGateway]:
    upstream.respond_with(fixture_reply("chat"))
    config = {"traces": traces} if traces else {}
    async with run_gateway(state_dir, channels(upstream.address), **config) as gateway:
        yield gateway


def spans(collector: ScriptedUpstream) -> list[Any]:
    """Every span that it received, with the attributes of its resource."""
    found = []
    for request in collector.requests:
        for part in ExportTraceServiceRequest.FromString(request.body).resource_spans:
            resource = {each.key: each.value.string_value for each in part.resource.attributes}
            found += [(resource, span) for scope in part.scope_spans for span in scope.spans]
    return found


async def test_a_collector_receives_spans(
    tmp_path: Path, upstream: ScriptedUpstream, collector: ScriptedUpstream
) -> None:
    headers = {"x-collector-key": "canary-of-the-collector"}
    async with tracing_gateway(
        tmp_path, upstream, endpoint=collector.address, headers=headers
    ) as gateway:
        for _ in range(3):
            await gateway.post(Format.CHAT)
        assert gateway.daemon.runtime.begin_trace is not None
    request = collector.last_request
    assert request.target == "/v1/traces"
    assert request.headers["x-collector-key"] == "canary-of-the-collector"
    received = spans(collector)
    assert len(received) == 6, "what waited was sent at the end"
    assert {resource["service.name"] for resource, _ in received} == {"model-gateway"}
    names = sorted(span.name for _, span in received)
    assert names == ["POST /v1/chat/completions"] * 3 + ["chat upstream-model"] * 3
    assert not any(b"canary" in request.body for request in collector.requests)


async def test_the_environment_names_the_collector(
    tmp_path: Path,
    upstream: ScriptedUpstream,
    collector: ScriptedUpstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "gateway-for-tests")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with tracing_gateway(tmp_path, upstream) as gateway:
        await gateway.post(Format.CHAT)
    assert {resource["service.name"] for resource, _ in spans(collector)} == {"gateway-for-tests"}


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")]
)
async def test_the_environment_switches_traces_off(
    tmp_path: Path,
    upstream: ScriptedUpstream,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv(name, value)
    async with tracing_gateway(tmp_path, upstream) as gateway:
        assert gateway.daemon.runtime.begin_trace is None


async def test_without_the_extra_the_environment_is_a_warning(
    tmp_path: Path,
    upstream: ScriptedUpstream,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(tracing, "has_opentelemetry", lambda: False)
    async with tracing_gateway(tmp_path, upstream) as gateway:
        assert gateway.daemon.runtime.begin_trace is None
    assert "pip install 'model-gateway[otel]'" in caplog.text


ELSEWHERE = "http://127.0.0.1:9/v1/traces"


@pytest.mark.parametrize(
    "answer",
    [
        Response(ending=Ending.STALLED),
        Response(status=500, chunks=(b"\x1b[2J broken",)),
        Response(status=503, headers={"retry-after": "60"}),
        Response(raw=b""),
        Response(raw=b"no http at all\r\n\r\n"),
        Response(status=307, headers={"location": ELSEWHERE}),
    ],
    ids=["hangs", "500", "503 with a hint", "closes", "garbage", "redirects"],
)
async def test_a_collector_that_fails(
    tmp_path: Path,
    upstream: ScriptedUpstream,
    collector: ScriptedUpstream,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    answer: Response,
) -> None:
    """Requests go on, and the end waits for it for a short time only."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(tracing, "FLUSH_TIMEOUT", 1.0)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    collector.respond_with(answer)
    started = time.monotonic()
    async with tracing_gateway(tmp_path, upstream, endpoint=collector.address) as gateway:
        for _ in range(20):
            assert (await gateway.post(Format.CHAT)).status == 200
        await collector.wait_for_request()
        served = time.monotonic()
    assert time.monotonic() - served < 8
    assert served - started < 20
    assert "\x1b" not in "".join(each.getMessage() for each in caplog.records)


async def test_nobody_listens(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with tracing_gateway(tmp_path, upstream, endpoint="http://127.0.0.1:9") as gateway:
        assert (await gateway.post(Format.CHAT)).status == 200
        await asyncio.sleep(0)


async def test_spans_that_wait_are_limited(
    tmp_path: Path,
    upstream: ScriptedUpstream,
    collector: ScriptedUpstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    monkeypatch.setattr(tracing, "FLUSH_TIMEOUT", 0.5)
    collector.respond_with(Response(ending=Ending.STALLED))
    async with tracing_gateway(tmp_path, upstream, endpoint=collector.address) as gateway:
        for _ in range(20):
            assert (await gateway.post(Format.CHAT)).status == 200
        await collector.wait_for_request()
    assert len(spans(collector)) <= 8
