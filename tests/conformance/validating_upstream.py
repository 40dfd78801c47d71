"""An upstream in all three formats that validates strictly: a request that the format's official
library could not send or its vendor would not accept is refused and recorded.

Tests script its replies in a neutral form. It is independent of the gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

import orjson

from gateway.core.formats import Format
from tests.conformance.format_servers import chat, messages, responses
from tests.conformance.neutral_reply import NeutralReply, Thinking
from tests.conformance.request_types import violations
from tests.conformance.rules import chat as chat_rules
from tests.conformance.rules import messages as messages_rules
from tests.conformance.rules import responses as responses_rules
from tests.conformance.rules.betas import unknown_betas
from tests.conformance.rules.ids import IssuedIds
from tests.support import upstream
from tests.support.answer import JSON
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    json_response,
    run_upstream,
)

Body = dict[str, Any]

PATHS: Final = {
    "/v1/chat/completions": Format.CHAT,
    "/v1/messages": Format.MESSAGES,
    "/v1/responses": Format.RESPONSES,
}
_VERSIONS: Final = ("2023-06-01", "2026-10-21")
_STREAM: Final = "text/event-stream; charset=utf-8"
_WRITE_SIZE: Final = 311


class Ending(Enum):
    """How a stream stops too early."""

    NEAT = "the body ends as HTTP wants it"
    TRUNCATED = "the connection closes inside the body"
    RESET = "the connection is reset inside the body"
    ERROR = "an error event"


_ENDINGS: Final = {
    Ending.TRUNCATED: upstream.Ending.TRUNCATED,
    Ending.RESET: upstream.Ending.RESET,
}


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


class ValidatingUpstream(ScriptedUpstream):
    """`violations`: why requests were refused; `received`: the requests since the last `play`."""

    def __init__(self) -> None:
        super().__init__(self.reply)
        self._answers = 0
        self.play()

    def play(self, *scripts: Script, extended: bool = False, strict: bool = True) -> None:
        """One answer for each request from now on. `extended`: a server of open models, which
        takes more than the libraries know. `strict`: a vendor's rules apply beside the types."""
        self._replies = list(scripts)
        self._issued = {format: IssuedIds() for format in Format}
        self.received: list[Request] = []
        self.violations: list[str] = []
        self.extended, self.strict = extended, strict
        self.requests.clear()

    @property
    def last(self) -> Request:
        return self.received[-1]

    async def reply(self, request: ReceivedRequest) -> Response:
        format = PATHS[request.path]
        found = list(self._refusals(request, format))
        if found:
            self.violations += [f"{request.path}: {reason}" for reason in found]
            return _refuse(format, Trouble.BAD, "; ".join(found))
        body = request.json
        self.received.append(Request(format, body))
        if not self._replies:
            self.violations.append(f"{request.path}: asked once too often")
            return _refuse(format, Trouble.BROKEN, "Nothing more to say.")
        self._answers += 1
        script = self._replies.pop(0)
        match script(body) if callable(script) else script:
            case Refused(trouble):
                return _refuse(format, trouble, COMPLAINT)
            case Broken() as broken:
                return self._break(format, broken, body)
            case WholeBody(content):
                return self._say(format, content, body | {"stream": False})
            case NeutralReply() as content:
                return self._say(format, content, body)

    def _refusals(self, request: ReceivedRequest, format: Format) -> Iterator[str]:
        version = request.headers.get("anthropic-version")
        if format is Format.MESSAGES and version not in _VERSIONS:
            yield f"anthropic-version: {version!r}"
        if self.strict and format is Format.MESSAGES:
            yield from unknown_betas(request.headers.getall("anthropic-beta", ()))
        if not {"authorization", "x-api-key"} & {name.lower() for name in request.headers}:
            yield "no credential"
        body = request.json
        wrong = violations(
            format,
            request.body,
            streamed=body.get("stream") is True,
            old=version == _VERSIONS[0],
            extended=self.extended,
        )
        if wrong or not self.strict:
            yield from wrong
        else:
            yield from RULES[format](body, self._issued[format])

    def _say(self, format: Format, reply: NeutralReply, body: Body) -> Response:
        self._sign(format, reply)
        server = FORMAT_SERVERS[format]
        if not body.get("stream"):
            return json_response(server.render(reply, self._answers))
        return _in_pieces(_STREAM, b"".join(server.frames(reply, self._answers, body)))

    def _break(self, format: Format, broken: Broken, body: Body) -> Response:
        server, streamed = FORMAT_SERVERS[format], body.get("stream")
        if streamed:
            frames = [*server.frames(broken.content, self._answers, body)]
        else:
            encoded = orjson.dumps(server.render(broken.content, self._answers))
            frames = [bytes([byte]) for byte in encoded]
        frames = frames[: int(len(frames) * broken.share)]
        ending = _ENDINGS.get(broken.ending, upstream.Ending.COMPLETE)
        if broken.ending is Ending.ERROR:
            kind = _kind(format, broken.trouble)
            frames.append(server.error_frame(kind, COMPLAINT, len(frames)))
        return _in_pieces(_STREAM if streamed else JSON, b"".join(frames), ending)

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


def _refuse(format: Format, trouble: Trouble, message: str) -> Response:
    return json_response(
        FORMAT_SERVERS[format].error(_kind(format, trouble), message), trouble.value
    )


def _in_pieces(
    kind: str, body: bytes, ending: upstream.Ending = upstream.Ending.COMPLETE
) -> Response:
    """In pieces that respect no frame and no character."""
    pieces = (body[start : start + _WRITE_SIZE] for start in range(0, len(body), _WRITE_SIZE))
    return Response(headers={"content-type": kind}, chunks=tuple(pieces), ending=ending)


def validating_upstream() -> AbstractAsyncContextManager[ValidatingUpstream]:
    return run_upstream(ValidatingUpstream())
