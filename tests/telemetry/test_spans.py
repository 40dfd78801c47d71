"""Spans of requests, attempts and searches, in memory: their tree, attributes and times."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gateway.config.monitoring import TraceOptions
from gateway.core.formats import Format
from gateway.telemetry.spans import Tracer
from tests.support.gateway import (
    ACCOUNT,
    ALPHA,
    UPSTREAM_KEY,
    UPSTREAM_MODEL,
    RunningGateway,
    channel,
    run_gateway,
)
from tests.support.searches import model_reply, search, search_tool, searching_gateway
from tests.support.upstream import (
    ReceivedRequest,
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.shared_gateway

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SECRET_PROMPT = "the prompt is nobody's business"


class Traced:
    """The spans of a gateway so far, oldest first."""

    def __init__(self, gateway: RunningGateway, **options: Any) -> None:
        self.gateway = gateway
        self._exporter = InMemorySpanExporter()
        tracer = Tracer(TraceOptions(**options), SimpleSpanProcessor(self._exporter))
        runtime = gateway.daemon.runtime
        runtime.begin_trace = tracer.begin
        runtime.observers = (*runtime.observers, tracer.observe)

    @property
    def spans(self) -> list[ReadableSpan]:
        spans = self._exporter.get_finished_spans()
        return sorted(spans, key=lambda span: span.start_time or 0)

    async def ended(self) -> tuple[ReadableSpan, list[ReadableSpan]]:
        """The span of the one request, and the others."""
        await self.gateway.rows()
        server, *others = sorted(self.spans, key=lambda span: span.kind is not SpanKind.SERVER)
        assert server.kind is SpanKind.SERVER
        return server, sorted(others, key=lambda span: span.start_time or 0)


@pytest.fixture
async def traced(gateway: RunningGateway) -> AsyncIterator[Traced]:
    yield Traced(gateway)


def trace_headers(request: ReceivedRequest) -> list[str]:
    """The parts of its traceparent."""
    return request.headers["traceparent"].split("-")


def span_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def trace_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


async def test_a_request_and_its_attempt(traced: Traced, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_stream(Format.MESSAGES, "text"))
    turns = [{"role": "user", "content": SECRET_PROMPT}]
    answer = await traced.gateway.post(Format.MESSAGES, stream=True, messages=turns)
    server, (client,) = await traced.ended()
    row = await traced.gateway.row()
    assert server.name == "POST /v1/messages"
    assert server.parent is None
    assert server.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/messages",
        "http.response.status_code": 200,
        "client.address": "127.0.0.1",
        "gateway.request.id": answer.headers["request-id"],
        "gateway.key.id": traced.gateway.token.id,
        "gateway.group": "default",
        "gateway.model": ALPHA,
        "gateway.format": "messages",
        "gateway.stream": True,
        "gateway.attempts": 1,
        "gateway.state": "ok",
        "gateway.end_reason": "complete",
        "gateway.cost": row.cost_micro / 1e6,
    }
    assert client.name == f"chat {UPSTREAM_MODEL}"
    assert client.kind is SpanKind.CLIENT
    assert client.parent is not None and client.parent == server.context
    attributes = dict(client.attributes or {})
    first = attributes.pop("gen_ai.response.time_to_first_chunk")
    assert isinstance(first, float) and 0 < first < 10
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": UPSTREAM_MODEL,
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": (row.stop_reason,),
        "gen_ai.usage.input_tokens": row.input_tokens,
        "gen_ai.usage.output_tokens": row.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": row.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": row.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": row.reasoning_tokens,
        "gateway.usage.source": "upstream",
        "server.address": "127.0.0.1",
        "server.port": upstream.port,
        "http.response.status_code": 200,
        "gateway.channel": "messages-main",
        "gateway.account": ACCOUNT,
        "gateway.upstream.format": "messages",
        "gateway.lane": "native",
        "gateway.attempt.reason": row_reason(client),
        "gateway.attempt.verdict": "ok",
    }
    assert [event.name for event in client.events] == ["first_event"]
    assert server.status.status_code is StatusCode.UNSET
    for span in (server, client):
        assert span.start_time is not None and span.end_time is not None
    assert (server.start_time or 0) <= (client.start_time or 0)
    assert (client.end_time or 0) <= (server.end_time or 0) + 50_000_000
    *ids, flags = trace_headers(upstream.last_request)
    assert ids == ["00", trace_id(server), span_id(client)]
    assert int(flags, 16) & 1, "it is sampled"
    assert SECRET_PROMPT not in everything(traced.spans)


def row_reason(span: ReadableSpan) -> Any:
    return (span.attributes or {})["gateway.attempt.reason"]


def everything(spans: list[ReadableSpan]) -> str:
    return "".join(span.to_json() for span in spans)


async def test_a_failover(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    line = channel(Format.CHAT, upstream.address)
    line["accounts"] = [{"name": name, "key": f"{UPSTREAM_KEY}-{name}"} for name in ("a1", "a2")]
    broken = json_response({"error": {"message": f"broken {UPSTREAM_KEY}-a1 {SECRET_PROMPT}"}}, 500)
    upstream.respond_with(broken, fixture_reply("chat"))
    async with run_gateway(tmp_path, [line]) as gateway:
        traced = Traced(gateway)
        assert (await gateway.post(Format.CHAT)).status == 200
        server, (first, second) = await traced.ended()
        assert first.parent == second.parent == server.context
        assert first.status.status_code is StatusCode.ERROR
        assert second.status.status_code is StatusCode.UNSET
        assert (first.attributes or {})["http.response.status_code"] == 500
        assert (first.attributes or {})["error.type"]
        assert "gen_ai.usage.input_tokens" not in (first.attributes or {})
        assert "gen_ai.usage.input_tokens" in (second.attributes or {})
        (event,) = server.events
        assert event.name == "attempt_failed"
        assert (event.attributes or {})["gateway.attempt.next"] == "other account"
        assert server.status.status_code is StatusCode.UNSET
        sent = [trace_headers(request)[2] for request in upstream.requests]
        assert sent == [span_id(first), span_id(second)]
        told = everything(traced.spans)
        assert UPSTREAM_KEY not in told
        assert SECRET_PROMPT not in told
        assert gateway.key not in told


async def test_a_failed_request(traced: Traced, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({"error": {"message": "no"}}, 500))
    assert (await traced.gateway.post(Format.CHAT)).status == 503
    server, attempts = await traced.ended()
    assert server.status.status_code is StatusCode.ERROR
    assert server.status.description is None
    assert (server.attributes or {})["error.type"] == "server_is_overloaded"
    assert {span.status.status_code for span in attempts} == {StatusCode.ERROR}


async def test_an_error_of_the_clients_is_none_of_the_servers(traced: Traced) -> None:
    assert (await traced.gateway.post(Format.CHAT, model="unknown")).status == 503
    assert (await traced.gateway.post(Format.CHAT, b"{")).status == 400
    await traced.gateway.rows(2)
    statuses = {
        (span.attributes or {})["http.response.status_code"]: span.status.status_code
        for span in traced.spans
    }
    assert statuses == {503: StatusCode.ERROR, 400: StatusCode.UNSET}


async def test_a_clients_trace_goes_on(traced: Traced, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply("chat"))
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b,c=d"}
    await traced.gateway.post(Format.CHAT, headers=headers)
    server, (client,) = await traced.ended()
    assert trace_id(server) == trace_id(client) == TRACE
    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == PARENT
    assert upstream.last_request.headers["tracestate"] == "a=b,c=d"
    assert trace_headers(upstream.last_request) == ["00", TRACE, span_id(client), "01"]


async def test_a_trace_that_the_client_does_not_sample(
    traced: Traced, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    await traced.gateway.post(Format.CHAT, headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    await traced.gateway.rows()
    assert traced.spans == []
    version, trace, parent, flags = trace_headers(upstream.last_request)
    assert (version, trace, flags) == ("00", TRACE, "00")
    assert parent != PARENT


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"00-{TRACE}-{PARENT}",
        f"00-{'0' * 32}-{PARENT}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}x-{PARENT}-01",
        "x" * 8000,
        "\u00e9-\u00e9-\u00e9-\u00e9",
    ],
)
async def test_a_malformed_traceparent(
    traced: Traced, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture, header: str
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    headers = {"traceparent": header, "tracestate": "a=b"}
    assert (await traced.gateway.post(Format.CHAT, headers=headers)).status == 200
    server, _ = await traced.ended()
    assert server.parent is None
    assert trace_id(server) != TRACE
    assert "tracestate" not in upstream.last_request.headers
    assert_library_is_silent(caplog)


STATES = (
    *("a=" + "b" * 600, "no state at all;", "a=b\u00e9", "\u00e9=b", "a", "a=", "a=b=c", "A=b"),
    *("1=b", "a=b\tc", "t@1=b", "a=b,\u65e5=c", ",".join(f"k{n}=v" for n in range(33)), "a=1,a=2"),
)


@pytest.mark.parametrize("state", STATES)
async def test_a_tracestate_that_is_not_passed_on(
    traced: Traced, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": state}
    assert (await traced.gateway.post(Format.CHAT, headers=headers)).status == 200
    assert "tracestate" not in upstream.last_request.headers
    assert trace_headers(upstream.last_request)[1] == TRACE
    assert_library_is_silent(caplog)


@pytest.mark.parametrize(
    "state", ["a=b", "1t@v=b", 'a/b_c-d*e="{x}" y', ",".join(f"k{n}=v" for n in range(32))]
)
async def test_a_tracestate_that_is_passed_on(
    traced: Traced, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": f" {state} ,"}
    await traced.gateway.post(Format.CHAT, headers=headers)
    assert upstream.last_request.headers["tracestate"] == state
    assert_library_is_silent(caplog)


def assert_library_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    assert not [each for each in caplog.records if each.name.startswith("opentelemetry")]


async def test_what_is_sampled(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    traced = Traced(gateway, sample=0)
    upstream.respond_with(fixture_reply("chat"))
    await gateway.post(Format.CHAT)
    await gateway.post(Format.CHAT, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    await gateway.rows(2)
    assert {trace_id(span) for span in traced.spans} == {TRACE}, "the client's decision counts"


async def test_upstreams_need_not_know(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    traced = Traced(gateway, propagate=False)
    upstream.respond_with(fixture_reply("chat"))
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}
    await gateway.post(Format.CHAT, headers=headers)
    await traced.ended()
    assert not {"traceparent", "tracestate"} & {*map(str.lower, upstream.last_request.headers)}


async def test_traces_are_off(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    """A client's traceparent is no header that is forwarded."""
    upstream.respond_with(fixture_reply("chat"))
    await gateway.post(Format.CHAT, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    assert "traceparent" not in upstream.last_request.headers


async def test_what_is_not_traced(traced: Traced) -> None:
    gateway = traced.gateway
    for path in ("/healthz", "/readyz", "/nothing"):
        await gateway.get(path)
    await gateway.post(Format.CHAT, key="sk-wrong")
    assert traced.spans == []
    await gateway.get("/v1/models")
    await gateway.rows()
    assert [span.name for span in traced.spans] == ["GET /v1/models"]


async def test_tokens_are_counted(traced: Traced, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({"input_tokens": 7}))
    await traced.gateway.post(Format.MESSAGES, path="/v1/messages/count_tokens")
    server, (client,) = await traced.ended()
    assert server.name == "POST /v1/messages/count_tokens"
    assert client.name == f"count_tokens {UPSTREAM_MODEL}"
    assert (client.attributes or {})["gen_ai.operation.name"] == "count_tokens"
    assert trace_headers(upstream.last_request)[2] == span_id(client)


async def test_rounds_and_searches(tmp_path: Path) -> None:
    async with searching_gateway(tmp_path, Format.CHAT) as searching:
        traced = Traced(searching.gateway)
        upstream = searching.upstream
        upstream.respond_with(
            model_reply(Format.CHAT, "I look.", search(SECRET_PROMPT)),
            model_reply(Format.CHAT, "About 700,000."),
        )
        tools = search_tool(Format.MESSAGES)
        assert (await searching.gateway.post(Format.MESSAGES, stream=True, **tools)).status == 200
        server, (first, lookup, second) = await traced.ended()
        assert [span.parent for span in (first, lookup, second)] == [server.context] * 3
        assert lookup.name == "execute_tool web_search"
        assert lookup.attributes == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "web_search",
            "gateway.search.results": 2,
        }
        sent = [trace_headers(request)[2] for request in upstream.requests]
        assert sent == [span_id(first), span_id(second)]
        assert "gen_ai.usage.input_tokens" in (first.attributes or {})
        assert "traceparent" not in searching.endpoint.last_request.headers
        assert SECRET_PROMPT not in everything(traced.spans)


async def test_a_failed_round_has_its_own_row(tmp_path: Path) -> None:
    async with searching_gateway(tmp_path, Format.CHAT, accounts=2) as searching:
        traced = Traced(searching.gateway)
        searching.upstream.respond_with(
            model_reply(Format.CHAT, "I look.", search()),
            json_response({"error": {"message": "no"}}, 500),
            model_reply(Format.CHAT, "About 700,000."),
        )
        tools = search_tool(Format.MESSAGES)
        await searching.gateway.post(Format.MESSAGES, stream=True, **tools)
        _, spans = await traced.ended()
        first, failed, last = [span for span in spans if span.name.startswith("chat")]
        assert (first.attributes or {})["gateway.attempt.verdict"] == "ok"
        assert (failed.attributes or {})["http.response.status_code"] == 500
        assert failed.status.status_code is StatusCode.ERROR
        assert "gateway.attempt.verdict" not in (last.attributes or {})


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OTEL_TRACES_SAMPLER", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    yield
