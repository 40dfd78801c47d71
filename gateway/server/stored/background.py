"""Background responses: the work goes on after the client has left.

The same dispatch as of any request, always streamed, into a log of frames instead of a connection.
Clients poll the response, follow its events, or cancel it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import Any, Final, NoReturn

import orjson
from aiohttp import web

from gateway.core.events import Usage
from gateway.core.value import replace
from gateway.errors import (
    GatewayError,
    InternalError,
    InvalidApiKey,
    InvalidRequest,
    ServiceUnavailable,
    TooManyRequests,
)
from gateway.quota.limits import ResourceRequest
from gateway.routing.affinity import Affinity
from gateway.routing.router import Candidate
from gateway.runtime import Runtime
from gateway.scheduler import running
from gateway.server.http.request_body import write_object
from gateway.server.proxy.attempt import Attempt
from gateway.server.proxy.attempt_outcome import AttemptOutcome
from gateway.server.proxy.dispatch import Dispatch
from gateway.server.proxy.incoming_request import IncomingRequest, Stage
from gateway.server.record.client_request import ClientRequest
from gateway.server.record.exchange import EXCHANGE, OK, RUNTIME, Exchange
from gateway.server.stored.event_log import FrameLog, follow
from gateway.server.stored.responses import NO_ROOM, TOO_LARGE, Storing
from gateway.store.records import StoredResponse
from gateway.store.responses import ResponseStore
from gateway.wire.json.fields import Payload
from gateway.wire.responses.background import (
    CANCELLED,
    FAILED,
    IN_PROGRESS,
    QUEUED,
    RUNNING,
    BackgroundEvents,
    error_fields,
)
from gateway.wire.responses.encode import opening_response

SAVE_TIMEOUT: Final = 5.0
"""Seconds that a new response waits to be saved: its client gets an id that a crash cannot lose."""

LOOK: Final = 0.4
"""Seconds between two looks at what others want to cancel here, and at what others run."""

_CANCEL_TIMEOUT: Final = 10.0
_SWEEP_EVERY: Final = 5.0

_RETRY: Final = 5.0
"""`retry-after`, in seconds, where as many run as may run."""

_END_SIZE: Final = 1024
"""Bytes that the end of a response without output takes at most, compressed."""

_STOPPED: Final = {"code": "server_error", "message": "The response was stopped."}

log = logging.getLogger(__name__)


class BackgroundDispatch(Dispatch):
    """`accepted` is done when the request waits for the limits or could be sent: what is wrong
    about it by itself has been found before. It is sent once the response is `saved`."""

    accepted: asyncio.Future[None]
    saved: asyncio.Event

    async def _wait_in_queue(self, demand: ResourceRequest, error: TooManyRequests) -> None:
        self._accept()
        await super()._wait_in_queue(demand, error)

    async def _start(
        self, candidate: Candidate, attempt: Attempt, outcome: AttemptOutcome
    ) -> web.StreamResponse:
        self._accept()
        await self.saved.wait()
        return await super()._start(candidate, attempt, outcome)

    def _accept(self) -> None:
        if not self.accepted.done():
            self.accepted.set_result(None)


class BackgroundResponse:
    """One of them. `is_cancelled`: by its client, or as its key is no longer active; when `done`,
    its row in the request log can be written."""

    def __init__(self, exchange: Exchange, log: FrameLog, storing: Storing) -> None:
        self.exchange, self.log, self.storing = exchange, log, storing
        self.token_id, self.id = storing.row.token_id, storing.row.id
        self.is_cancelled = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.work: asyncio.Task[web.StreamResponse]
        self.ended: asyncio.Task[None]

    @property
    def response(self) -> Payload:
        """The response object as it is now."""
        return self.log.events.response

    def row(self) -> StoredResponse:
        """Returns the row with what there is of the response so far. Only complete events can be
        followed from it."""
        events: bytes | None = None
        if self.log.keep:
            events = b"".join(self.log.frames) if self.log.is_closed else b""
        return self.storing.row._replace(
            status=self.response["status"],
            background=True,
            reply=orjson.dumps(self.response),
            events=events,
        )


class BackgroundResponses:
    """The background responses that run."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._responses: dict[str, BackgroundResponse] = {}
        runtime.registry.on_inactive.append(self._stop_all_of)

    def __iter__(self) -> Iterator[BackgroundResponse]:
        return iter(self._responses.values())

    def find(self, id: str, token_id: str) -> BackgroundResponse | None:
        """The response of a key; None where it has none of that id in memory."""
        found = self._responses.get(id)
        return found if found is not None and found.token_id == token_id else None

    def _check_limits(self, token_id: str, of_key: int) -> None:
        """Raises `TooManyRequests` where as many run as may run: `of_key` in all replicas, and here
        of all keys."""
        limits = self._runtime.config.limits
        running = [each.token_id for each in self]
        if max(of_key, running.count(token_id)) >= limits.background_per_key:
            reason = f"{limits.background_per_key} background responses of this key run already"
        elif len(running) >= limits.background:
            reason = f"{limits.background} background responses run already"
        else:
            return
        raise TooManyRequests(reason=reason, retry_after=_RETRY)

    async def start(self, response: BackgroundResponse, dispatch: BackgroundDispatch) -> None:
        """Saves the response as queued, then starts the work. Raises `GatewayError` where the
        request is rejected, or the response cannot be saved: nothing was sent to an upstream then,
        and nothing of it remains."""
        queued = response.row()
        if not await self._runtime.responses.fits(queued, spare=_END_SIZE):
            limit = self._runtime.config.responses.max_per_key
            reason = f"one key can have {limit:,} bytes of stored responses, compressed"
            text = f"background: the request is too large to be stored with its response: {reason}"
            raise InvalidRequest(text, param="background")
        elsewhere = await self._runtime.responses.count_running(response.token_id)
        self._check_limits(response.token_id, elsewhere or 0)
        if self._runtime.registry.token(response.token_id) is None:  # since it was authorized
            raise InvalidApiKey
        loop = asyncio.get_running_loop()
        response.exchange.storing = None  # this module stores it, in all its states
        dispatch.accepted, dispatch.saved = loop.create_future(), asyncio.Event()
        response.exchange.may_drain = False  # a cancelled one ends at once
        response.exchange.hold(response.done)
        response.work = loop.create_task(dispatch.run())
        self._responses[response.id] = response
        try:
            waiting: set[asyncio.Future[Any]] = {response.work, dispatch.accepted}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if response.is_cancelled:
                raise InvalidApiKey
            if not dispatch.accepted.done():
                await response.work  # raises why
            if not await self._save(response, queued):
                raise ServiceUnavailable(detail="the response cannot be stored")
        except BaseException:
            response.work.cancel()
            await asyncio.wait({response.work})
            response.exchange.attempts.clear()  # none was sent
            if response.storing.row is queued and not self._runtime.responses.withdraw(queued):
                response.log.finish(response.log.events.end(FAILED, _STOPPED))
                response.storing.put(response.row())
            self._end(response)
            del self._responses[response.id]
            raise
        dispatch.saved.set()
        response.ended = loop.create_task(self._supervise(response))

    def _end(self, response: BackgroundResponse) -> None:
        """Its row in the request log can be written."""
        response.done.set_result(None)
        response.storing.close()

    async def cancel(self, response: BackgroundResponse) -> None:
        """Returns once it has ended, in this way or another."""
        self.stop(response)
        await asyncio.wait({response.ended})

    def stop(self, response: BackgroundResponse) -> None:
        """Cancels a response like `cancel`, without waiting for its end."""
        if not response.work.done():
            response.is_cancelled = True
            response.work.cancel()

    def _stop_all_of(self, token_id: str) -> None:
        """The key was disabled or revoked."""
        for response in self:
            if response.token_id == token_id and not response.work.done():
                response.exchange.warnings.append("cancelled, as its key is no longer active")
                self.stop(response)

    def save_begun(self) -> None:
        """Saves what other replicas show of the responses that are under way by now."""
        for response in self:
            is_queued = response.storing.row.status == QUEUED
            if (
                is_queued
                and response.response["status"] == IN_PROGRESS
                and not response.work.done()
            ):
                response.storing.put(response.row())

    async def _save(self, response: BackgroundResponse, row: StoredResponse) -> bool:
        """Saves the row once there is room for it; waits until a queued one is written. Returns
        False if that is not possible in time."""
        replies = self._runtime.responses
        with suppress(TimeoutError):
            async with asyncio.timeout(SAVE_TIMEOUT):
                while not response.storing.put(row):
                    await replies.wait_for_batch()
                if row.status != QUEUED:
                    return True
                await replies.flush_key(row.token_id)
                return await replies.is_written(row)
        return False

    async def _save_ended(self, response: BackgroundResponse) -> None:
        row, exchange = response.row(), response.exchange
        if not await self._runtime.responses.fits(row):
            exchange.warnings.append(TOO_LARGE)
            row = _failed(row, "The response is too large to be stored.", output=[])
        if not await self._save(response, row):
            exchange.warnings.append(NO_ROOM)
            log.error("%s: a background response was not stored", exchange.id)

    async def _supervise(self, response: BackgroundResponse) -> None:
        with self._counted(response):
            status, error = await _outcome(response)
            ending = response.log.events.end(status, error, _usage(response.exchange))
            response.log.finish(ending)
            response.exchange.status = OK  # the client got it while it was queued
            try:
                await self._save_ended(response)
            finally:
                self._end(response)

    @contextmanager
    def _counted(self, response: BackgroundResponse) -> Iterator[None]:
        self._runtime.active_requests += 1
        try:
            yield
        finally:
            self._runtime.active_requests -= 1
            del self._responses[response.id]


async def _outcome(response: BackgroundResponse) -> tuple[str, Payload | None]:
    """Status and error of a response whose stream has no end of its own. Waits for the work."""
    exchange = response.exchange
    await asyncio.wait({response.work})
    with suppress(GatewayError):  # the work has it too
        await response.log.drained()
    if response.work.cancelled():
        exchange.client_disconnected()
        if response.is_cancelled:
            return CANCELLED, None
        return FAILED, _STOPPED
    error = response.work.exception()
    if error is None:
        return FAILED, {"code": "server_error", "message": "The reply has no end."}
    if not isinstance(error, GatewayError):
        log.error("%s: internal error", exchange.id, exc_info=error)
        error = InternalError(detail=f"{type(error).__name__}: {error}")
    exchange.set_error(error)
    return FAILED, error_fields(error)


def _usage(exchange: Exchange) -> Usage | None:
    """Returns what is billed of a reply without an end; None if nothing is."""
    failed = exchange.error is not None
    bill = exchange.meter.final_bill(committed=exchange.committed, failed=failed)
    return bill.usage if bill.usage.total_tokens else None


async def run_in_background(incoming: IncomingRequest) -> None:
    """Has a request answered by a response in the background. Raises `ServiceUnavailable` while the
    gateway drains, with which the work would end."""
    if incoming.exchange.runtime.draining:
        raise ServiceUnavailable
    incoming.answer_by(answer_in_background)


async def answer_in_background(
    incoming: IncomingRequest, client_request: ClientRequest, affinity: Affinity | None
) -> web.StreamResponse:
    """Starts a background response: the reply is its object, or its events as they come. Raises
    `InvalidRequest` if it is not to be stored, or what rejects the request."""
    request, exchange, prompt = incoming.request, incoming.exchange, client_request.prompt
    runtime, responses = exchange.runtime, request.app[BACKGROUND]
    storing = exchange.storing
    if not isinstance(storing, Storing):
        text = "background: it needs a stored response, and this one is not stored"
        if not incoming.permit.stores_replies:
            text = "background: it needs stored responses, which this key does not have"
        raise InvalidRequest(text, param="background")
    metadata = client_request.reply_metadata(incoming.route.candidates[0], runtime.now())
    opening = opening_response(prompt, metadata)
    own = {"background": True} | {name: opening[name] for name in ("id", "created_at")}
    frames = FrameLog(exchange, BackgroundEvents(opening, own), keep=prompt.stream)
    response = BackgroundResponse(exchange, frames, storing)
    body = orjson.dumps(response.response)
    as_stream = await exchange.run_sized(streamed, client_request)
    incoming.request = request.clone()  # the client's own ends before
    incoming.request[EXCHANGE] = exchange
    dispatch = BackgroundDispatch(incoming, as_stream, affinity, response.log)
    await responses.start(response, dispatch)
    if not prompt.stream:
        return web.Response(body=body, content_type="application/json")
    # What the client receives is no part of the work, whose row is written at its end.
    reading = request[EXCHANGE] = Exchange(runtime, request)
    reading.id = exchange.id
    try:
        return await follow(request, response.log, 0)
    finally:
        reading.finish()


def streamed(client_request: ClientRequest) -> ClientRequest:
    """Returns the request as one for a stream, which no upstream runs in its own background."""
    prompt = client_request.prompt
    body = client_request.body | {"stream": True}
    body.pop("background", None)
    return replace(
        client_request,
        prompt=replace(prompt, stream=True, background=False),
        body=body,
        raw_body=write_object(body),
    )


async def end_interrupted(replies: ResponseStore) -> int:
    """Marks as failed what ran in a process that is gone; returns how many."""
    ended = [await replies.end_running(_interrupted(row)) for row in await replies.running()]
    return sum(ended)


def _interrupted(row: StoredResponse) -> StoredResponse:
    return _failed(row, "The gateway was restarted while the response was running.")


def _failed(row: StoredResponse, message: str, **changes: Any) -> StoredResponse:
    """The row with that error, without events."""
    error = {"code": "server_error", "message": message}
    response = orjson.loads(row.reply or b"{}") | {"status": FAILED, "error": error} | changes
    events = None if row.events is None else b""
    return row._replace(status=FAILED, reply=orjson.dumps(response), events=events)


def runs_elsewhere(row: StoredResponse) -> bool:
    """Tells whether another replica runs the response, for a background response that this process
    does not run."""
    return row.background and row.status in RUNNING


async def cancel_elsewhere(runtime: Runtime, token_id: str, id: str) -> None:
    """Returns once it has ended; at once where it runs nowhere. Raises `ServiceUnavailable` where
    that cannot be reached."""
    if not runtime.fleet.has_shared:
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _CANCEL_TIMEOUT
    while True:
        row = await runtime.responses.find(token_id, id)
        if row is None or not runs_elsewhere(row):
            return
        if loop.time() > deadline:
            raise ServiceUnavailable(detail="the replica that runs the response does not answer")
        await runtime.fleet.request_cancellation((token_id, id))
        await asyncio.sleep(LOOK / 2)


async def watch_background(app: web.Application) -> AsyncIterator[None]:
    """Watches while the application runs: saves what other replicas show of the responses here,
    cancels responses that other replicas want to cancel, and ends responses of replicas that are
    gone."""
    async with running(_watch(app[RUNTIME], app[BACKGROUND])):
        yield


async def _watch(runtime: Runtime, responses: BackgroundResponses) -> NoReturn:
    loop = asyncio.get_running_loop()
    swept_at = loop.time()
    while True:
        await asyncio.sleep(LOOK)
        try:
            responses.save_begun()
            if runtime.fleet.is_leader and loop.time() - swept_at > _SWEEP_EVERY:
                swept_at = loop.time()
                if count := await end_interrupted(runtime.responses):
                    log.warning("%d background responses of replicas that are gone failed", count)
            await _cancel_requested(runtime, responses)
        except Exception:  # the next round tries again
            log.exception("background responses could not be looked after")


async def _cancel_requested(runtime: Runtime, responses: BackgroundResponses) -> None:
    running = {(each.token_id, each.id): each for each in responses}
    if running:
        for key in await runtime.fleet.requested_cancellations(list(running)):
            responses.stop(running[key])


BACKGROUND: Final = web.AppKey("background", BackgroundResponses)
RUN_IN_BACKGROUND: Final = Stage(run_in_background, attrgetter("prompt.background"))
