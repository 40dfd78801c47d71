"""The endpoints that pass through: whoever may use the model, within the key's limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from aiohttp import hdrs, web

from gateway.core.formats import Endpoint, Format
from gateway.core.parts import Text
from gateway.core.prompt import Prompt, Role, Turn
from gateway.errors import InvalidUrl
from gateway.server.http.auth import authorize
from gateway.server.http.request_body import read_json, read_whole
from gateway.server.passthrough.credential import TAKE_CREDENTIAL
from gateway.server.passthrough.dispatch import PassThroughDispatch
from gateway.server.passthrough.form import FORM, Form, read_form
from gateway.server.proxy.incoming_request import IncomingRequest
from gateway.server.record.exchange import EXCHANGE
from gateway.wire.json.fields import Payload, parse_model
from gateway.wire.registry import CODECS

ENDPOINTS: Final = {
    "/v1/embeddings": Endpoint.EMBEDDINGS,
    "/v1/rerank": Endpoint.RERANK,
    "/v1/moderations": Endpoint.MODERATIONS,
    "/v1/audio/speech": Endpoint.AUDIO,
    "/v1/audio/transcriptions": Endpoint.AUDIO,
    "/v1/audio/translations": Endpoint.AUDIO,
    "/v1/images/generations": Endpoint.IMAGES,
    "/v1/images/edits": Endpoint.IMAGES,
    "/v1/images/variations": Endpoint.IMAGES,
}
_NOT_SERVED: Final = {
    "messages/batches": "send the requests one by one",
    "batches": "send the requests one by one",
    "files": "send files within requests",
    "realtime": "use a streamed reply",
}
"""Paths of official clients below `/v1`, and what to do instead."""
_TEXT_FIELDS: Final = ("input", "query", "documents", "prompt", "instructions")
_LARGE: Final = 1024 * 1024
"""Bytes of a form that a thread reads."""


def add_pass_through_routes(
    router: web.UrlDispatcher, expect: Callable[[web.Request], Awaitable[None]]
) -> None:
    for path, endpoint in ENDPOINTS.items():
        router.add_post(path, partial(pass_through, endpoint), expect_handler=expect)
    others = "|".join(_NOT_SERVED)
    router.add_route(hdrs.METH_ANY, f"/v1/{{path:({others})}}{{anything:(/.*)?}}", _reject)


async def _reject(request: web.Request) -> web.Response:
    path = request.match_info["path"]
    hint = f"the gateway does not serve /v1/{path}: {_NOT_SERVED[path]}"
    raise InvalidUrl(request.method, request.path, hint=hint)


async def pass_through(endpoint: Endpoint, request: web.Request) -> web.StreamResponse:
    permit = authorize(request, endpoint.value)
    permit.check_can_generate()
    exchange, form, raw = request[EXCHANGE], None, b""
    body: Payload = {}
    headers: dict[str, str] = {}
    content_type = request.headers.get(hdrs.CONTENT_TYPE, "")
    if content_type.partition(";")[0].strip().lower() == FORM:
        form = await _receive_form(request, content_type)
        model, headers = form.model, {"content-type": content_type}
    else:
        raw, body = await read_json(request)
        model = parse_model(body)
    texts, tokens = await exchange.run_sized(_texts, body)
    codec, turn = CODECS[Format.CHAT], Turn(Role.USER, tuple(map(Text, texts)))
    user = body.get("user")
    prompt = Prompt(
        format=Format.CHAT,
        model=model,
        turns=(turn,) if texts else (),
        user=user if isinstance(user, str) else None,
    )
    exchange.prompt = prompt
    if permit.trusted is not None:
        permit = await exchange.record_dimensions(permit, permit.trusted, request.headers)
    incoming = IncomingRequest(
        request=request,
        exchange=exchange,
        permit=permit,
        codec=codec,
        parse=codec.parse_prompt,
        headers=headers,
        raw_body=raw,
        body=body,
        prompt=prompt,
    )
    incoming.route = permit.route(exchange.snapshot.router, model, endpoint)
    await TAKE_CREDENTIAL.run(incoming)
    estimate = await exchange.run_sized(exchange.runtime.input_estimates.raw, prompt) + tokens
    return await PassThroughDispatch(incoming, incoming.as_sent(estimate), endpoint, form).run()


async def _receive_form(request: web.Request, content_type: str) -> Form:
    raw, exchange = await read_whole(request, FORM), request[EXCHANGE]
    if len(raw) > _LARGE:
        return await exchange.run_in_thread(read_form, raw, content_type)
    return read_form(raw, content_type)


def _texts(body: Payload) -> tuple[list[str], int]:
    """The texts of a body that become tokens, and the number of those that it has already."""
    texts, tokens = [], 0
    rest = [body[name] for name in _TEXT_FIELDS if name in body]
    while rest:
        match rest.pop():
            case str() as text:
                texts.append(text)
            case int():
                tokens += 1
            case list() as items:
                rest += items
            case dict() as part:
                rest += (each for name, each in part.items() if name in ("text", "content"))
            case _:
                pass
    return texts, tokens
