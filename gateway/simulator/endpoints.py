"""The simulator's HTTP endpoint."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.simulator.chat import parse, render_body, render_stream
from gateway.simulator.image import check_images
from gateway.simulator.reply import generate
from gateway.simulator.request import Body, RequestError

_MAX_BODY_SIZE = 64 * 1024 * 1024


def build_simulator(*, pace: float = 0.02) -> web.Application:
    """Build an application that accepts any API key.

    ``pace`` is the delay between two events of a stream, in seconds.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await _read_body(request)
        model_request = parse(body)
        check_images(model_request)
        reply = generate(model_request)
        created = int(time.time())  # noqa: TID251 - the simulator has no runtime
        if body.get("stream") is not True:
            return _json(render_body(body, reply, created))
        return await _stream(request, render_stream(body, reply, created), pace)

    app = web.Application(client_max_size=_MAX_BODY_SIZE, middlewares=[_error_middleware])
    app.on_response_prepare.append(_add_request_id)
    app.router.add_post("/v1/chat/completions", handle)
    return app


async def _read_body(request: web.Request) -> Body:
    try:
        body = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise RequestError("The request body is not valid JSON.", code="invalid_json") from error
    if not isinstance(body, dict):
        raise RequestError("The request body is not a JSON object.", code="invalid_json")
    return body


async def _stream(request: web.Request, frames: Iterator[bytes], pace: float) -> web.StreamResponse:
    response = web.StreamResponse(headers={"cache-control": "no-cache"})
    response.content_type = "text/event-stream"
    response.charset = "utf-8"
    await response.prepare(request)
    with suppress(ConnectionError):  # the client has disconnected
        for frame in frames:
            await response.write(frame)
            if pace:
                await asyncio.sleep(pace)
        await response.write_eof()
    return response


@web.middleware
async def _error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestError as request_error:
        error = request_error
    except web.HTTPRequestEntityTooLarge as too_large:
        error = RequestError("Request entity too large", status=too_large.status)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
        error = RequestError(f"Invalid URL ({request.method} {request.path})", status=404)
    return _json(error.body, status=error.status)


async def _add_request_id(request: web.Request, response: web.StreamResponse) -> None:
    del request
    response.headers["x-request-id"] = f"req_{secrets.token_hex(12)}"


def _json(body: Body, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
