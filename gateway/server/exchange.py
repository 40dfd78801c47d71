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

from gateway.core.events import StopReason
from gateway.core.failure import Failure, FailureKind
from gateway.core.prompt import Prompt
from gateway.core.usage import Usage
from gateway.errors import GatewayError
from gateway.routing.router import Candidate
from gateway.runtime import Runtime, new_request_id
from gateway.server.address import client_address
from gateway.server.losses import spelled
from gateway.server.meter import Bill, Meter
from gateway.store.records import Attempted, ExchangeState, Intent, Settlement, Token

INTENT_TIMEOUT: Final = 0.25
"""Seconds that the first byte of a reply waits for its intent row; then it leaves regardless."""

OK: Final = 200
CLIENT_CLOSED_REQUEST: Final = 499

_LONGEST_AGENT: Final = 300
_REQUEST_ID: Final = istr("x-request-id")
_MESSAGES: Final = "/v1/messages"

log = logging.getLogger(__name__)


class Exchange:
    """Collects what the row will say while the request passes through the house."""

    __slots__ = (
        *("_affinity", "_affinity_kept", "_asked_at", "_attempts", "_candidate", "_clock"),
        *("_drain", "_dropped", "_ended", "_error", "_failure", "_first_event", "_intent"),
        *("_notes", "_prompt", "_queued", "_recorded", "runtime", "_started", "_stop"),
        *("_upstream", "attempts_made", "bytes_in", "bytes_out", "client_request_id"),
        *("committed", "endpoint", "fault", "format", "id", "meter", "opened", "remote"),
        *("reply_id", "snapshot", "state", "status", "token", "user_agent", "when"),
    )

    def __init__(self, runtime: Runtime, request: web.Request) -> None:
        self.runtime = runtime
        self.snapshot = runtime.current
        self.snapshot.requests += 1
        self._started = runtime.now()
        self._clock = time.perf_counter()
        self.id = new_request_id(self._started)
        self.endpoint = request.path
        self.format = ""
        self.remote = client_address(request, self.snapshot.config.server.trusted_proxies)
        headers = request.headers
        self.user_agent = headers.get(hdrs.USER_AGENT, "")[:_LONGEST_AGENT]
        self.client_request_id = _well_formed(headers.get(_REQUEST_ID))
        self.token: Token | None = None
        self.meter = Meter(self.snapshot, self._started)
        self.status = 0
        self.state = ExchangeState.ERROR
        self.bytes_in = 0
        self.bytes_out = 0
        self.committed = False
        self.opened = False
        self.attempts_made = 0
        self.fault: str | None = None
        self.reply_id = ""
        self._prompt: Prompt | None = None
        self._candidate: Candidate | None = None
        self._intent: asyncio.Future[None] | None = None
        self._recorded: Intent | None = None
        self._first_event: float | None = None
        self._ended: float | None = None
        self._notes: list[str] = []
        self._stop: StopReason | None = None
        self._error: GatewayError | None = None
        self._failure: Failure | None = None
        self._dropped: Set[str] = frozenset()
        self._attempts: list[Attempted] = []
        self._upstream = 0.0
        self._queued = 0.0
        self._asked_at: float | None = None
        self._drain: asyncio.Future[None] | None = None
        self._affinity: str | None = None
        self._affinity_kept: str | None = None

    def take_in(self, size: int) -> None:
        """The body has `size` bytes, as far as one knows."""
        self.runtime.bytes_in_flight += size - self.bytes_in
        self.bytes_in = size

    def note(self, oddity: str) -> None:
        """What is odd and passes."""
        self._notes.append(oddity)

    def ask(self, prompt: Prompt) -> None:
        self._prompt = prompt

    def belong(self, clue: str | None, kept: str | None) -> None:
        """By which clue the conversation was recognised, and whether it stays where it was."""
        self._affinity, self._affinity_kept = clue, kept

    def intend(self, candidate: Candidate) -> None:
        """The candidate is asked now. The first time that puts the intent on record; call it before
        the upstream is contacted."""
        self._candidate = candidate
        self.meter.begin()
        self.attempts_made += 1
        self._asked_at = time.perf_counter()
        if self._recorded is None:
            self._recorded = self._row()
            self._intent = self.runtime.recorder.intend(self._recorded)

    @property
    def clock(self) -> float:
        """Seconds since it began."""
        return time.perf_counter() - self._clock

    def tried(self, attempt: Attempted) -> None:
        """An attempt has ended."""
        self._attempts.append(attempt)

    def follow(self, step: str) -> None:
        """What was done after the attempt that ended last."""
        self._attempts[-1] = self._attempts[-1]._replace(next=step)

    def await_upstream(self, seconds: float) -> None:
        """So long nothing could be done but wait for it."""
        self._upstream += seconds
        self._asked_at = None

    def stand_in_line(self, seconds: float) -> None:
        """So long it waited for its turn."""
        self._queued = seconds

    def timing(self) -> str:
        """The house's own part of the time so far, that in line where it waited, and the
        upstream's, as `server-timing` has them: in milliseconds."""
        now, asked = time.perf_counter(), self._asked_at
        upstream = self._upstream + (0.0 if asked is None else now - asked)
        own = max(0.0, now - self._clock - upstream - self._queued)
        queue = f"queue;dur={self._queued * 1e3:.1f}, " if self._queued else ""
        return f"gateway;dur={own * 1e3:.1f}, {queue}upstream;dur={upstream * 1e3:.1f}"

    @property
    def channel(self) -> str | None:
        return self._candidate.channel if self._candidate else None

    @property
    def failure(self) -> Failure | None:
        """What the upstream did wrong after the reply had begun."""
        return self._failure

    async def intent_on_record(self) -> None:
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
            self.runtime.recorder.overtaken(self.id)
            self._intent.set_result(None)

    def on_abort(self) -> None:
        """This wait is a short one."""

    def commit(self) -> None:
        """The first real event is in hand: the reply leaves from now on."""
        self.committed = True
        self._first_event = time.perf_counter()

    def open(self) -> None:
        """The head leaves, and with it the status: errors are spoken in-band from now on."""
        self.opened = True

    def stuck(self) -> None:
        """The client takes nothing any more."""
        self.state = ExchangeState.CLIENT_SLOW
        self.status = OK
        self._ended = time.perf_counter()

    def complete(self) -> None:
        """The client has everything that it was to get."""
        if self._error is None:
            self.state = ExchangeState.OK
            self.status = OK
            self._failure = None  # an earlier attempt's, of which the client knows nothing
        self._ended = time.perf_counter()

    def stop(self, reason: StopReason | None) -> None:
        """Why the model stopped."""
        self._stop = reason

    @property
    def counted(self) -> Usage | None:
        """What the upstream has counted of an exchange that went well."""
        return self.meter.counted if self.state is ExchangeState.OK else None

    def lose(self, names: Set[str]) -> None:
        """These could not cross between the formats."""
        if names:
            self._dropped |= names

    def fail(self, failure: Failure) -> None:
        """The upstream's part in an error: what the row keeps of it."""
        self._failure = failure
        if not self.committed:
            self.meter.begin()  # what failed before anything of it left costs nobody anything
        broken = failure.kind in (FailureKind.CUT, FailureKind.DISCONNECT, FailureKind.EMPTY)
        self.state = (
            ExchangeState.UPSTREAM_CUT if broken and self.committed else ExchangeState.ERROR
        )

    def refuse(self, error: GatewayError) -> None:
        """What the client is told instead of a reply."""
        self._error = error
        known_as = self.endpoint.startswith(_MESSAGES) and error.messages_status
        self.status = OK if self.opened else known_as or error.status
        if self._recorded is None:
            self.state = ExchangeState.REJECTED

    def left(self) -> None:
        """The client is gone; that counts only while it was still to get something."""
        if self._ended is None:
            self.state = ExchangeState.CLIENT_GONE
            self.status = OK if self.opened else CLIENT_CLOSED_REQUEST

    def go_on(self, drain: Coroutine[Any, Any, None]) -> None:
        """The client has left, but the upstream is heard to its end: the row waits for that."""
        self._drain = asyncio.ensure_future(drain)
        self.runtime.drains.add(self._drain)
        self._drain.add_done_callback(self._drained)

    def _drained(self, drain: asyncio.Future[None]) -> None:
        self.runtime.drains.discard(drain)
        if not drain.cancelled() and (fault := drain.exception()) is not None:
            log.error("%s: draining failed", self.id, exc_info=fault)
        self._drain = None
        self.settle()

    def settle(self) -> None:
        """Writes the row's end; an exchange that no key opened leaves no row."""
        if self._drain is not None:
            return
        self.runtime.bytes_in_flight -= self.bytes_in
        self.runtime.leave(self.snapshot)
        if self.token is None:
            return
        bill = self.meter.bill(committed=self.committed, failed=self._error is not None)
        self.runtime.turns.settle(self.meter.lease, bill.tokens, bill.cost_micro)
        settlement = self._settlement(self.token, bill)
        if self._recorded is not None:
            self.runtime.recorder.settle(settlement)
        else:
            self.runtime.recorder.refuse(self._row(), settlement)

    def _row(self) -> Intent:
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
                self.remote,
                self.user_agent,
                self.client_request_id,
                self.bytes_in,
                meter.model,
                meter.expected,
                meter.expected_micro,
                meter.tariff.spelled if meter.tariff else None,
                "; ".join(self._notes) if self._notes else None,
            )
        )

    def _settlement(self, token: Token, bill: Bill) -> Settlement:
        usage, error = bill.usage, self._error
        failure, first, candidate = self._failure, self._first_event, self._candidate
        began, ended = self._clock, self._ended or time.perf_counter()
        whole = failure is None and error is None and self.fault is None
        return Settlement._make(
            (
                self.id,
                token.id,
                self.state,
                self.status,
                self._stop._value_ if self._stop else None,
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
                spelled(self._dropped) if self._dropped else None,
                candidate.format._value_ if candidate else None,
                self._affinity,
                self._affinity_kept,
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
            return "refused" if self._recorded is None else "failed"
        return "complete"

    def _upstream_error(self) -> str | None:
        failure = self._failure
        if failure is not None:
            text: str | None = failure.body or failure.message
        elif self._error is not None and self._error.detail:
            text = self._error.detail
        else:
            text = self.fault
        return None if text is None else self.snapshot.redactor.secrets(text)


def _well_formed(request_id: str | None) -> str | None:
    """A client's own request id is kept only where it can harm neither log nor header."""
    if request_id and len(request_id) <= 200 and request_id.isascii() and request_id.isprintable():
        return request_id
    return None


EXCHANGE: Final = web.RequestKey("exchange", Exchange)
RUNTIME: Final = web.AppKey("runtime", Runtime)
