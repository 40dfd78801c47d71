"""The life of one client request, which becomes one row of the request log.

All but waiting for the intent is synchronous: a row is written even while the handler is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Set
from math import inf
from time import perf_counter
from typing import Final, Protocol

from aiohttp import hdrs, web
from multidict import istr

from gateway.admission.client_address import client_address
from gateway.core.events import Failure, FailureKind, StopReason
from gateway.core.prompt import Prompt
from gateway.errors import GatewayError, without_traceback
from gateway.routing.router import Candidate
from gateway.runtime import Runtime, new_request_id
from gateway.server.billing import UsageMeter
from gateway.server.exchange_record import build_intent, build_settlement
from gateway.store.records import AttemptRow, ExchangeState, RequestRow, SearchRow, Token
from gateway.telemetry.observed_request import ObservedRequest
from gateway.turns import Args, Result, Turns
from gateway.wire.long_texts import LongTexts

INTENT_TIMEOUT: Final = 0.25
"""Seconds that a reply, or a request to an upstream, waits until its intent row is committed."""

OK: Final = 200
CLIENT_CLOSED_REQUEST: Final = 499

_MAX_USER_AGENT: Final = 300
_MAX_REQUEST_ID: Final = 200
_REQUEST_ID_HEADER: Final = istr("x-request-id")
_MESSAGES_PATH: Final = "/v1/messages"

log = logging.getLogger(__name__)


class ReplyKeeper(Protocol):
    """Stores a reply as the client received it (`gateway.server.stored_replies`)."""

    def keep(self, reply: bytes, status: str) -> None: ...
    def keep_stream(self, frames: bytes) -> None: ...
    def close(self) -> None:
        """The request has ended, with a reply or without."""
        ...


class Exchange:
    """What the request's row will say, and how far the request has come.

    `committed`: the first real event was received, so the reply is sent from now on.
    `headers_sent`: the status has left with them, so that errors follow in the stream.
    `started` is in unix microseconds; `started_clock`, `committed_at` and `ended_at` are times of
    `perf_counter`; `queue_time`, `upload_time` (of the body, after its head) and `upstream_time`
    are seconds. `upstream_note` is what could not be read of a reply; `warnings` are what was
    unusual and allowed. `booked` is the body's part of the pool, in bytes; in `turns` it is read
    and translated, a small one without; `long_texts` are not in the parsed one. `drain` reads the
    upstream's reply to its end after the client has disconnected. `background` is done when the
    work of a background response has ended, which outlives its request, or a large reply's size is
    known. `storing` stores the reply, where it is to be stored.
    """

    __slots__ = (
        *("_attempt_started", "_intent_future", "affinity_outcome", "affinity_source"),
        *("attempts", "attempts_made", "background", "booked", "bytes_in", "bytes_out"),
        "candidate",
        *("client_address", "client_request_id", "committed", "committed_at", "drain"),
        *("dropped", "ended_at", "endpoint", "error", "failure", "format"),
        *("headers_sent", "id", "intent", "long_texts", "meter", "prompt"),
        *("queue_time", "reply_id", "runtime", "snapshot", "started", "started_clock", "state"),
        *("searches", "status", "stop_reason", "storing", "token", "trace", "turns"),
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
        self.committed = self.headers_sent = False
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
        self.background: asyncio.Future[None] | None = None
        self.storing: ReplyKeeper | None = None

    @property
    def key(self) -> str:
        """The id of the token; empty without one."""
        return self.token.id if self.token else ""

    def run_in_turn(self, function: Callable[[*Args], Result], *args: *Args) -> Awaitable[Result]:
        """What takes as long as the body is large. Call it where there are `turns`."""
        return (self.turns or self.runtime.worker).run(self.key, self.id, function, *args)

    def run_in_thread(self, function: Callable[[*Args], Result], *args: *Args) -> Awaitable[Result]:
        """What may take long, whatever the size of the body."""
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
        """So many bytes are no longer in memory; the end of the request releases the rest."""
        if self.booked:
            self.booked -= size
            self.runtime.bodies.add(self.key, self.client_address, -size)

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

    @property
    def trace_header(self) -> bytes:
        """Lines for the upstream of the attempt that began last."""
        return b"" if self.trace is None else self.trace.header

    def end_attempt(self, row: AttemptRow, seconds: float) -> None:
        self.attempts.append(row)
        self.upstream_time += seconds
        self._attempt_started = None

    def set_next_step(self, step: str) -> None:
        """What follows the attempt that ended last."""
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
        """Sends to the upstream. On a database server that waits for the intent row, so that a
        process that is killed leaves no call without one, unless a commit takes longer than
        `INTENT_TIMEOUT`. With SQLite both go on at the same time, as commits are much shorter."""
        return send() if self.runtime.config.database is None else self._send_after_intent(send)

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
        """This wait is short."""

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
        """This counts only while the reply is not complete."""
        if self.ended_at is None:
            self.state = ExchangeState.CLIENT_GONE
            self.status = OK if self.headers_sent else CLIENT_CLOSED_REQUEST

    def set_failure(self, failure: Failure) -> None:
        """The upstream's part of an error."""
        self.failure = failure
        if not self.committed and failure.kind is not FailureKind.UNWRITABLE:
            self.meter.start_attempt()  # an attempt that failed before it sent anything is free
        broken = failure.kind in (FailureKind.TRUNCATED, FailureKind.DISCONNECT, FailureKind.EMPTY)
        self.state = (
            ExchangeState.UPSTREAM_CUT if broken and self.committed else ExchangeState.ERROR
        )

    def set_error(self, error: GatewayError) -> None:
        """What the client receives instead of a reply."""
        self.error = without_traceback(error)
        messages_status = self.endpoint.startswith(_MESSAGES_PATH) and error.messages_status
        self.status = OK if self.headers_sent else messages_status or error.status
        if self.intent is None:
            self.state = ExchangeState.REJECTED

    def finish(self) -> None:
        """Writes the row's end, after the drain or the work in the background; a request without a
        valid key has no row. Observers are told of both."""
        ending = self.drain or self.background
        if ending is not None and not ending.done():
            ending.add_done_callback(lambda _: self.finish())
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
        runtime.admission.settle(self.meter.lease, bill.tokens, bill.cost)
        row = build_settlement(self, self.intent or build_intent(self), bill)
        if has_row:
            runtime.recorder.record_settlement(row, tuple(self.attempts), self.searches)
        elif self.error is None and row.state is ExchangeState.ERROR:
            row = row._replace(state=ExchangeState.OK)  # a health check, say: nothing completes it
        if not runtime.observers:
            return
        times = self.queue_time, self.upload_time, self.upstream_time
        ended = ObservedRequest(row, self.attempts, self.searches, *times, self.trace)
        for observe in runtime.observers:
            try:
                observe(ended)
            except Exception:  # the others, and the request, have to go on
                log.exception("%s: an observer failed", self.id)


def _is_harmless(request_id: str) -> bool:
    """Whether a client's own request id can be kept in the log and sent back in a header."""
    return len(request_id) <= _MAX_REQUEST_ID and request_id.isascii() and request_id.isprintable()


EXCHANGE: Final = web.RequestKey("exchange", Exchange)
RUNTIME: Final = web.AppKey("runtime", Runtime)
