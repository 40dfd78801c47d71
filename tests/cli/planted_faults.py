"""The simulator behind a server that plants one fault, and both in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import orjson
from aiohttp import ClientSession, web

from gateway.simulator import build_simulator

Body = dict[str, Any]


class Fault:
    """Nothing is wrong; the methods of other classes plant something."""

    def refuse(self, body: Body) -> tuple[int, str] | None:
        """Status and message of an error."""
        return None

    def edit(self, body: Body) -> Body:
        return body

    def frames(self, frames: list[bytes]) -> list[bytes]:
        return frames


class WithoutFrames(Fault):
    """Some events never arrive."""

    def __init__(self, *types: bytes) -> None:
        self._types = types

    def frames(self, frames: list[bytes]) -> list[bytes]:
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

    def refuse(self, body: Body) -> tuple[int, str] | None:
        is_rejected = not self._fields or any(body.get(field) for field in self._fields)
        return self._error if is_rejected else None


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


@contextmanager
def planted(fault: Fault) -> Iterator[str]:
    """The address of the server, without /v1."""
    ready: Future[str] = Future()
    stop = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(fault, ready, stop)))
    thread.start()
    try:
        yield ready.result(10)
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()


async def _serve(fault: Fault, ready: Future[str], stop: threading.Event) -> None:
    inner = web.AppRunner(build_simulator(pace=0))
    await inner.setup()
    await web.TCPSite(inner, "127.0.0.1", 0).start()
    async with ClientSession(f"http://127.0.0.1:{inner.addresses[0][1]}") as simulator:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/{path:.*}", _handler(fault, simulator))
        outer = web.AppRunner(app)
        await outer.setup()
        await web.TCPSite(outer, "127.0.0.1", 0).start()
        ready.set_result(f"http://127.0.0.1:{outer.addresses[0][1]}")
        await asyncio.to_thread(stop.wait)
        await outer.cleanup()
    await inner.cleanup()


def _handler(fault: Fault, simulator: ClientSession) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        if (refusal := fault.refuse(body)) is not None:
            status, message = refusal
            error = {"type": "invalid_request_error", "message": message}
            return web.json_response({"type": "error", "error": error}, status=status)
        edited = orjson.dumps(fault.edit(body))
        async with simulator.post(request.path, data=edited) as answer:
            content, kind = await answer.read(), answer.content_type
        if kind != "text/event-stream":
            return web.Response(body=content, status=answer.status, content_type=kind)
        response = web.StreamResponse(headers={"content-type": kind})
        await response.prepare(request)
        for frame in fault.frames(content.split(b"\n\n")):
            await response.write(frame + b"\n\n")
        return response

    return handle
