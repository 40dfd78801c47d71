"""An upstream in all three formats that validates strictly: a request that the format's official
library could not send or its vendor would not accept is refused and recorded.

Tests script its replies in a neutral form. It is independent of the gateway.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

import orjson
from aiohttp import web

from gateway.core.formats import Format
from tests.conformance.format_servers import chat, messages, responses
from tests.conformance.neutral_reply import NeutralReply, Thinking
from tests.conformance.request_types import violations
from tests.conformance.rules import chat as chat_rules
from tests.conformance.rules import messages as messages_rules
from tests.conformance.rules import responses as responses_rules
from tests.conformance.rules.ids import IssuedIds

Body = dict[str, Any]

PATHS: Final = {
    "/v1/chat/completions": Format.CHAT,
    "/v1/messages": Format.MESSAGES,
    "/v1/responses": Format.RESPONSES,
}
_VERSIONS: Final = ("2023-06-01", "2026-10-21")
_STREAM: Final = "text/event-stream; charset=utf-8"
_WRITE_SIZE: Final = 311
_LARGEST: Final = 1 << 24
_TURNS: Final = 20
_AT_ONCE: Final = struct.pack("ii", 1, 0)


class Ending(Enum):
    """How a stream stops too early."""

    NEAT = "the body ends as HTTP wants it"
    TRUNCATED = "the connection closes inside the body"
    RESET = "the connection is reset inside the body"
    ERROR = "an error event"


class Trouble(Enum):
    """What an upstream complains of, with the status that goes with it."""

    BAD = 400
    KEY = 401
    BUSY = 429
    BROKEN = 500
    OVERLOADED = 529


COMPLAINT: Final = "The upstream's own words."
_KINDS: Final = {
    Format.MESSAGES: {
        Trouble.BAD: "invalid_request_error",
        Trouble.KEY: "authentication_error",
        Trouble.BUSY: "rate_limit_error",
        Trouble.BROKEN: "api_error",
        Trouble.OVERLOADED: "overloaded_error",
    },
}
_OTHER_KINDS: Final = {
    Trouble.BAD: "invalid_request_error",
    Trouble.KEY: "invalid_api_key",
    Trouble.BUSY: "rate_limit_exceeded",
    Trouble.BROKEN: "server_error",
    Trouble.OVERLOADED: "server_is_overloaded",
}


@dataclass(frozen=True, slots=True)
class Refused:
    """An HTTP error instead of an answer."""

    trouble: Trouble


@dataclass(frozen=True, slots=True)
class Broken:
    """A stream of which only the first `share` of the frames comes, from 0 to 1; of a whole body,
    where no stream was asked for, that share of its bytes."""

    content: NeutralReply
    share: float
    ending: Ending
    trouble: Trouble = Trouble.OVERLOADED


@dataclass(frozen=True, slots=True)
class WholeBody:
    """A JSON body, whether or not a stream was asked for."""

    content: NeutralReply


Script = NeutralReply | Refused | Broken | WholeBody | Callable[[Body], NeutralReply]
"""What comes back; a function where that depends on what is asked."""


class FormatServer(Protocol):
    """Renders replies in one format."""

    def render(self, reply: NeutralReply, number: int, /) -> Body: ...

    def frames(self, reply: NeutralReply, number: int, body: Body, /) -> Iterator[bytes]: ...

    def error(self, kind: str, message: str, /) -> Body: ...

    def error_frame(self, kind: str, message: str, position: int, /) -> bytes: ...


FORMAT_SERVERS: Final[dict[Format, FormatServer]] = {
    Format.CHAT: chat,
    Format.MESSAGES: messages,
    Format.RESPONSES: responses,
}
RULES: Final[dict[Format, Callable[[Body, IssuedIds], Iterable[str]]]] = {
    Format.CHAT: chat_rules.refusals,
    Format.MESSAGES: messages_rules.refusals,
    Format.RESPONSES: responses_rules.refusals,
}


@dataclass(frozen=True, slots=True)
class Request:
    format: Format
    body: Body


@dataclass(slots=True)
class ValidatingUpstream:
    """`violations`: why requests were refused; `received`: the requests since the last `play`."""

    address: str = ""
    received: list[Request] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    extended: bool = False
    _scripts: list[Script] = field(default_factory=list)
    _issued: dict[Format, IssuedIds] = field(default_factory=dict)
    _answers: int = 0

    def play(self, *scripts: Script, extended: bool = False) -> None:
        """One answer for each request from now on. `extended`: a server of open models, which
        takes more than the libraries know."""
        self._scripts = list(scripts)
        self._issued = {format: IssuedIds() for format in Format}
        self.received, self.violations, self.extended = [], [], extended

    @property
    def last(self) -> Request:
        return self.received[-1]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        format = PATHS[request.path]
        raw = await request.read()
        found = list(self._refusals(request, format, raw))
        if found:
            self.violations += [f"{request.path}: {reason}" for reason in found]
            return self._refuse(format, Trouble.BAD, "; ".join(found))
        body = orjson.loads(raw)
        self.received.append(Request(format, body))
        if not self._scripts:
            self.violations.append(f"{request.path}: asked once too often")
            return self._refuse(format, Trouble.BROKEN, "Nothing more to say.")
        self._answers += 1
        script = self._scripts.pop(0)
        match script(body) if callable(script) else script:
            case Refused(trouble):
                return self._refuse(format, trouble, COMPLAINT)
            case Broken() as broken:
                return await self._break(request, format, broken, body)
            case WholeBody(content):
                return await self._say(request, format, content, body | {"stream": False})
            case NeutralReply() as content:
                return await self._say(request, format, content, body)

    def _refusals(self, request: web.Request, format: Format, raw: bytes) -> Iterator[str]:
        version = request.headers.get("anthropic-version")
        if format is Format.MESSAGES and version not in _VERSIONS:
            yield f"anthropic-version: {version!r}"
        if not {"authorization", "x-api-key"} & {name.lower() for name in request.headers}:
            yield "no credential"
        body = orjson.loads(raw)
        wrong = violations(
            format,
            raw,
            streamed=body.get("stream") is True,
            old=version == _VERSIONS[0],
            extended=self.extended,
        )
        yield from wrong or RULES[format](body, self._issued[format])

    def _refuse(self, format: Format, trouble: Trouble, message: str) -> web.Response:
        error = FORMAT_SERVERS[format].error(_kind(format, trouble), message)
        return web.json_response(error, status=trouble.value)

    async def _say(
        self, request: web.Request, format: Format, reply: NeutralReply, body: Body
    ) -> web.StreamResponse:
        self._sign(format, reply)
        server = FORMAT_SERVERS[format]
        if not body.get("stream"):
            return web.json_response(server.render(reply, self._answers))
        answer = await _begin(request, _STREAM)
        await _write(answer, b"".join(server.frames(reply, self._answers, body)))
        await answer.write_eof()
        return answer

    async def _break(
        self, request: web.Request, format: Format, broken: Broken, body: Body
    ) -> web.StreamResponse:
        server = FORMAT_SERVERS[format]
        if body.get("stream"):
            frames = [*server.frames(broken.content, self._answers, body)]
        else:
            encoded = orjson.dumps(server.render(broken.content, self._answers))
            frames = [bytes([byte]) for byte in encoded]
        frames = frames[: int(len(frames) * broken.share)]
        answer = await _begin(request, _STREAM if body.get("stream") else "application/json")
        await _write(answer, b"".join(frames))
        assert request.transport is not None
        match broken.ending:
            case Ending.ERROR:
                kind = _kind(format, broken.trouble)
                await answer.write(server.error_frame(kind, COMPLAINT, len(frames)))
                await answer.write_eof()
            case Ending.NEAT:
                await answer.write_eof()
            case Ending.TRUNCATED:
                request.transport.close()
            case Ending.RESET:
                await _reset(request.transport)
        return answer

    def _sign(self, format: Format, reply: NeutralReply) -> None:
        issued = self._issued[format]
        for thinking in reply.parts:
            if isinstance(thinking, Thinking):
                issued.signed_thinking[thinking.seal] = thinking.text
        if format is Format.RESPONSES:
            for item in responses.items(reply, self._answers):
                if item["type"] == "reasoning":
                    issued.items[item["id"]] = item["encrypted_content"]
                else:
                    issued.ids.add(item["id"])


def _kind(format: Format, trouble: Trouble) -> str:
    return _KINDS.get(format, _OTHER_KINDS)[trouble]


async def _begin(request: web.Request, content_type: str) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"content-type": content_type})
    answer.enable_chunked_encoding()
    await answer.prepare(request)
    return answer


async def _write(answer: web.StreamResponse, body: bytes) -> None:
    """In pieces that respect no frame and no character."""
    for start in range(0, len(body), _WRITE_SIZE):
        await answer.write(body[start : start + _WRITE_SIZE])


async def _reset(transport: asyncio.Transport) -> None:
    """A reset overtakes what its reader, who lives in the same loop, has not come to read yet."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    transport.abort()


@asynccontextmanager
async def validating_upstream() -> AsyncIterator[ValidatingUpstream]:
    upstream = ValidatingUpstream()
    app = web.Application(client_max_size=_LARGEST)
    for path in PATHS:
        app.router.add_post(path, upstream.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        upstream.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield upstream
    finally:
        await runner.cleanup()
