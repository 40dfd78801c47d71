"""An upstream that does what it is told: a real server that may also break HTTP on purpose.

Every request takes the next script of those that `respond_with` lined up, and the last of them
again once no other is left. A script is a `Response`, or a function of the request that returns one
or writes to `request.answer` itself. Requests are on record. Independent of the gateway.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

import orjson
from multidict import CIMultiDict

from gateway.core.formats import Format
from tests.support.answer import EVENTS, JSON, Answer, Framing
from tests.support.paths import STREAMS
from tests.support.tcp_server import listening

_ENDPOINTS = {
    Format.CHAT: "/chat/completions",
    Format.MESSAGES: "/messages",
    Format.RESPONSES: "/responses",
}


class ScriptError(ValueError):
    """An upstream was told nothing, or nothing that makes sense, about a request."""


class Ending(Enum):
    """How an answer stops."""

    COMPLETE = "as HTTP wants it"
    CLOSE = "closed: without a length, the end of the connection is the end of the body"
    TRUNCATED = "closed inside a chunked body"
    RESET = "reset inside a chunked body"
    STALLED = "open, and nothing more is sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One answer. `pieces` are written one by one, `pause` seconds apart, `delay` seconds after
    the request; `instead` replaces the whole answer by any bytes. `hang_up`: the connection is
    closed after a neat answer that promised to keep it."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] = ()
    ending: Ending = Ending.COMPLETE
    delay: float = 0
    pause: float = 0
    raw: bytes | None = None
    close_after: bool = False

    def with_changes(self, **changes: Any) -> Self:
        return replace(self, **changes)

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


def json_response(body: object, status: int = 200, **headers: str) -> Response:
    """A JSON body (or bytes as they are) with a content-length."""
    written = body if isinstance(body, bytes) else orjson.dumps(body)
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Response(status=status, headers={"content-type": JSON} | named, chunks=(written,))


def event_stream(body: bytes, *, ending: Ending = Ending.COMPLETE) -> Response:
    """An event stream in one piece; see `by_frame` and `by_byte`."""
    return Response(headers={"content-type": EVENTS}, chunks=(body,), ending=ending)


def fixture_reply(upstream_format: str, case: str = "text") -> Response:
    """The whole reply of a fixture in a format's tongue."""
    return json_response((STREAMS / case / f"{upstream_format}.json").read_bytes())


def fixture_stream(
    upstream_format: str, case: str = "text", *, ending: Ending = Ending.COMPLETE
) -> Response:
    """The streamed reply of a fixture in a format's tongue."""
    return event_stream((STREAMS / case / f"{upstream_format}.sse").read_bytes(), ending=ending)


def by_frame(script: Response) -> Response:
    frames = script.body.split(b"\n\n")
    return script.with_changes(chunks=tuple(frame + b"\n\n" for frame in frames if frame))


def by_byte(script: Response) -> Response:
    return script.with_changes(chunks=tuple(bytes([byte]) for byte in script.body))


def with_crlf(script: Response) -> Response:
    return script.with_changes(
        chunks=tuple(piece.replace(b"\n", b"\r\n") for piece in script.chunks)
    )


def without_event_lines(script: Response) -> Response:
    lines = script.body.split(b"\n")
    kept = b"\n".join(line for line in lines if not line.startswith(b"event:"))
    return script.with_changes(chunks=(kept,))


_OF_GATEWAYS = ("/healthz", "/readyz")
"""Asked by another test that still waits for a gateway, whose port has become this one's."""

STREAM_VARIANTS: dict[str, Callable[[Response], Response]] = {
    "whole": lambda script: script,
    "by frame": by_frame,
    "by byte": by_byte,
    "by byte, CRLF": lambda script: by_byte(with_crlf(script)),
    "no event lines": without_event_lines,
    "no chunks": lambda script: script.with_changes(ending=Ending.CLOSE),
}
"""Ways in which one and the same stream may come."""

TRUNCATIONS = {
    "neat": Ending.COMPLETE,
    "closed": Ending.CLOSE,
    "truncated": Ending.TRUNCATED,
    "reset": Ending.RESET,
}
"""Ways in which a stream may stop before its terminal event."""


class Left(Enum):
    """How a peer hangs up."""

    FIN = "fin"
    RESET = "reset"


@dataclass(kw_only=True)
class ReceivedRequest:
    """One request as it came. Times are those of the loop's clock, in seconds: `answered_at` when
    its answer was at its end, sound or not; `left_at` and `left_by` when and how the peer closed
    the connection, if it did so first: `disconnected` is set then."""

    method: str
    target: str
    headers: CIMultiDict[str]
    body: bytes
    connection: int
    nth: int
    """Of its connection, from 1."""
    arrived_at: float
    answer: Answer
    answered_at: float | None = None
    left_at: float | None = None
    left_by: Left | None = None
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    plan: str = ""
    step: str = ""
    """What was done to it, by an upstream that has plans."""

    @property
    def url(self) -> SplitResult:
        return urlsplit(self.target)

    @property
    def path(self) -> str:
        return self.url.path

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The body's object; empty where it is none."""
        try:
            value = self.json
        except orjson.JSONDecodeError:
            value = None
        return value if isinstance(value, dict) else {}

    @property
    def key(self) -> str:
        """The account's key."""
        bearer = self.headers.get("authorization", "")
        return self.headers.get("x-api-key") or bearer.removeprefix("Bearer ")

    @property
    def model(self) -> str:
        return str(self.fields.get("model", ""))

    @property
    def prompt(self) -> str:
        """Its first text, by which tests know their requests."""
        turns = self.fields.get("messages")
        return str(turns[0]["content"] if turns else self.fields.get("input"))

    @property
    def streamed(self) -> bool:
        """Whether a stream is asked for."""
        return self.fields.get("stream") is True

    @property
    def format(self) -> Format:
        """That of the path, also of its minor endpoints; chat where it tells none."""
        for format, end in _ENDPOINTS.items():
            if end in self.path:
                return format
        return Format.CHAT

    @property
    def generates(self) -> bool:
        """Whether a reply of a model is asked for."""
        return self.path.endswith(_ENDPOINTS[self.format])

    def leave(self, how: Left) -> None:
        self.left_at, self.left_by = asyncio.get_running_loop().time(), how
        self.disconnected.set()


Respond = Callable[[ReceivedRequest], Awaitable[Response | None]]
Script = Response | Respond


class ScriptedUpstream:
    """Its `address` is scheme, host and port; `connections` counts those that were accepted,
    `errors` tells of requests that could not be answered as a test wanted."""

    def __init__(self, *scripts: Script) -> None:
        self.address = ""
        self.connections = 0
        self.open_connections = 0
        self.requests: list[ReceivedRequest] = []
        self.errors: list[str] = []
        self._scripts = list(scripts)
        self._arrived = asyncio.Condition()

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port
        return port

    def respond_with(self, *scripts: Script) -> None:
        """These are the answers from now on."""
        self._scripts = list(scripts)

    @property
    def last_request(self) -> ReceivedRequest:
        return self.requests[-1]

    def requests_of(
        self, *, key: str | None = None, model: str | None = None, prompt: str | None = None
    ) -> list[ReceivedRequest]:
        """Those of an account, for a model, or with a prompt, in their order."""
        return [
            each
            for each in self.requests
            if key in (None, each.key)
            and model in (None, each.model)
            and prompt in (None, each.prompt)
        ]

    async def wait_for_request(self, times: int = 1, **those: str) -> ReceivedRequest:
        """Waits until that many of `those` requests have come; the newest of them."""
        async with asyncio.timeout(10), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests_of(**those)) >= times)
        return self.requests_of(**those)[times - 1]

    def choose(self, request: ReceivedRequest) -> Script:
        """What is to be done to a request. Raises `ScriptError`."""
        if not self._scripts:
            raise ScriptError(f"{request.method} {request.target}: no script")
        return self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]

    async def serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection."""
        self.connections += 1
        self.open_connections += 1
        line = _Line(reader, writer, self.connections)
        try:
            request: ReceivedRequest | Left | None = await line.receive()
            while isinstance(request, ReceivedRequest):
                request = await self._exchange(line, request)
        except ScriptError as error:
            self.errors.append(str(error))
        except (ValueError, asyncio.LimitOverrunError) as error:
            self.errors.append(f"no HTTP request: {error!r}")
        finally:
            self.open_connections -= 1

    async def _exchange(
        self, line: _Line, request: ReceivedRequest
    ) -> ReceivedRequest | Left | None:
        """Answers; then what the peer does next, None where it is not waited for. The next request
        is awaited while an answer is given: that is how a peer that leaves is noticed, and the
        answer ends at once."""
        if request.target in _OF_GATEWAYS:
            return None
        answer = request.answer
        script = self.choose(request)
        async with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        following = asyncio.ensure_future(line.receive())
        answering = asyncio.ensure_future(self._answer(request, script))

        def note(received: asyncio.Future[ReceivedRequest | Left]) -> None:
            if received.cancelled() or received.exception() or not answer.keep_alive:
                return
            if isinstance(left := received.result(), Left):
                request.leave(left)
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

    async def _answer(self, request: ReceivedRequest, script: Script) -> None:
        try:
            response = script if isinstance(script, Response) else await script(request)
            if response is not None:
                await _write_response(response, request.answer)
        except ConnectionError:
            if request.answer.keep_alive:
                request.leave(Left.RESET)
            request.answer.hang_up()
        except Exception as error:  # whatever a script may do: it is told at the end
            self.errors.append(f"{request.plan or request.target}: {error!r}")
            request.answer.hang_up()
        finally:
            request.answered_at = asyncio.get_running_loop().time()


class _Line:
    """The requests of one connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._number = number
        self._count = 0

    async def receive(self) -> ReceivedRequest | Left:
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
        return ReceivedRequest(
            method=method,
            target=target,
            headers=headers,
            body=body,
            connection=self._number,
            nth=self._count,
            arrived_at=asyncio.get_running_loop().time(),
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


async def _write_response(response: Response, answer: Answer) -> None:
    await asyncio.sleep(response.delay)
    if response.raw is not None:
        await answer.raw(response.raw)
        answer.hang_up()
        return
    match response.ending:
        case Ending.COMPLETE if len(response.chunks) == 1:
            framing = Framing.LENGTH
        case Ending.CLOSE:
            framing = Framing.CLOSE
        case _:
            framing = Framing.CHUNKED
    headers, length = response.headers.items(), len(response.body)
    await answer.head(response.status, None, headers, framing=framing, length=length)
    for chunk in response.chunks:
        await answer.say(chunk)
        await asyncio.sleep(response.pause)
    match response.ending:
        case Ending.COMPLETE | Ending.CLOSE:
            await answer.end()
        case Ending.TRUNCATED:
            answer.hang_up()
        case Ending.RESET:
            await answer.reset()
        case Ending.STALLED:
            await asyncio.Event().wait()
    if response.close_after:
        answer.hang_up()


Upstream = TypeVar("Upstream", bound=ScriptedUpstream)


@asynccontextmanager
async def run_upstream(
    upstream: Upstream, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Upstream]:
    """The upstream on a loopback port of its own. At its end an error of a script is raised, lest a
    slip of the pen be taken for a fault."""
    async with listening(upstream.serve_connection, tls) as port:
        upstream.address = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        try:
            yield upstream
        except BaseException as error:
            for mistake in upstream.errors:
                error.add_note(mistake)
            raise
    if upstream.errors:
        raise ScriptError("; ".join(upstream.errors))


def scripted_upstream(*scripts: Script) -> AbstractAsyncContextManager[ScriptedUpstream]:
    """A scripted upstream on a loopback port of its own."""
    return run_upstream(ScriptedUpstream(*scripts))
