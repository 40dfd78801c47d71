"""The whole life of one client request, which becomes one row of the ledger.

Everything here is synchronous: a row is settled even while the handler is being cancelled. It must
not know how replies are relayed or errors rendered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Set
from math import inf
from typing import Any, Final

from aiohttp import hdrs, web
from multidict import istr

from gateway.admission.client_address import client_address
from gateway.core.events import Failure, FailureKind, StopReason, Usage
from gateway.core.prompt import Prompt
from gateway.errors import GatewayError
from gateway.routing.router import Candidate
from gateway.runtime import Runtime, new_request_id
from gateway.server.billing import Bill, UsageMeter
from gateway.server.exchange_record import format_dropped
from gateway.store.records import AttemptRow, ExchangeState, Intent, Settlement, Token

INTENT_TIMEOUT: Final = 0.25
"""Seconds that the first byte of a reply waits for its intent row; then it leaves regardless."""

OK: Final = 200
CLIENT_CLOSED_REQUEST: Final = 499

_MAX_USER_AGENT: Final = 300
_REQUEST_ID_HEADER: Final = istr("x-request-id")
_MESSAGES_PATH: Final = "/v1/messages"

log = logging.getLogger(__name__)


class Exchange:
    """Collects what the row will say while the request passes through the house."""

    __slots__ = (
        *(
            "_affinity_source",
            "_affinity_outcome",
            "_attempt_started",
            "_attempts",
            "_candidate",
            "_started_clock",
        ),
        *("_drain", "_dropped", "_ended_at", "_error", "_failure", "_committed_at", "_intent"),
        *(
            "_warnings",
            "_prompt",
            "_queue_time",
            "_intent_row",
            "runtime",
            "_started",
            "_stop_reason",
        ),
        *("_upstream_time", "attempts_made", "bytes_in", "bytes_out", "client_request_id"),
        *(
            "committed",
            "endpoint",
            "upstream_note",
            "format",
            "id",
            "meter",
            "headers_sent",
            "client_address",
        ),
        *("reply_id", "snapshot", "state", "status", "token", "user_agent", "when"),
    )

    def __init__(self, runtime: Runtime, request: web.Request) -> None:
        self.runtime = runtime
        self.snapshot = runtime.current
        self.snapshot.active_requests += 1
        self._started = runtime.now()
        self._started_clock = time.perf_counter()
        self.id = new_request_id(self._started)
        self.endpoint = request.path
        self.format = ""
        self.client_address = client_address(request, self.snapshot.config.server.trusted_proxies)
        headers = request.headers
        self.user_agent = headers.get(hdrs.USER_AGENT, "")[:_MAX_USER_AGENT]
        self.client_request_id = _valid_request_id(headers.get(_REQUEST_ID_HEADER))
        self.token: Token | None = None
        self.meter = UsageMeter(self.snapshot, self._started)
        self.status = 0
        self.state = ExchangeState.ERROR
        self.bytes_in = 0
        self.bytes_out = 0
        self.committed = False
        self.headers_sent = False
        self.attempts_made = 0
        self.upstream_note: str | None = None
        self.reply_id = ""
        self._prompt: Prompt | None = None
        self._candidate: Candidate | None = None
        self._intent: asyncio.Future[None] | None = None
        self._intent_row: Intent | None = None
        self._committed_at: float | None = None
        self._ended_at: float | None = None
        self._warnings: list[str] = []
        self._stop_reason: StopReason | None = None
        self._error: GatewayError | None = None
        self._failure: Failure | None = None
        self._dropped: Set[str] = frozenset()
        self._attempts: list[AttemptRow] = []
        self._upstream_time = 0.0
        self._queue_time = 0.0
        self._attempt_started: float | None = None
        self._drain: asyncio.Future[None] | None = None
        self._affinity_source: str | None = None
        self._affinity_outcome: str | None = None

    def set_body_size(self, size: int) -> None:
        """The body has `size` bytes, as far as one knows."""
        self.runtime.bytes_in_flight += size - self.bytes_in
        self.bytes_in = size

    def add_warning(self, warning: str) -> None:
        """What is odd and passes."""
        self._warnings.append(warning)

    def set_prompt(self, prompt: Prompt) -> None:
        self._prompt = prompt

    def set_affinity(self, source: str | None, outcome: str | None) -> None:
        """By which clue the conversation was recognised, and whether it stays where it was."""
        self._affinity_source, self._affinity_outcome = source, outcome

    def start_attempt(self, candidate: Candidate) -> None:
        """The candidate is asked now. The first time that puts the intent on record; call it before
        the upstream is contacted."""
        self._candidate = candidate
        self.meter.start_attempt()
        self.attempts_made += 1
        self._attempt_started = time.perf_counter()
        if self._intent_row is None:
            self._intent_row = self._build_intent()
            self._intent = self.runtime.recorder.record_intent(self._intent_row)

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.perf_counter() - self._started_clock

    def add_attempt(self, attempt: AttemptRow) -> None:
        """An attempt has ended."""
        self._attempts.append(attempt)

    def set_next_step(self, step: str) -> None:
        """What was done after the attempt that ended last."""
        self._attempts[-1] = self._attempts[-1]._replace(next=step)

    def add_upstream_time(self, seconds: float) -> None:
        """So long nothing could be done but wait for it."""
        self._upstream_time += seconds
        self._attempt_started = None

    def set_queue_time(self, seconds: float) -> None:
        """So long it waited for its turn."""
        self._queue_time = seconds

    def server_timing(self) -> str:
        """The house's own part of the time so far, that in line where it waited, and the
        upstream's, as `server-timing` has them: in milliseconds."""
        now, asked = time.perf_counter(), self._attempt_started
        upstream = self._upstream_time + (0.0 if asked is None else now - asked)
        own = max(0.0, now - self._started_clock - upstream - self._queue_time)
        queue = f"queue;dur={self._queue_time * 1e3:.1f}, " if self._queue_time else ""
        return f"gateway;dur={own * 1e3:.1f}, {queue}upstream;dur={upstream * 1e3:.1f}"

    @property
    def channel(self) -> str | None:
        return self._candidate.channel if self._candidate else None

    @property
    def failure(self) -> Failure | None:
        """What the upstream did wrong after the reply had begun."""
        return self._failure

    async def wait_for_intent(self) -> None:
        """Holds the reply back until the intent is committed, but never for long: a full disk must
        not hang replies."""
        intent = self._intent
        if intent is None or intent.done():
            return
        self.when = intent.get_loop().time() + INTENT_TIMEOUT
        self.runtime.scheduler.add(self)
        try:
            await intent
        finally:
            self.runtime.scheduler.discard(self)

    def on_deadline(self, now: float) -> None:
        """The reply goes on without its intent."""
        self.when = inf
        if self._intent is not None and not self._intent.done():
            self.runtime.recorder.note_uncommitted(self.id)
            self._intent.set_result(None)

    def on_abort(self) -> None:
        """This wait is a short one."""

    def commit(self) -> None:
        """The first real event is in hand: the reply leaves from now on."""
        self.committed = True
        self._committed_at = time.perf_counter()

    def mark_headers_sent(self) -> None:
        """The head leaves, and with it the status: errors are spoken in-band from now on."""
        self.headers_sent = True

    def client_stalled(self) -> None:
        """The client takes nothing any more."""
        self.state = ExchangeState.CLIENT_SLOW
        self.status = OK
        self._ended_at = time.perf_counter()

    def complete(self) -> None:
        """The client has everything that it was to get."""
        if self._error is None:
            self.state = ExchangeState.OK
            self.status = OK
            self._failure = None  # an earlier attempt's, of which the client knows nothing
        self._ended_at = time.perf_counter()

    def set_stop_reason(self, reason: StopReason | None) -> None:
        """Why the model stopped."""
        self._stop_reason = reason

    @property
    def final_usage(self) -> Usage | None:
        """What the upstream has counted of an exchange that went well."""
        return self.meter.final_usage if self.state is ExchangeState.OK else None

    def add_dropped(self, names: Set[str]) -> None:
        """These could not cross between the formats."""
        if names:
            self._dropped |= names

    def set_failure(self, failure: Failure) -> None:
        """The upstream's part in an error: what the row keeps of it."""
        self._failure = failure
        if not self.committed:
            self.meter.start_attempt()  # what failed before anything of it left costs nobody anything
        broken = failure.kind in (FailureKind.TRUNCATED, FailureKind.DISCONNECT, FailureKind.EMPTY)
        self.state = (
            ExchangeState.UPSTREAM_CUT if broken and self.committed else ExchangeState.ERROR
        )

    def set_error(self, error: GatewayError) -> None:
        """What the client is told instead of a reply."""
        self._error = error
        known_as = self.endpoint.startswith(_MESSAGES_PATH) and error.messages_status
        self.status = OK if self.headers_sent else known_as or error.status
        if self._intent_row is None:
            self.state = ExchangeState.REJECTED

    def client_disconnected(self) -> None:
        """The client is gone; that counts only while it was still to get something."""
        if self._ended_at is None:
            self.state = ExchangeState.CLIENT_GONE
            self.status = OK if self.headers_sent else CLIENT_CLOSED_REQUEST

    def drain_in_background(self, drain: Coroutine[Any, Any, None]) -> None:
        """The client has left, but the upstream is heard to its end: the row waits for that."""
        self._drain = asyncio.ensure_future(drain)
        self.runtime.background_drains.add(self._drain)
        self._drain.add_done_callback(self._drain_finished)

    def _drain_finished(self, drain: asyncio.Future[None]) -> None:
        self.runtime.background_drains.discard(drain)
        if not drain.cancelled() and (fault := drain.exception()) is not None:
            log.error("%s: draining failed", self.id, exc_info=fault)
        self._drain = None
        self.finish()

    def finish(self) -> None:
        """Writes the row's end; an exchange that no key opened leaves no row."""
        if self._drain is not None:
            return
        self.runtime.bytes_in_flight -= self.bytes_in
        self.runtime.release(self.snapshot)
        if self.token is None:
            return
        bill = self.meter.final_bill(committed=self.committed, failed=self._error is not None)
        self.runtime.queue.settle(self.meter.lease, bill.tokens, bill.cost_micro)
        settlement = self._build_settlement(self.token, bill)
        if self._intent_row is not None:
            self.runtime.recorder.record_settlement(settlement)
        else:
            self.runtime.recorder.record_rejection(self._build_intent(), settlement)

    def _build_intent(self) -> Intent:
        # In the order of the fields, for naming each of them takes longer than all the rest.
        token, prompt, candidate, meter = self.token, self._prompt, self._candidate, self.meter
        return Intent._make(
            (
                self.id,
                self._started,
                token.id if token else "",
                token.group if token else "",
                self.endpoint,
                self.format,
                prompt.model if prompt else None,
                candidate.channel if candidate else None,
                candidate.account if candidate else None,
                candidate.target.model if candidate else None,
                candidate.lane._value_ if candidate else None,
                prompt.stream if prompt else False,
                self.client_address,
                self.user_agent,
                self.client_request_id,
                self.bytes_in,
                meter.model,
                meter.estimated_tokens,
                meter.estimated_micro,
                meter.price.description if meter.price else None,
                "; ".join(self._warnings) if self._warnings else None,
            )
        )

    def _build_settlement(self, token: Token, bill: Bill) -> Settlement:
        usage, error = bill.usage, self._error
        failure, first, candidate = self._failure, self._committed_at, self._candidate
        began, ended = self._started_clock, self._ended_at or time.perf_counter()
        whole = failure is None and error is None and self.upstream_note is None
        return Settlement._make(
            (
                self.id,
                token.id,
                self.state,
                self.status,
                self._stop_reason._value_ if self._stop_reason else None,
                self._end_reason(),
                usage.input_tokens,
                usage.cache_read_tokens,
                usage.cache_write_tokens,
                usage.output_tokens,
                usage.reasoning_tokens,
                bill.source,
                round((first - began) * 1e6) if first else None,
                round((ended - began) * 1e6),
                self.bytes_out,
                error.code if error else None,
                failure.status if failure else None,
                None if whole else self._upstream_error(),
                format_dropped(self._dropped) if self._dropped else None,
                candidate.format._value_ if candidate else None,
                self._affinity_source,
                self._affinity_outcome,
                self.snapshot.hash,
                usage.cache_write_1h_tokens,
                bill.cost_micro,
                candidate.channel if candidate else None,
                candidate.account if candidate else None,
                candidate.target.model if candidate else None,
                candidate.lane._value_ if candidate else None,
                tuple(self._attempts),
            )
        )

    def _end_reason(self) -> str:
        if self.state is ExchangeState.CLIENT_GONE:
            return "client_gone"
        if self._failure is not None:
            return f"upstream_{self._failure.kind.value}"
        if self._error is not None:
            return "refused" if self._intent_row is None else "failed"
        return "complete"

    def _upstream_error(self) -> str | None:
        failure = self._failure
        if failure is not None:
            text: str | None = failure.body or failure.message
        elif self._error is not None and self._error.detail:
            text = self._error.detail
        else:
            text = self.upstream_note
        return None if text is None else self.snapshot.redactor.redact_secrets(text)


def _valid_request_id(request_id: str | None) -> str | None:
    """A client's own request id is kept only where it can harm neither log nor header."""
    if request_id and len(request_id) <= 200 and request_id.isascii() and request_id.isprintable():
        return request_id
    return None


EXCHANGE: Final = web.RequestKey("exchange", Exchange)
RUNTIME: Final = web.AppKey("runtime", Runtime)
