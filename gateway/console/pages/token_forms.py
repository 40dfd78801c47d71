"""The pages that create a key and edit its settings."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.key_forms import CreateKeyForm, UpdateKeyForm
from gateway.admin.errors import AdminError, ExpiryPassed, FormError, UnknownGroup
from gateway.console.context import CONTEXT
from gateway.console.form_input import Texts, error_messages, key_to_texts, parse_form
from gateway.console.pages.tokens import LIST_PATH, requested_token
from gateway.console.rendering import flash, redirect, render, stash_once
from gateway.console.usage_view import BUDGET_TITLES, DIMENSION_TITLES, LIMIT_TITLES
from gateway.store.records import Token

_INPUTS = {ExpiryPassed: "expires_at", UnknownGroup: "group"}
"""The input that an error is about."""

routes = web.RouteTableDef()


@routes.get("/tokens/new")
@requires(Permission.KEYS)
async def new_form(request: web.Request) -> web.Response:
    return _form(request, {"group": request.query.get("group", "default")})


@routes.post("/tokens/new")
@requires(Permission.KEYS, "key.create")
async def create(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    texts = await submitted_texts(request)
    try:
        form = parse_form(CreateKeyForm, texts, {}, context.now())
        token, key = await context.operations.create_key(form.name, form.group, **form.settings())
    except AdminError as error:
        return _form(request, texts, errors_by_input(error))
    stash_once(request, token.id, key)
    flash(request, f"Key {token.name} created.")
    return redirect(f"{LIST_PATH}/{token.id}")


@routes.get("/tokens/{id:tok_[^/]+}/edit")
@requires(Permission.KEYS)
async def edit_form(request: web.Request) -> web.Response:
    token = await requested_token(request)
    return _form(request, key_to_texts(token), token=token)


@routes.post("/tokens/{id:tok_[^/]+}/edit")
@requires(Permission.KEYS, "key.update")
async def save(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    token = await requested_token(request)
    texts = await submitted_texts(request)
    try:
        changes = parse_form(UpdateKeyForm, texts, key_to_texts(token), context.now()).changes()
        token = await context.operations.update_key(token.id, **changes)
    except AdminError as error:
        return _form(request, texts, errors_by_input(error), token)
    flash(request, f"Key {token.name} saved." if changes else "Nothing was changed.")
    return redirect(f"{LIST_PATH}/{token.id}")


async def submitted_texts(request: web.Request) -> Texts:
    fields = await request.post()
    return {name: value for name, value in fields.items() if isinstance(value, str)}


def errors_by_input(error: AdminError) -> Texts:
    """Messages by the name of the input, "" for the whole form."""
    if isinstance(error, FormError):
        return error_messages(error)
    return {_INPUTS.get(type(error), ""): str(error)}


def render_settings_form(
    request: web.Request, template: str, texts: Texts, errors: Texts | None, **values: Any
) -> web.Response:
    """A form with settings and limits: the texts in its inputs, and their errors."""
    return render(
        request,
        template,
        status=422 if errors else 200,
        texts=texts,
        errors=errors or {},
        limit_titles=LIMIT_TITLES,
        budget_titles=BUDGET_TITLES,
        **values,
    )


def _form(
    request: web.Request, texts: Texts, errors: Texts | None = None, token: Token | None = None
) -> web.Response:
    groups = [group.name for group in request.app[CONTEXT].operations.list_groups()]
    return render_settings_form(
        request,
        "token_form.html",
        texts,
        errors,
        token=token,
        groups=groups,
        dimension_titles=DIMENSION_TITLES,
    )
