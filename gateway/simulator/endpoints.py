"""The simulator's door: HTTP in, an answer or a refusal out, at a model's pace.

This room must not know what any format looks like inside.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.simulator.errors import (
    RequestError,
    chat_error_body,
    combined_error_body,
    messages_error_body,
)
from gateway.simulator.reply import Reply, generate
from gateway.simulator.request import Body, ModelRequest
from gateway.simulator.stream_text import new_id

from . import chat, messages, responses

_LARGEST_BODY = 64 * 1024 * 1024
_MODELS = ("alpha-sonnet-4-6", "alpha-haiku-4-5-20251001", "beta-5.4", "beta-5.4-mini")
_CREATED = (1_767_225_600, "2026-01-01T00:00:00Z")
_REQUEST_ID = web.RequestKey("request_id", str)
_ENVELOPES = {
    "/v1/chat/": chat_error_body,
    "/v1/messages": messages_error_body,
    "/v1/responses": chat_error_body,
}


class FormatAdapter(Protocol):
    """One format's room."""

    def parse(self, body: Body, /) -> ModelRequest: ...

    def render_body(self, body: Body, answer: Reply, created: int, /) -> Body: ...

    def render_stream(self, body: Body, answer: Reply, created: int, /) -> Iterator[bytes]: ...


def build_simulator(*, pace: float = 0.02) -> web.Application:
    """An application that answers as a model on all three endpoints, under any key.

    ``pace`` is the pause between two events of a stream, in seconds; 0 means none.
    """
    app = web.Application(client_max_size=_LARGEST_BODY, middlewares=[_refuse_in_format])
    app.on_response_prepare.append(_stamp)
    app.router.add_post("/v1/chat/completions", _generator(chat, pace))
    app.router.add_post("/v1/messages", _generator(messages, pace))
    app.router.add_post("/v1/responses", _generator(responses, pace))
    app.router.add_post("/v1/messages/count_tokens", _count_message)
    app.router.add_post("/v1/responses/input_tokens", _count_response)
    app.router.add_get("/v1/models", _list_models)
    return app


def _generator(tongue: FormatAdapter, pace: float) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        body = await _read_body(request)
        answer = generate(tongue.parse(body))
        created = int(time.time())  # noqa: TID251 - the simulator has no runtime to ask
        if body.get("stream") is not True:
            return _json(tongue.render_body(body, answer, created))
        return await _stream(request, tongue.render_stream(body, answer, created), pace)

    return handle


async def _count_message(request: web.Request) -> web.Response:
    ask = messages.parse_for_count(await _read_body(request))
    return _json({"input_tokens": ask.tokens})


async def _count_response(request: web.Request) -> web.Response:
    ask = responses.parse(await _read_body(request))
    return _json({"object": "response.input_tokens", "input_tokens": ask.tokens})


async def _list_models(request: web.Request) -> web.Response:
    """One list with the fields that clients of every format look for."""
    del request
    created, created_at = _CREATED
    models = [
        {
            "id": model,
            "object": "model",
            "type": "model",
            "created": created,
            "created_at": created_at,
            "owned_by": "simulator",
            "display_name": f"Simulated {model}",
            "lifecycle": "active",
        }
        for model in _MODELS
    ]
    ends = {"has_more": False, "first_id": _MODELS[0], "last_id": _MODELS[-1]}
    return _json({"object": "list", "data": models, **ends})


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
    with suppress(ConnectionError):  # the client has left; there is nobody to tell
        for frame in frames:
            await response.write(frame)
            if pace:
                await asyncio.sleep(pace)
        await response.write_eof()
    return response


@web.middleware
async def _refuse_in_format(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal leaves in the envelope of the format whose endpoint was called."""
    request[_REQUEST_ID] = new_id("req_")
    try:
        return await handler(request)
    except RequestError as refused:
        refusal = refused
    except web.HTTPRequestEntityTooLarge as error:
        refusal = RequestError("Request entity too large", status=error.status)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
        refusal = RequestError(f"Invalid URL ({request.method} {request.path})", status=404)
    envelopes = (make for path, make in _ENVELOPES.items() if request.path.startswith(path))
    envelope = next(envelopes, combined_error_body)
    return _json(envelope(refusal, request[_REQUEST_ID]), status=refusal.status)


async def _stamp(request: web.Request, response: web.StreamResponse) -> None:
    """Names the request in both headers that client libraries look for."""
    for header in ("x-request-id", "request-id"):
        response.headers[header] = request[_REQUEST_ID]


def _json(body: Body, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
