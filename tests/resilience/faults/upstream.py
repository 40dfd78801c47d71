"""An upstream that fails as it is told, by the URL it is asked at: `/s/<plan>/v1/...`.

A channel's `base_url` chooses the fault; `play` overrules it, for one account, model or endpoint.
Requests of one account for one model at one endpoint take a plan's steps in turn. Every request is
on record in `calls`. It must not know the gateway; what a step means is said in `scenarios`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from multidict import CIMultiDict

from gateway.core.formats import Format
from tests.resilience.faults.fault_dsl import PlanError, Step, parse_plan
from tests.resilience.faults.recorded_request import Call, Left
from tests.resilience.faults.response import Answer
from tests.resilience.faults.scenarios import play_step
from tests.support.tcp_server import listening

_FRONT = "/s/"
_SOUND = "ok"


@dataclass(frozen=True, slots=True)
class _Rule:
    plan: str
    key: str | None
    model: str | None
    endpoint: str | None

    def fits(self, call: Call) -> bool:
        return (
            self.key in (None, call.key)
            and self.model in (None, call.model)
            and (self.endpoint is None or call.path.endswith(self.endpoint))
        )


class FaultUpstream:
    """Its `address` is scheme, host and port; `connections` counts those that were accepted,
    `mistakes` tells of plans that meant nothing."""

    def __init__(self) -> None:
        self.address = ""
        self.calls: list[Call] = []
        self.connections = 0
        self.open_connections = 0
        self.errors: list[str] = []
        self._rules: list[_Rule] = []
        self._turns: Counter[tuple[str, str, str, str]] = Counter()
        self._arrived = asyncio.Condition()

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port
        return port

    def base_url(self, upstream_format: Format, plan: str = _SOUND) -> str:
        """What stands in a channel of that format."""
        parse_plan(plan)
        base = f"{self.address}{_FRONT}{quote(plan, safe=':,*=')}"
        return base if upstream_format is Format.MESSAGES else f"{base}/v1"

    def set_plan(
        self,
        plan: str,
        *,
        key: str | None = None,
        model: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        """From now on, whatever the URL says; the plan's turns begin anew. The last rule that fits
        a request counts. `endpoint` is how its path ends."""
        parse_plan(plan)
        rule = _Rule(plan, key, model, endpoint)
        self._rules = [each for each in self._rules if each != rule]
        self._rules.append(rule)
        for place in [each for each in self._turns if each[0] == plan and key in (None, each[1])]:
            del self._turns[place]

    def clear_plans(self) -> None:
        """The URL decides again."""
        self._rules.clear()

    def calls_of(self, *, key: str | None = None, model: str | None = None) -> list[Call]:
        """The calls of an account, or for a model, in their order."""
        wanted = _Rule("", key, model, None)
        return [call for call in self.calls if wanted.fits(call)]

    async def wait_for_call(self, times: int = 1, *, key: str | None = None) -> Call:
        """The call of that number (of that account), once it has arrived."""
        async with asyncio.timeout(10), self._arrived:
            await self._arrived.wait_for(lambda: len(self.calls_of(key=key)) >= times)
        return self.calls_of(key=key)[times - 1]

    async def serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection."""
        self.connections += 1
        self.open_connections += 1
        line = _Line(reader, writer, self.connections)
        try:
            call: Call | Left | None = await line.receive()
            while isinstance(call, Call):
                call = await self._exchange(line, call)
        except PlanError as mistake:
            self.errors.append(str(mistake))
        except (ValueError, asyncio.LimitOverrunError) as mistake:
            self.errors.append(f"no HTTP request: {mistake!r}")
        finally:
            self.open_connections -= 1

    async def _exchange(self, line: _Line, call: Call) -> Call | Left | None:
        """Answers; then what the peer does next, None where it is not waited for. The next request
        is awaited while an answer is given: that is how a peer that leaves is noticed, and the
        answer ends at once."""
        answer = call.answer
        step = await self._record(call)
        following = asyncio.ensure_future(line.receive())
        answering = asyncio.ensure_future(self._answer(call, step))

        def note(received: asyncio.Future[Call | Left]) -> None:
            if received.cancelled() or received.exception() or not answer.keep_alive:
                return
            if isinstance(left := received.result(), Left):
                call.left(left)
                answering.cancel()

        following.add_done_callback(note)
        try:
            await asyncio.wait({answering})
            if not answer.keep_alive:
                return None
            async with asyncio.timeout(answer.idle):
                return await following
        except TimeoutError:
            return None
        finally:
            following.cancel()
            answering.cancel()
            await asyncio.gather(following, answering, return_exceptions=True)

    async def _record(self, call: Call) -> Step:
        """What is to be done to it."""
        rules = [rule for rule in self._rules if rule.fits(call)]
        call.plan = rules[-1].plan if rules else call.plan
        place = (call.plan, call.key, call.model, call.path)
        step = parse_plan(call.plan).step(self._turns[place])
        self._turns[place] += 1
        call.step = step.text
        async with self._arrived:
            self.calls.append(call)
            self._arrived.notify_all()
        return step

    async def _answer(self, call: Call, step: Step) -> None:
        try:
            await play_step(call, step)
        except ConnectionError:
            call.answer.hang_up()
        except Exception as mistake:  # whatever a plan may say: it is told at the end
            self.errors.append(f"{call.plan}: {mistake!r}")
            call.answer.hang_up()
        finally:
            call.answered_at = asyncio.get_running_loop().time()


class _Line:
    """The requests of one connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._number = number
        self._count = 0

    async def receive(self) -> Call | Left:
        """The next request, or how the peer closed instead."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            request, *lines = head.decode("latin-1").rstrip().split("\r\n")
            method, target, _ = request.split(" ")
            named = (line.partition(":") for line in lines)
            headers = CIMultiDict((name, value.strip()) for name, _, value in named)
            body = await self._body(headers)
        except asyncio.IncompleteReadError:
            return Left.FIN
        except ConnectionError:
            return Left.RESET
        self._count += 1
        url = urlsplit(target)
        plan, path = _SOUND, url.path
        if path.startswith(_FRONT):
            plan, _, path = path.removeprefix(_FRONT).partition("/")
            plan, path = unquote(plan), f"/{path}"
        return Call(
            method=method,
            path=path,
            query=url.query,
            headers=headers,
            body=body,
            connection=self._number,
            nth=self._count,
            arrived_at=asyncio.get_running_loop().time(),
            plan=plan,
            answer=Answer(self._writer),
        )

    async def _body(self, headers: CIMultiDict[str]) -> bytes:
        if "chunked" not in headers.get("transfer-encoding", ""):
            return await self._reader.readexactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            body += (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readuntil(b"\r\n")
        return body


@asynccontextmanager
async def fault_upstream(tls: ssl.SSLContext | None = None) -> AsyncIterator[FaultUpstream]:
    """A fault upstream on a loopback port of its own. At its end a plan that meant nothing is an
    error, lest a slip of the pen be taken for a fault."""
    upstream = FaultUpstream()
    async with listening(upstream.serve_connection, tls) as port:
        upstream.address = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        try:
            yield upstream
        except BaseException as error:
            for mistake in upstream.errors:
                error.add_note(mistake)
            raise
    if upstream.errors:
        raise PlanError("; ".join(upstream.errors))
