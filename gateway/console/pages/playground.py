"""The playground: one prompt through a key to any model in any format, and what a client gets.

The request is a real one: it has limits, a cost, and a row in the request log. It goes to the
gateway's own address with a key that is valid for this request only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, web
from yarl import URL

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.key_forms import key_label
from gateway.admin.errors import FieldError, FormError
from gateway.console.context import CONTEXT
from gateway.console.form_input import Texts, error_messages
from gateway.console.pages.routing import find_key, format_of, model_ids
from gateway.console.pages.token_forms import submitted_texts
from gateway.console.rendering import render
from gateway.core.formats import Format
from gateway.store.keys import digest, generate_key

MAX_PROMPT: Final = 32 * 1024
"""Characters."""
MAX_REPLY: Final = 256 * 1024
"""Bytes; what comes after them is not read."""
MAX_TOKENS: Final = 2048
"""Of the reply."""
TIMEOUT: Final = 120.0
"""Seconds of a whole reply."""

_PATHS: Final = {
    Format.CHAT: "/v1/chat/completions",
    Format.MESSAGES: "/v1/messages",
    Format.RESPONSES: "/v1/responses",
}

routes = web.RouteTableDef()


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` 0: there is no whole answer. `raw` is its body, with all events; `note` says what is
    missing."""

    status: int
    request_id: str
    raw: str
    text: str
    note: str = ""


@routes.get("/playground")
@requires(Permission.KEYS)
async def show_form(request: web.Request) -> web.Response:
    names = ("key", "model", "format")
    return _page(request, {name: request.query.get(name, "") for name in names})


@routes.post("/playground")
@requires(Permission.KEYS, "playground.send")
async def send(request: web.Request) -> web.Response:
    context, texts = request.app[CONTEXT], await submitted_texts(request)
    try:
        client_format, body = format_of(texts), _body(texts)
        token = await find_key(context, texts.get("key", "").strip())
    except FormError as error:
        return _page(request, texts, errors=error_messages(error))
    about = {"model": body["model"], "format": client_format}
    await context.access.audit.record("playground.send", key_label(token), after=about)
    key = generate_key()
    with context.runtime.registry.lent(token.id, digest(key)):
        answer = await _ask(request, client_format, body, key)
    return _page(request, texts, answer=answer)


def _body(texts: Texts) -> dict[str, Any]:
    """The request's body. Raises FormError."""
    model, prompt = texts.get("model", "").strip(), texts.get("prompt", "")
    if not model:
        raise FormError(FieldError(("model",), "A model is needed."))
    if not prompt.strip() or len(prompt) > MAX_PROMPT:
        text = f"A prompt has 1 to {MAX_PROMPT} characters."
        raise FormError(FieldError(("prompt",), text))
    body = {"model": model, "stream": True}
    if format_of(texts) is Format.RESPONSES:
        return body | {"input": prompt, "max_output_tokens": MAX_TOKENS, "store": False}
    return body | {"messages": [{"role": "user", "content": prompt}], "max_tokens": MAX_TOKENS}


async def _ask(
    request: web.Request, client_format: Format, body: dict[str, Any], key: str
) -> Answer:
    """Asks the address at which this page was asked for, which is the gateway's own."""
    host, port, *_ = request.get_extra_info("sockname")
    scheme = "https" if request.get_extra_info("sslcontext") else "http"
    url = URL.build(scheme=scheme, host=host, port=port, path=_PATHS[client_format])
    version = request.app[CONTEXT].runtime.config.server.version_headers[0]
    headers = {
        "authorization": f"Bearer {key}",
        "content-type": "application/json",
        "user-agent": "model-gateway-playground",
        version: "2023-06-01",
    }
    raw, status, request_id, note = bytearray(), 0, "", ""
    try:
        async with (
            ClientSession(timeout=ClientTimeout(TIMEOUT)) as client,
            # Its certificate names another address, and nobody is between.
            client.post(url, data=orjson.dumps(body), headers=headers, ssl=False) as response,
        ):
            status, request_id = response.status, response.headers.get("x-request-id", "")
            async for chunk in response.content.iter_any():
                raw += chunk
                if len(raw) > MAX_REPLY:
                    note = f"Only the first {MAX_REPLY // 1024} KiB were read."
                    break
    except TimeoutError:
        note = f"The reply took longer than {TIMEOUT:.0f} s."
    except (ClientError, OSError):
        note = "The reply was cut."
    lines = await asyncio.to_thread(lambda: "".join(_texts(bytes(raw))))
    return Answer(status, request_id, raw[:MAX_REPLY].decode("utf-8", "replace"), lines, note)


def _texts(raw: bytes) -> Iterator[str]:
    """The texts of the events, in any of the formats."""
    for line in raw.splitlines():
        if not line.startswith(b"data:"):
            continue
        try:
            event = orjson.loads(line.removeprefix(b"data:"))
        except orjson.JSONDecodeError:  # [DONE], and the end of a reply that was cut
            continue
        if not isinstance(event, dict):
            continue
        for each in (event, *(event.get("choices") or ())):
            delta = each.get("delta") if isinstance(each, dict) else None
            if isinstance(delta, dict):
                yield str(delta.get("text") or delta.get("content") or "")
            elif event.get("type") == "response.output_text.delta":
                yield str(delta or "")


def _page(
    request: web.Request,
    texts: Texts,
    answer: Answer | None = None,
    errors: Texts | None = None,
) -> web.Response:
    return render(
        request,
        "playground.html",
        status=422 if errors else 200,
        texts=texts,
        errors=errors or {},
        models=model_ids(request.app[CONTEXT]),
        formats=tuple(Format),
        answer=answer,
    )
