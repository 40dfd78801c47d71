"""The simulator's HTTP endpoints."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.simulator.errors import RequestError, error_body
from gateway.simulator.image import check_images
from gateway.simulator.json_fields import Body
from gateway.simulator.refusals import refusals
from gateway.simulator.reply import Reply, generate
from gateway.simulator.request import ModelRequest
from gateway.simulator.stream_text import new_id

from . import chat, messages, responses

_MAX_BODY_SIZE = 64 * 1024 * 1024
_MODELS = ("alpha-sonnet-4-6", "alpha-haiku-4-5-20251001", "beta-5.4", "beta-5.4-mini")
_REQUEST_ID = web.RequestKey("request_id", str)


class FormatAdapter(Protocol):
    """The module of a format."""

    def parse(self, body: Body, /) -> ModelRequest: ...

    def render_body(self, body: Body, reply: Reply, created: int, /) -> Body: ...

    def render_stream(self, body: Body, reply: Reply, created: int, /) -> Iterator[bytes]: ...


def build_simulator(*, pace: float = 0.02, strict: bool = True) -> web.Application:
    """A model for all three formats, which accepts any API key.

    ``pace`` is the delay between two events of a stream, in seconds. ``strict``: vendors' rules
    apply, see `refusals`.
    """
    app = web.Application(client_max_size=_MAX_BODY_SIZE, middlewares=[_error_middleware])
    app.on_response_prepare.append(_add_request_id)
    app.router.add_post("/v1/chat/completions", _generator(chat, pace, strict))
    app.router.add_post("/v1/messages", _generator(messages, pace, strict))
    app.router.add_post("/v1/responses", _generator(responses, pace, strict))
    app.router.add_post("/v1/messages/count_tokens", _count_messages_tokens)
    app.router.add_post("/v1/responses/input_tokens", _count_responses_tokens)
    app.router.add_get("/v1/models", _list_models)
    return app


def _generator(adapter: FormatAdapter, pace: float, strict: bool) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        body = await _read_body(request)
        model_request = adapter.parse(body)
        if strict and (refusal := next(refusals(body), None)):
            raise RequestError(refusal)
        check_images(model_request)
        reply = generate(model_request)
        created = int(time.time())  # noqa: TID251 - the simulator has no runtime
        if body.get("stream") is not True:
            return _json(adapter.render_body(body, reply, created))
        return await _stream(request, adapter.render_stream(body, reply, created), pace)

    return handle


async def _count_messages_tokens(request: web.Request) -> web.Response:
    model_request = messages.parse_for_count(await _read_body(request))
    return _json({"input_tokens": model_request.tokens})


async def _count_responses_tokens(request: web.Request) -> web.Response:
    model_request = responses.parse(await _read_body(request))
    return _json({"object": "response.input_tokens", "input_tokens": model_request.tokens})


async def _list_models(request: web.Request) -> web.Response:
    """One list with the fields of every format."""
    del request
    models = [
        {
            "id": model,
            "object": "model",
            "type": "model",
            "created": 1_767_225_600,
            "created_at": "2026-01-01T00:00:00Z",
            "owned_by": "simulator",
            "display_name": f"Simulated {model}",
            "lifecycle": "active",
        }
        for model in _MODELS
    ]
    page = {"has_more": False, "first_id": _MODELS[0], "last_id": _MODELS[-1]}
    return _json({"object": "list", "data": models, **page})


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
    request[_REQUEST_ID] = new_id("req_")
    try:
        return await handler(request)
    except RequestError as request_error:
        error = request_error
    except web.HTTPRequestEntityTooLarge as too_large:
        error = RequestError("Request entity too large", status=too_large.status)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
        error = RequestError(f"Invalid URL ({request.method} {request.path})", status=404)
    return _json(error_body(error, request.path, request[_REQUEST_ID]), status=error.status)


async def _add_request_id(request: web.Request, response: web.StreamResponse) -> None:
    for header in ("x-request-id", "request-id"):
        response.headers[header] = request[_REQUEST_ID]


def _json(body: Body, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
