"""The life of one client request, which becomes one row of the request log.

All but waiting for the intent is synchronous: a row is written even while the handler is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from math import inf
from time import perf_counter
from typing import Final, Protocol

from aiohttp import hdrs, web
from multidict import istr

from gateway.admission.access import Permit
from gateway.admission.client_address import client_address
from gateway.admission.dimensions import NO_DIMENSIONS, Dimensions, TrustedDimensions
from gateway.core.events import Failure, FailureKind, StopReason
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.value import by_position, replace
from gateway.errors import GatewayError, without_traceback
from gateway.routing.router import Candidate
from gateway.runtime import Runtime, new_request_id
from gateway.server.record.billing import Bill, UsageMeter
from gateway.store.records import AttemptRow, ExchangeState, RequestRow, SearchRow, Token
from gateway.telemetry.observed_request import ObservedRequest
from gateway.turns import Args, Result, Turns
from gateway.wire.json.long_texts import LongTexts

INTENT_TIMEOUT: Final = 0.25
"""Seconds that a reply, or a request to an upstream, waits until its intent row is committed."""

OK: Final = 200
CLIENT_CLOSED_REQUEST: Final = 499

_MAX_USER_AGENT: Final = 300
_MAX_REQUEST_ID: Final = 200
_REQUEST_ID_HEADER: Final = istr("x-request-id")

_UNPRINTABLE: Final = re.compile(r"[^\x21-\x2b\x2d-\x7e]")
"""A client may call its own fields anything; names are separated by commas."""

_MAX_MESSAGE: Final = 2048
"""Characters of an error message that are kept."""
_MAX_ERROR: Final = 8192
"""Characters of an upstream's error that are kept."""

_UNANSWERED: Final = (
    *(FailureKind.TIMEOUT, FailureKind.DISCONNECT, FailureKind.TRUNCATED, FailureKind.EMPTY),
    *(FailureKind.MALFORMED, FailureKind.TOO_LARGE, FailureKind.EVENT_TOO_LARGE),
)
"""Failures of requests that the upstream may have processed all the same."""

_MAX_NAME: Final = 64
_MAX_NAMES: Final = 32

log = logging.getLogger(__name__)


class ReplyKeeper(Protocol):
    """Stores a reply as the client received it."""

    def keep(self, reply: bytes, status: str) -> None: ...
    def keep_stream(self, frames: bytes) -> None: ...
    def close(self) -> None:
        """The request has ended, with a reply or without."""
        ...


class Exchange:
    """The values of the request's row, and how far the request has come.

    `committed`: the first real event was received, so the reply is sent from now on.
    `headers_sent`: the status has left with them, so that errors follow in the stream.
    `started` is in unix microseconds; `started_clock`, `committed_at` and `ended_at` are times of
    `perf_counter`; `queue_time`, `upload_time` (of the body, after its head) and `upstream_time`
    are seconds. `upstream_note` is what could not be read of a reply; `warnings` are what was
    unusual and allowed. `booked` is the body's part of the pool, in bytes; in `turns` it is read
    and translated, a small one without; `long_texts` are not in the parsed one. `drain` reads the
    upstream's reply to its end after the client has disconnected, unless it must not: `may_drain`.
    `storing` stores the reply, where it is to be stored. `states_cost`: its usage has its cost.
    `fallback` is the model that is tried
    in place of the requested one. `credential` are header lines with the client's own credential.
    """

    __slots__ = (
        *("_attempt_started", "_held", "_intent_future", "affinity_outcome", "affinity_source"),
        *("attempts", "attempts_made", "booked", "bytes_in", "bytes_out"),
        "candidate",
        *("client_address", "client_request_id", "committed", "committed_at", "credential"),
        *("dimensions", "drain"),
        *("dropped", "ended_at", "endpoint", "error", "failure", "fallback", "format"),
        *("headers_sent", "id", "intent", "long_texts", "may_drain", "meter", "prompt"),
        *("queue_time", "reply_id", "runtime", "snapshot", "started", "started_clock", "state"),
        *("searches", "states_cost", "status", "stop_reason", "storing", "token", "trace"),
        "turns",
        *("upload_time", "upstream_note", "upstream_time", "user_agent", "warnings", "when"),
    )

    def __init__(self, runtime: Runtime, request: web.Request) -> None:
        snapshot, headers = runtime.current, request.headers
        snapshot.active_requests += 1
        self.runtime = runtime
        self.snapshot = snapshot
        self.started = runtime.now()
        self.started_clock = perf_counter()
        self.id = new_request_id(self.started)
        begin = runtime.begin_trace
        self.trace = None if begin is None else begin(request, self.started, self.started_clock)
        self.endpoint = request.path
        self.format = ""
        proxies = snapshot.config.server.trusted_proxies
        self.client_address = client_address(request, proxies) if proxies else request.remote or ""
        self.user_agent = headers.get(hdrs.USER_AGENT, "")[:_MAX_USER_AGENT]
        request_id = headers.get(_REQUEST_ID_HEADER)
        self.client_request_id = request_id if request_id and _is_harmless(request_id) else None
        self.meter = UsageMeter(snapshot, self.started)
        self.state = ExchangeState.ERROR
        self.committed = self.headers_sent = self.states_cost = False
        self.status = self.bytes_in = self.bytes_out = self.attempts_made = self.booked = 0
        self.queue_time = self.upload_time = self.upstream_time = 0.0
        self.reply_id = ""
        self.warnings: list[str] = []
        self.attempts: list[AttemptRow] = []
        self.searches: tuple[SearchRow, ...] = ()
        self.dropped: Set[str] = frozenset()
        self.long_texts: LongTexts | None = None
        self.turns: Turns | None = None
        self.token: Token | None = None
        self.prompt: Prompt | None = None
        self.candidate: Candidate | None = None
        self.fallback: str | None = None
        self.credential = b""
        self.dimensions: Dimensions = NO_DIMENSIONS
        self.error: GatewayError | None = None
        self.failure: Failure | None = None
        self.stop_reason: StopReason | None = None
        self.upstream_note: str | None = None
        self.affinity_source: str | None = None
        self.affinity_outcome: str | None = None
        self.intent: RequestRow | None = None
        self._intent_future: asyncio.Future[None] | None = None
        self._attempt_started: float | None = None
        self.committed_at: float | None = None
        self.ended_at: float | None = None
        self.drain: asyncio.Future[None] | None = None
        self.may_drain = True
        self._held: tuple[asyncio.Future[None], ...] = ()
        self.storing: ReplyKeeper | None = None

    @property
    def key(self) -> str:
        """The id of the token; empty without one."""
        return self.token.id if self.token else ""

    def run_in_turn(self, function: Callable[[*Args], Result], *args: *Args) -> Awaitable[Result]:
        """Runs a function whose time grows with the body. Call it if there are `turns`."""
        return (self.turns or self.runtime.worker).run(self.key, self.id, function, *args)

    async def run_sized(self, function: Callable[[*Args], Result], *args: *Args) -> Result:
        """The result of a function whose time grows with the body: in a turn if it is large."""
        return await self.run_in_turn(function, *args) if self.turns else function(*args)

    def run_in_thread(self, function: Callable[[*Args], Result], *args: *Args) -> Awaitable[Result]:
        """Runs a function that may take long, whatever the size of the body."""
        return self.runtime.worker.run(self.key, self.id, function, *args)

    def check_body(self, size: int) -> None:
        """Raises as `BodyPool.check` where there is no memory for `size` bytes of a body."""
        self.runtime.bodies.check(self.key, self.client_address, size, self.snapshot.max_bodies)

    def book_body(self, size: int) -> None:
        """Memory for `size` more bytes of the body, until the request ends. Raises the same."""
        self.check_body(size)
        self.booked += size
        self.runtime.bodies.add(self.key, self.client_address, size)

    def release_body(self, size: int) -> None:
        """Releases so many bytes, which are no longer in memory; the end of the request releases
        the rest."""
        if self.booked:
            self.booked -= size
            self.runtime.bodies.add(self.key, self.client_address, -size)

    async def record_dimensions(
        self, permit: Permit, trusted: TrustedDimensions, headers: Mapping[str, str]
    ) -> Permit:
        """What the request states of itself. Call it once its prompt is known. Returns its permit,
        with the budgets of those that it states."""
        stated = trusted.read(headers, self.prompt)
        values = self.runtime.distinct_values
        self.dimensions, folded = values.limit(self.key, stated, self.started)
        if folded:
            self.warnings.append(f"too many values today: {', '.join(folded)}")
        if permit.dimension_limits:
            if (loading := self.runtime.dimension_loading) is not None:
                await asyncio.shield(loading)
            self.runtime.quota.forget_past(self.started)
            self.meter.permit = permit = permit.for_stated(self.dimensions)
        return permit

    def start_attempt(self, candidate: Candidate) -> None:
        """Call it before the upstream is contacted: the first attempt writes the intent row."""
        self.candidate = candidate
        self.meter.start_attempt()
        self.attempts_made += 1
        self._attempt_started = perf_counter()
        if self.trace is not None:
            self.trace_attempt(candidate)
        if self.intent is None:
            self.intent = build_intent(self)
            self._intent_future = self.runtime.recorder.record_intent(self.intent)

    def trace_attempt(self, candidate: Candidate) -> None:
        """A request to this candidate begins."""
        if self.trace is not None:
            channel = self.snapshot.upstream.channel(candidate)
            self.trace.start_attempt(candidate.target.model, channel.base_url)

    def header_lines(self, candidate: Candidate) -> bytes:
        """Lines for the upstream of the attempt that began last: of its trace, and the client's own
        credential, which no other channel gets."""
        lines = b"" if self.trace is None else self.trace.header
        if self.credential and candidate.channel in self.snapshot.client_channels:
            return lines + self.credential
        return lines

    def without_credential(self, failure: Failure) -> Failure:
        """The failure without the client's own credential, should the upstream have repeated it."""
        if not self.credential:
            return failure
        message, body = failure.message, failure.body
        for line in self.credential.decode("utf-8", "surrogateescape").splitlines():
            secret = line.split()[-1]
            message = message.replace(secret, "[redacted]")
            body = body and body.replace(secret, "[redacted]")
        return replace(failure, message=message, body=body, details=None)

    def end_attempt(self, row: AttemptRow, seconds: float) -> None:
        self.attempts.append(row)
        self.upstream_time += seconds
        self._attempt_started = None

    def set_next_step(self, step: str) -> None:
        """Records what follows the attempt that ended last."""
        self.attempts[-1] = self.attempts[-1]._replace(next=step)

    def server_timing(self) -> str:
        """The time so far as `server-timing` has it, in milliseconds: the gateway's own part, that
        in the queue if there is one, and the upstream's."""
        now = perf_counter()
        upstream, queued = self.upstream_time, self.queue_time
        if self._attempt_started is not None:
            upstream += now - self._attempt_started
        gateway = max(0.0, now - self.started_clock - upstream - queued)
        queue = f"queue;dur={queued * 1e3:.1f}, " if queued else ""
        return f"gateway;dur={gateway * 1e3:.1f}, {queue}upstream;dur={upstream * 1e3:.1f}"

    async def wait_for_intent(self) -> None:
        """Holds the reply back until the intent row is committed, for `INTENT_TIMEOUT` at most: a
        full disk must not stop replies."""
        future = self._intent_future
        if future is None or future.done():
            return
        self.when = future.get_loop().time() + INTENT_TIMEOUT
        self.runtime.scheduler.add(self)
        try:
            await future
        finally:
            self.runtime.scheduler.discard(self)

    def send(self, send: Callable[[], Awaitable[Result]]) -> Awaitable[Result]:
        """Sends to the upstream. If commits take long, that waits for the intent row, so that a
        process that is killed leaves no call without one, unless a commit takes longer than
        `INTENT_TIMEOUT`; otherwise both go on at the same time."""
        return self._send_after_intent(send) if self.runtime.recorder.commits_slowly else send()

    async def _send_after_intent(self, send: Callable[[], Awaitable[Result]]) -> Result:
        await self.wait_for_intent()
        return await send()

    def on_deadline(self, now: float) -> None:
        """The reply goes on without its intent row."""
        self.when = inf
        if self._intent_future is not None and not self._intent_future.done():
            self.runtime.recorder.note_uncommitted(self.id)
            self._intent_future.set_result(None)

    def on_abort(self) -> None:
        """Does nothing: this wait is short."""

    def commit(self) -> None:
        self.committed = True
        self.committed_at = perf_counter()

    def complete(self) -> None:
        """The client has received everything."""
        if self.error is None:
            self.state = ExchangeState.OK
            self.status = OK
            self.failure = None  # of an earlier attempt, which the client did not see
        self.ended_at = perf_counter()

    def client_stalled(self) -> None:
        """The client no longer reads."""
        self.state = ExchangeState.CLIENT_SLOW
        self.status = OK
        self.ended_at = perf_counter()

    def client_disconnected(self) -> None:
        """Records that the client has disconnected; this counts only while the reply is not
        complete."""
        if self.ended_at is None:
            self.state = ExchangeState.CLIENT_GONE
            self.status = OK if self.headers_sent else CLIENT_CLOSED_REQUEST

    def set_failure(self, failure: Failure) -> None:
        """The upstream's part of an error."""
        self.failure = failure = self.without_credential(failure)
        if not self.committed and failure.kind is not FailureKind.UNWRITABLE:
            receipt = self.meter.record_loss(is_unanswered=failure.kind in _UNANSWERED)
            if receipt is not None and self.attempts:
                self.attempts[-1] = self.attempts[-1]._replace(receipt=receipt)
            self.meter.start_attempt()  # an attempt that failed before it sent anything is free
        broken = failure.kind in (FailureKind.TRUNCATED, FailureKind.DISCONNECT, FailureKind.EMPTY)
        self.state = (
            ExchangeState.UPSTREAM_CUT if broken and self.committed else ExchangeState.ERROR
        )

    def set_error(self, error: GatewayError) -> None:
        """Records what the client receives instead of a reply."""
        self.error = without_traceback(error)
        messages_status = self.format == Format.MESSAGES and error.messages_status
        self.status = OK if self.headers_sent else messages_status or error.status
        if self.intent is None:
            self.state = ExchangeState.REJECTED

    def hold(self, future: asyncio.Future[None]) -> None:
        """Delays the end of the row until `future` is done: work may outlive its request."""
        self._held = (*self._held, future)

    def finish(self) -> None:
        """Writes the row's end once nothing holds it; a request without a valid key has no row.
        Observers are told of both."""
        pending = next((each for each in self._held if not each.done()), None)
        if pending is not None:
            pending.add_done_callback(lambda _: self.finish())
            return
        runtime, has_row = self.runtime, self.token is not None
        runtime.release(self.snapshot)
        if not has_row and not runtime.observers:
            return
        if self.storing is not None:
            self.storing.close()
            self.storing = None  # a cycle
        if self.booked:
            self.release_body(self.booked)
        bill = self.meter.final_bill(committed=self.committed, failed=self.error is not None)
        if (receipt := self.meter.receipt) is not None and self.attempts:
            self.attempts[-1] = self.attempts[-1]._replace(receipt=receipt)
        runtime.admission.settle(self.meter.reservation, bill.tokens, bill.cost)
        row = build_settlement(self, self.intent or build_intent(self), bill)
        if has_row:
            runtime.recorder.record_settlement(row, tuple(self.attempts), self.searches)
        elif self.error is None and row.state is ExchangeState.ERROR:
            row = row._replace(state=ExchangeState.OK)  # a health check, say: nothing completes it
        times = self.queue_time, self.upload_time, self.upstream_time
        ended = ObservedRequest(row, self.attempts, self.searches, *times, self.trace)
        for observe in runtime.observers:
            try:
                observe(ended)
            except Exception:  # the others, and the request, have to go on
                log.exception("%s: an observer failed", self.id)


@by_position(RequestRow)
def build_intent(exchange: Exchange) -> RequestRow:
    """Build the row of an exchange that begins."""
    token, prompt, candidate = exchange.token, exchange.prompt, exchange.candidate
    meter, warnings, dimensions = exchange.meter, exchange.warnings, exchange.dimensions
    return RequestRow(
        id=exchange.id,
        started_at=exchange.started,
        token_id=token.id if token else "",
        group_name=token.group if token else "",
        endpoint=exchange.endpoint,
        format=exchange.format,
        model=prompt.model if prompt else None,
        channel=candidate.channel if candidate else None,
        account=candidate.account if candidate else None,
        upstream_model=candidate.target.model if candidate else None,
        lane=candidate.lane._value_ if candidate else None,
        stream=prompt.stream if prompt else False,
        client_address=exchange.client_address,
        user_agent=exchange.user_agent,
        client_request_id=exchange.client_request_id,
        bytes_in=exchange.bytes_in,
        state=ExchangeState.RUNNING,
        catalog_model=meter.model,
        expected_input_tokens=meter.estimated_tokens,
        expected_micro=meter.estimated_cost.units,
        expected_usd_micro=meter.estimated_cost.usd,
        tariff=meter.tariff or (meter.price.description if meter.price else None),
        notes="; ".join(warnings) if warnings else None,
        end_user=dimensions.end_user,
        session=dimensions.session,
        agent=dimensions.agent,
        tag=dimensions.tag,
    )


@by_position(RequestRow)
def build_settlement(exchange: Exchange, intent: RequestRow, bill: Bill) -> RequestRow:
    """Build the row of an exchange that has ended from that of its begin."""
    usage, error, failure = bill.usage, exchange.error, exchange.failure
    candidate, meter, committed_at = exchange.candidate, exchange.meter, exchange.committed_at
    started, ended = exchange.started_clock, exchange.ended_at or perf_counter()
    has_note = failure is not None or exchange.upstream_note is not None
    return intent._replace(
        channel=candidate.channel if candidate else None,
        account=candidate.account if candidate else None,
        upstream_model=candidate.target.model if candidate else None,
        lane=candidate.lane._value_ if candidate else None,
        state=exchange.state,
        status=exchange.status,
        stop_reason=exchange.stop_reason._value_ if exchange.stop_reason else None,
        end_reason=_end_reason(exchange),
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        web_searches=usage.web_searches,
        usage_source=bill.source,
        first_event_us=round((committed_at - started) * 1e6) if committed_at else None,
        total_us=round((ended - started) * 1e6),
        bytes_out=exchange.bytes_out,
        error_code=error.code if error else None,
        error_message=_error_message(exchange, error) if error else None,
        upstream_status=failure.status if failure else None,
        upstream_error=_upstream_error(exchange) if has_note else None,
        upstream_format=candidate.format._value_ if candidate else None,
        dropped=format_dropped(exchange.dropped) if exchange.dropped else None,
        affinity=exchange.affinity_source,
        affinity_kept=exchange.affinity_outcome,
        config_hash=exchange.snapshot.hash,
        attempts=len(exchange.attempts),
        catalog_model=exchange.fallback or intent.catalog_model,
        tariff=meter.tariff
        or (meter.price.description if exchange.fallback and meter.price else intent.tariff),
        notes="; ".join(exchange.warnings) if exchange.warnings else None,
        cost_micro=bill.cost.units,
        usd_micro=bill.cost.usd,
        upstream_id=exchange.reply_id[:_MAX_REQUEST_ID] or None,
    )


def format_dropped(names: Iterable[str]) -> str:
    """The names as the row and the client's header have them."""
    shown = sorted({_UNPRINTABLE.sub("?", name)[:_MAX_NAME] for name in names})
    if len(shown) > _MAX_NAMES:
        shown[_MAX_NAMES:] = ["..."]
    return ", ".join(shown)


def _end_reason(exchange: Exchange) -> str:
    if exchange.state is ExchangeState.CLIENT_GONE:
        return "client_gone"
    if exchange.failure is not None:
        return f"upstream_{exchange.failure.kind.value}"
    if exchange.error is not None:
        return "refused" if exchange.intent is None else "failed"
    return "complete"


def _upstream_error(exchange: Exchange) -> str | None:
    failure = exchange.failure
    text = exchange.upstream_note if failure is None else failure.body or failure.message
    return None if text is None else exchange.snapshot.redactor.redact_secrets(text)[:_MAX_ERROR]


def _error_message(exchange: Exchange, error: GatewayError) -> str:
    """The detail of an upstream's failure is in the upstream's error."""
    detail = f" ({error.detail})" if error.detail and exchange.failure is None else ""
    return exchange.snapshot.redactor.redact_secrets(error.message + detail)[:_MAX_MESSAGE]


def _is_harmless(request_id: str) -> bool:
    """Tells whether a client's own request id can be kept in the log and sent back in a header."""
    return len(request_id) <= _MAX_REQUEST_ID and request_id.isascii() and request_id.isprintable()


EXCHANGE: Final = web.RequestKey("exchange", Exchange)
RUNTIME: Final = web.AppKey("runtime", Runtime)
