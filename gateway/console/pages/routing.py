"""The page of routing: which account would get a request, and why, as `gateway route` says it."""

from __future__ import annotations

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.key_forms import key_label
from gateway.admin.api.live import current_route
from gateway.admin.errors import FieldError, FormError
from gateway.console.context import CONTEXT, ConsoleContext
from gateway.console.form_input import Texts, error_messages
from gateway.console.rendering import render
from gateway.core.formats import Format
from gateway.store.records import Token, TokenState

_MAX_NAMESAKES = 20

routes = web.RouteTableDef()


@routes.get("/routing")
@requires(Permission.READ)
async def show_route(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    texts = {name: request.query.get(name, "").strip() for name in ("key", "model", "format")}
    preview, token, errors = None, None, {}
    try:
        client_format = format_of(texts)
        token = await find_key(context, texts["key"]) if texts["key"] else None
        if texts["model"]:
            group = None if token is None else token.group
            preview = current_route(context.runtime, group, texts["model"], client_format)
    except FormError as error:
        errors = error_messages(error)
    return render(
        request,
        "routing.html",
        status=422 if errors else 200,
        texts=texts,
        errors=errors,
        models=model_ids(context),
        formats=tuple(Format),
        preview=preview,
        token=token,
        refusal=None if token is None else context.operations.refusal(token),
    )


async def find_key(context: ConsoleContext, reference: str) -> Token:
    """The key of an id, or the only active one of a name. Raises FormError."""
    found = await context.operations.list_keys(named=reference, limit=_MAX_NAMESAKES)
    active = [token for token in found if token.state is TokenState.ACTIVE]
    if len(active) == 1:
        return active[0]
    names = ", ".join(map(key_label, active))
    text = f"Several keys have this name: {names}." if active else "There is no such active key."
    raise FormError(FieldError(("key",), text))


def format_of(texts: Texts) -> Format:
    """Raises FormError."""
    try:
        return Format(texts.get("format") or Format.CHAT)
    except ValueError:
        raise FormError(FieldError(("format",), "There is no such format.")) from None


def model_ids(context: ConsoleContext) -> list[str]:
    return [model.id for model in context.runtime.current.catalog]
