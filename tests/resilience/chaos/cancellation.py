"""A gateway in which one request can be broken off at any await of its handler, and what must be
true of it afterwards.

Independent of which moments are tried.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from gateway.core.formats import Format
from gateway.core.limits import FREE, MICRO_PER_UNIT, Cost
from gateway.quota.limits import HolderKind, ResourceRequest
from gateway.routing.health import Health
from gateway.routing.retry_budget import RetryBudget
from gateway.store.log.pages import LogFilter
from gateway.store.records import ExchangeState, RequestRow, Token
from tests.quota.holders import spent
from tests.resilience.chaos.client import encode_request
from tests.server.key_limits import GROUP, NOTHING_IN_USE, in_use
from tests.support.gateway import ALPHA, BETA, RunningGateway, channel, run_gateway
from tests.support.raw_client import Leave, RawClient, connect
from tests.support.timing import SLACK
from tests.support.upstream import Response, ScriptedUpstream, scripted_upstream

MULTIPLIER: Final = 3
WHILE: Final = 0.02
"""Seconds."""
_ACCOUNTS: Final = ("one", "two")
_NARROW: Final = 4096
"""Bytes that a socket holds which shall not hold much."""


At = Callable[[int, asyncio.Future[Any] | None], None]


class Break(Enum):
    """How a request is broken off."""

    CANCEL = "its handler is cancelled"
    TWICE = "its handler is cancelled, and again while that is dealt with"
    READY = "its handler is cancelled although what it waits for is there"
    RESET = "its client resets the connection"
    CLOSE = "its client closes the connection"


@dataclass(frozen=True, slots=True)
class Scene:
    """What is asked and what the upstream does. `queued`: there is room for the request only after
    a while; `late`: the client reads only after a while."""

    streamed: bool
    scripts: tuple[Response, ...]
    queued: bool = False
    late: bool = False


@dataclass(slots=True)
class Handling:
    """The handler of one request, which calls `at` with the number of each of its awaits and with
    what is awaited."""

    steps: Generator[Any, None, web.StreamResponse]
    at: At

    def __await__(self) -> Generator[Any, None, web.StreamResponse]:
        resume: Callable[[], Any] = partial(next, self.steps)
        number = 0
        while True:
            try:
                awaited = resume()
            except StopIteration as end:
                answer: web.StreamResponse = end.value
                return answer
            number += 1
            self.at(number, awaited)
            try:
                yield awaited
            except BaseException as thrown:
                resume = partial(self.steps.throw, thrown)
            else:
                resume = partial(next, self.steps)


@dataclass(slots=True)
class Request:
    """One request of a key of its own. `awaits` is how many its handler has had so far; `over` is
    set when it has ended."""

    token: Token
    client: RawClient
    task: asyncio.Task[Any] | None = None
    awaits: int = 0
    gone: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def break_off(self, how: Break, awaited: asyncio.Future[Any] | None = None) -> None:
        """While its handler waits for `awaited`, if anything."""
        if how is Break.READY and awaited is not None:
            awaited.add_done_callback(self._cancel)
        elif how in (Break.CANCEL, Break.TWICE, Break.READY):
            self._cancel()
        elif not self.gone:
            self.gone = True
            self.client.leave(Leave.RESET if how is Break.RESET else Leave.CLOSE)

    def _cancel(self, _: object = None) -> None:
        assert self.task is not None
        self.task.cancel()

    async def take_late(self) -> None:
        """Reads everything, but begins only after a while."""
        await asyncio.sleep(WHILE)
        with suppress(ConnectionError):
            while not self.gone:
                self.client.take()
                await asyncio.sleep(0.0005)


@dataclass(slots=True, repr=False)
class Stage:
    """`cost` is that of all requests so far, in micro-units."""

    gateway: RunningGateway
    upstream: ScriptedUpstream
    at: At = lambda *_: None
    request: Request | None = None
    cost: int = 0

    def watch(self) -> None:
        """Every connection from now on; the kernel holds little of what is written to it."""
        listener = self.gateway.daemon.listener._servers[0]
        server = listener._protocol_factory.args[0]
        server.request_handler = partial(self._handle, server.request_handler)
        for connection in listener.sockets:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _NARROW)

    async def _handle(
        self, handler: Callable[[Any], Awaitable[web.StreamResponse]], message: Any
    ) -> web.StreamResponse:
        request = self.request
        assert request is not None
        request.task = asyncio.current_task()
        try:
            return await Handling(handler(message).__await__(), self.at)
        finally:
            request.over.set()

    @asynccontextmanager
    async def running_request(self, scene: Scene) -> AsyncIterator[Request]:
        """A request under way; when the block ends, so has the request."""
        gateway, runtime = self.gateway, self.gateway.daemon.runtime
        runtime.health, runtime.retry_budget = Health(), RetryBudget()
        self.upstream.respond_with(*scene.scripts)
        token, key = await gateway.operations.create_key("broken", GROUP, limits={"concurrent": 1})
        if scene.queued:
            self._keep_busy(token)
        client = await connect(gateway.address, room=_NARROW if scene.late else 0)
        request = self.request = Request(token, client)
        reading = asyncio.ensure_future(request.take_late()) if scene.late else None
        try:
            await client.send(encode_request(key, Format.CHAT, token.id, stream=scene.streamed))
            yield request
            async with asyncio.timeout(SLACK):
                await request.over.wait()
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.wait({reading})
            client.close()

    def _keep_busy(self, token: Token) -> None:
        runtime, loop = self.gateway.daemon.runtime, asyncio.get_running_loop()
        holders = runtime.permit(token).holders
        request = ResourceRequest(holders, runtime.now(), 1, Cost(1))
        reservation = runtime.quota.acquire(request, loop.time())
        loop.call_later(WHILE, runtime.admission.settle, reservation, 0, FREE)

    async def row(self, token: Token) -> RequestRow:
        """The one row of a key's one request, which has ended, when nothing is left of it."""
        await self._settled(token)
        page = await self.gateway.operations.list_requests(LogFilter(token_id=token.id))
        (row,) = page.rows
        assert row.state is not ExchangeState.RUNNING
        assert row.cost_micro == MULTIPLIER * MICRO_PER_UNIT * (
            row.input_tokens + row.output_tokens
        )
        assert (row.cost_micro > 0) is (row.usage_source != "none")
        runtime = self.gateway.daemon.runtime
        budget, now = runtime.quota.budget(HolderKind.KEY, token.id), runtime.now()
        assert spent(budget, now) == (row.cost_micro,) * 3
        self.cost += row.cost_micro
        assert runtime.quota.budget(HolderKind.GROUP, GROUP).total == self.cost
        return row

    async def _settled(self, token: Token) -> None:
        runtime = self.gateway.daemon.runtime
        with suppress(TimeoutError):
            async with asyncio.timeout(SLACK):
                while runtime.recorder.backlog or self._left(token) != _NOTHING:
                    await asyncio.sleep(0.001)
        assert self._left(token) == _NOTHING

    def _left(self, token: Token) -> tuple[Any, ...]:
        """What is still taken by requests."""
        runtime = self.gateway.daemon.runtime
        line = runtime.current.upstream
        return (
            in_use(replace(self.gateway, token=token)),
            [line.in_flight((f"{Format.CHAT}-main", name)) for name in _ACCOUNTS],
            runtime.admission.waiting,
            len(runtime.scheduler),
            (runtime.active_requests, runtime.bodies.total, runtime.current.active_requests),
        )


_NOTHING: Final = (NOTHING_IN_USE, [0] * len(_ACCOUNTS), 0, 0, (0, 0, 0))


@asynccontextmanager
async def open_stage(folder: Path) -> AsyncIterator[Stage]:
    """Two accounts that take one request at a time, and pauses of some milliseconds between
    attempts. At the end the ledger is right, and memory with it."""
    accounts = [{"name": name, "key": name, "concurrency": 1} for name in _ACCOUNTS]
    models = [
        {"id": ALPHA, "family": "alpha"},
        {"id": BETA, "family": "beta", "multiplier": MULTIPLIER},
    ]
    async with scripted_upstream() as upstream:
        line = [channel(Format.CHAT, upstream.address, accounts=accounts)]
        async with run_gateway(folder, line, models=models, limits={"max_wait": 1}) as gateway:
            gateway.daemon.runtime.random_float = lambda: 0.05
            stage = Stage(gateway, upstream)
            stage.watch()
            yield stage
            report = await gateway.operations.check_integrity()
            assert report.ok
            assert report.open == 0
