"""Spans of requests by OpenTelemetry, sent in batches by OTLP over HTTP.

Only imported where traces are on: it needs the extra `otel`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from requests import Session

from gateway import __version__
from gateway.config.monitoring import TraceOptions
from gateway.store.records import AttemptRow, ExchangeState, RequestRow, SearchRow
from gateway.telemetry.observed_request import ObservedRequest, RequestTrace

Value = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, Value]

OK_VERDICT: Final = "ok"
ABANDONED: Final = "given up"
"""Verdicts of attempts that are no error of the upstream's."""

_PROVIDERS: Final = {"messages": "anthropic"}
"""The name of an upstream of the format, whoever runs it; openai for the other formats."""
_PORTS: Final = {"http": 80, "https": 443}
_FAILED: Final = frozenset({ExchangeState.ERROR, ExchangeState.UPSTREAM_CUT})
_SERVER_ERROR: Final = 500


def request_attributes(row: RequestRow) -> Attributes:
    return _present(
        {
            "http.response.status_code": row.status,
            "client.address": row.client_address,
            "error.type": (row.error_code or row.end_reason) if request_failed(row) else None,
            "gateway.request.id": row.id,
            "gateway.key.id": row.token_id,
            "gateway.group": row.group_name,
            "gateway.model": row.catalog_model or row.model,
            "gateway.format": row.format,
            "gateway.stream": row.stream,
            "gateway.attempts": row.attempts,
            "gateway.state": row.state.value,
            "gateway.end_reason": row.end_reason,
            "gateway.error.code": row.error_code,
            "gateway.cost": row.cost_micro / 1e6,
            "gateway.cost_usd": row.usd_micro / 1e6 if row.usd_micro else None,
        }
    )


def request_failed(row: RequestRow) -> bool:
    """Whether the gateway or an upstream is at fault; an error of the client's is no failure."""
    return row.state in _FAILED or (row.status or 0) >= _SERVER_ERROR


def attempt_attributes(row: AttemptRow) -> Attributes:
    """Returns the attributes of an attempt, whatever became of it."""
    failed = attempt_failed(row)
    first = row.first_event_us
    return _present(
        {
            "gen_ai.provider.name": _PROVIDERS.get(row.format, "openai"),
            "gen_ai.response.time_to_first_chunk": None if first is None else first / 1e6,
            "http.response.status_code": row.status,
            "error.type": row.verdict if failed else None,
            "gateway.channel": row.channel,
            "gateway.account": row.account,
            "gateway.upstream.format": row.format,
            "gateway.lane": row.lane,
            "gateway.attempt.reason": row.reason,
            "gateway.attempt.verdict": row.verdict,
            "gateway.attempt.next": row.next,
        }
    )


def attempt_failed(row: AttemptRow) -> bool:
    return row.verdict not in (OK_VERDICT, ABANDONED)


def usage_attributes(row: RequestRow) -> Attributes:
    """Returns the attributes of the attempt whose reply the client received. `input_tokens` has
    cached ones too."""
    attributes = _present({"gen_ai.request.stream": row.stream or None})
    if row.stop_reason is not None:
        attributes["gen_ai.response.finish_reasons"] = (row.stop_reason,)
    if row.usage_source != "none":
        attributes |= {
            "gen_ai.usage.input_tokens": row.input_tokens,
            "gen_ai.usage.output_tokens": row.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": row.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": row.cache_write_tokens,
            "gen_ai.usage.reasoning.output_tokens": row.reasoning_tokens,
            "gateway.usage.source": row.usage_source,
        }
    return attributes


def search_attributes(row: SearchRow) -> Attributes:
    return _present(
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "web_search",
            "error.type": row.error.partition(":")[0] if row.error else None,
            "gateway.search.results": row.results,
        }
    )


@lru_cache(maxsize=256)
def server_attributes(base_url: str) -> Attributes:
    """Returns where a channel's upstream is. Do not change the result."""
    parts = urlsplit(base_url)
    return {
        "server.address": parts.hostname or "",
        "server.port": parts.port or _PORTS.get(parts.scheme, 0),
    }


def _present(attributes: dict[str, Value | None]) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None and value != ""}


_SERVICE: Final = "model-gateway"
_TRACED: Final = "/v1/"
"""The paths of clients' requests; health checks and metrics are not traced."""
_MAX_PARENT: Final = 512
"""Characters of a client's traceparent that are read; the library would log that there are more."""
_MAX_STATE: Final = 512
"""Characters of a client's tracestate; a longer one is dropped."""
_MAX_STATE_MEMBERS: Final = 32
_STATE_MEMBER: Final = re.compile(
    r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)
"""https://www.w3.org/TR/trace-context-1/#tracestate-header-field-values"""
_COUNT_PATHS: Final = ("/count_tokens", "/input_tokens")
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class Tracer:
    """The spans of this process; `processor` receives them, else a batch processor sends them to
    the collector of the options. Its queue is limited (`OTEL_BSP_MAX_QUEUE_SIZE`, 2,048 spans)."""

    def __init__(self, options: TraceOptions, processor: SpanProcessor | None = None) -> None:
        self._propagates = options.propagate
        self._exporter: OTLPSpanExporter | None = None
        sample = options.sample
        provider = TracerProvider(
            sampler=None if sample is None else ParentBased(TraceIdRatioBased(sample)),
            resource=_resource(),
            shutdown_on_exit=False,
        )
        if processor is None:
            headers = {name: value.get_secret_value() for name, value in options.headers.items()}
            self._exporter = OTLPSpanExporter(
                options.endpoint,
                headers=headers or None,
                timeout=options.timeout,
                session=_session(),
            )
            processor = BatchSpanProcessor(self._exporter)
        self._processor = processor
        provider.add_span_processor(processor)
        self._tracer = provider.get_tracer("gateway", __version__)

    def begin(self, request: web.Request, started: int, clock: float) -> RequestTrace | None:
        """The trace of a client's request, in that of the client where it sends a valid
        traceparent. The request began at `started` in unix microseconds, `clock` of
        `perf_counter`."""
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else ""
        if not route.startswith(_TRACED):
            return None
        context = Context()
        if traceparent := request.headers.get("traceparent"):
            carrier = {"traceparent": traceparent[:_MAX_PARENT]}
            if state := _valid_state(",".join(request.headers.getall("tracestate", ()))):
                carrier["tracestate"] = state
            context = _PROPAGATOR.extract(carrier, context)
        attributes = {"http.request.method": request.method, "http.route": route}
        name = f"{request.method} {route}"
        span = self._tracer.start_span(
            name, context, SpanKind.SERVER, attributes, start_time=started * 1000
        )
        operation = "count_tokens" if route.endswith(_COUNT_PATHS) else "chat"
        return _Trace(self, span, started * 1000, clock, operation)

    def observe(self, ended: ObservedRequest) -> None:
        """Ends the spans of a request with what its rows say. Requests without a valid key are not
        traced."""
        if isinstance(ended.trace, _Trace) and ended.row.token_id:
            ended.trace.end(ended)

    def shutdown(self) -> None:
        """Sends what waits, and blocks for up to 30 seconds."""
        self._processor.shutdown()

    def give_up(self) -> None:
        """Ends the attempts to send."""
        if self._exporter is not None:
            self._exporter.shutdown()  # type: ignore[no-untyped-call]  # the library has no type here

    def child(self, parent: Span, name: str, start: int) -> Span:
        """A span of what the gateway requests from another server; `start` is in unix ns."""
        context = set_span_in_context(parent, Context())
        return self._tracer.start_span(name, context, SpanKind.CLIENT, start_time=start)

    def header(self, span: Span) -> bytes:
        """The header lines for the server of this span."""
        if not self._propagates:
            return b""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(span, Context()))
        return "".join(f"{name}: {value}\r\n" for name, value in carrier.items()).encode()


class _Trace:
    """A request's span, and those of its attempts and later rounds with their times in the order of
    their beginnings. Times are in unix nanoseconds."""

    __slots__ = ("_attempts", "_clock", "_operation", "_span", "_started", "_tracer", "header")

    def __init__(
        self, tracer: Tracer, span: Span, started: int, clock: float, operation: str
    ) -> None:
        self._tracer, self._span, self._operation = tracer, span, operation
        self._started, self._clock = started, clock
        self._attempts: list[tuple[int, Span]] = []
        self.header = b""

    @property
    def trace_id(self) -> str:
        return f"{self._span.get_span_context().trace_id:032x}"

    def start_attempt(self, model: str, base_url: str) -> None:
        start = self._started + round((perf_counter() - self._clock) * 1e9)
        span = self._tracer.child(self._span, f"{self._operation} {model}", start)
        if span.is_recording():
            span.set_attributes(server_attributes(base_url))
            span.set_attribute("gen_ai.operation.name", self._operation)
            span.set_attribute("gen_ai.request.model", model)
        self._attempts.append((start, span))
        self.header = self._tracer.header(span)

    def end(self, ended: ObservedRequest) -> None:
        row, span = ended.row, self._span
        if not span.is_recording():
            return
        end = self._started + (row.total_us or 0) * 1000
        for attempt, attempt_row, latest in self._matched(ended.attempts, end):
            self._end_attempt(attempt, attempt_row, row, latest)
        for search in ended.searches:
            self._add_search(search)
        span.set_attributes(request_attributes(row))
        if request_failed(row):
            span.set_status(StatusCode.ERROR)
        span.end(end)

    def _matched(
        self, rows: Sequence[AttemptRow], end: int
    ) -> Iterator[tuple[Span, AttemptRow | None, int]]:
        """Yields each span with its row, and the time at which it has ended at the latest. A span
        that begins between two rows is that of the first; counts, and later rounds of a search that
        went well, have no row."""
        unused = sorted(rows, key=lambda row: row.started_us)
        begins = [*(start for start, _ in self._attempts), max(end, self._started)]
        for (start, span), (_, latest) in zip(self._attempts, pairwise(begins), strict=True):
            row = None
            while unused and self._started + unused[0].started_us * 1000 <= start:
                row = unused.pop(0)
            yield span, row, latest

    def _end_attempt(
        self, span: Span, row: AttemptRow | None, request: RequestRow, end: int
    ) -> None:
        if row is None:
            span.end(end)
            return
        start = self._started + row.started_us * 1000
        end = start + row.total_us * 1000
        span.set_attributes(attempt_attributes(row))
        if row.first_event_us is not None:
            span.add_event("first_event", timestamp=start + row.first_event_us * 1000)
        if row.verdict == OK_VERDICT:
            span.set_attributes(usage_attributes(request))
        if attempt_failed(row):
            span.set_status(StatusCode.ERROR)
            attributes = {"gateway.channel": row.channel, "gateway.account": row.account}
            attributes |= {"error.type": row.verdict, "gateway.attempt.next": row.next or ""}
            self._span.add_event("attempt_failed", attributes, timestamp=end)
        span.end(end)

    def _add_search(self, row: SearchRow) -> None:
        start = self._started + row.started_us * 1000
        span = self._tracer.child(self._span, "execute_tool web_search", start)
        span.set_attributes(search_attributes(row))
        if row.error is not None:
            span.set_status(StatusCode.ERROR)
        span.end(start + row.total_us * 1000)


def _valid_state(state: str) -> str:
    """A client's tracestate, or "" where it is invalid or too long: the library would log the text
    of the client."""
    if len(state) > _MAX_STATE:
        return ""
    members = [member for each in state.split(",") if (member := each.strip(" \t"))]
    if len(members) > _MAX_STATE_MEMBERS or not all(map(_STATE_MEMBER.fullmatch, members)):
        return ""
    return ",".join(members)


def _session() -> Session:
    """Goes nowhere but to the collector: it follows no redirects, and uses no proxies and no
    credentials of the environment."""
    session = Session()
    session.max_redirects = 0
    session.trust_env = False
    return session


def _resource() -> Resource:
    named = "OTEL_SERVICE_NAME" in os.environ or SERVICE_NAME in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    attributes = {SERVICE_VERSION: __version__}
    return Resource.create(attributes if named else {SERVICE_NAME: _SERVICE, **attributes})
