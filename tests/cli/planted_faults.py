"""A server that plants one fault into the replies of the simulator, and both in a thread.

A gateway between them translates: the simulator has one format.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.core.formats import Format
from tests.support.answer import EVENTS
from tests.support.gateway import UPSTREAM_MODEL, channel, run_gateway
from tests.support.loop_thread import run_in_thread
from tests.support.simulator import run_simulator
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    by_frame,
    event_stream,
    json_response,
    scripted_upstream,
)

Body = dict[str, Any]


class Fault:
    """Nothing is wrong; the methods of other classes plant something."""

    def refuse(self, request: ReceivedRequest) -> tuple[int, str] | None:
        """Status and message of an error."""
        return None

    def edit(self, body: Body) -> Body:
        return body

    def frames(self, frames: Sequence[bytes]) -> Sequence[bytes]:
        return frames


class WithoutFrames(Fault):
    """Some events never arrive."""

    def __init__(self, *types: bytes) -> None:
        self._types = types

    def frames(self, frames: Sequence[bytes]) -> Sequence[bytes]:
        return [
            frame
            for frame in frames
            if not any(b'"type":"%b"' % each in frame for each in self._types)
        ]


class Rejects(Fault):
    """An error for requests with one of these fields."""

    def __init__(self, status: int, message: str, *fields: str) -> None:
        self._error = status, message
        self._fields = fields

    def refuse(self, request: ReceivedRequest) -> tuple[int, str] | None:
        body = request.fields
        is_rejected = not self._fields or any(body.get(field) for field in self._fields)
        return self._error if is_rejected else None


class RefusesForeign(Fault):
    """An error for requests with one of these texts, in the body or the header of betas."""

    def __init__(self, **messages: str) -> None:
        self._messages = {text.replace("_", "-"): each for text, each in messages.items()}

    def refuse(self, request: ReceivedRequest) -> tuple[int, str] | None:
        sent = request.body.decode().replace("_", "-") + request.headers.get("anthropic-beta", "")
        found = (each for text, each in self._messages.items() if text in sent)
        return next(((400, each) for each in found), None)


class IgnoresCompactions(Fault):
    """What is wanted of it is taken for an ordinary request."""

    def edit(self, body: Body) -> Body:
        items = [each for each in body["input"] if each.get("type") != "compaction_trigger"]
        return body | {"input": items}


class IgnoresTools(Fault):
    """Tools are taken, and never called."""

    def edit(self, body: Body) -> Body:
        dropped = ("tools", "tool_choice", "parallel_tool_calls")
        return {name: value for name, value in body.items() if name not in dropped}


class NeverStreams(Fault):
    """A complete body, whatever was requested."""

    def edit(self, body: Body) -> Body:
        return {name: value for name, value in body.items() if name != "stream_options"} | {
            "stream": False
        }


def planted(fault: Fault, state_dir: Path) -> AbstractContextManager[str]:
    """The address of the server, without /v1."""
    return run_in_thread(_serve(fault, state_dir))


@asynccontextmanager
async def _serve(fault: Fault, state_dir: Path) -> AsyncIterator[str]:
    async def answer(request: ReceivedRequest) -> Response:
        body = request.json
        if (refusal := fault.refuse(request)) is not None:
            status, message = refusal
            error = {"type": "invalid_request_error", "message": message}
            return json_response({"type": "error", "error": error}, status)
        reply = await gateway.post(request.format, fault.edit(body), path=request.path)
        content, kind = await reply.read(), reply.content_type
        if kind != EVENTS:
            return json_response(content, reply.status)
        frames = fault.frames(by_frame(event_stream(content)).chunks)
        return event_stream(content).with_changes(chunks=tuple(frames))

    async with (
        run_simulator() as simulator,
        run_gateway(
            state_dir,
            [channel(Format.CHAT, simulator, models=[UPSTREAM_MODEL])],
            models=[{"id": UPSTREAM_MODEL, "family": "beta"}],
        ) as gateway,
        scripted_upstream(answer) as outer,
    ):
        yield outer.address
