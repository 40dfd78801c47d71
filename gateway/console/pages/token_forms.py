"""The pages on which a key is made and its terms are changed. They must not know what a term does.

What is wrong is told beside the input, which keeps what was typed.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gateway.admin.errors import AdminError, ExpiryPassed, UnknownGroup
from gateway.admin.key_forms import CreateKeyForm, UpdateKeyForm
from gateway.console.context import CONTEXT
from gateway.console.form_input import FormInputError, Texts, key_to_texts, parse_form
from gateway.console.pages.tokens import LIST_PATH, requested_token
from gateway.console.rendering import flash, redirect, render, stash_once
from gateway.console.usage_view import BUDGET_TITLES, LIMIT_TITLES
from gateway.store.records import Token

_FIELDS = {ExpiryPassed: "expires_at", UnknownGroup: "group"}
"""Where what the desk refuses was typed."""


def add_routes(app: web.Application) -> None:
    router = app.router
    router.add_get("/tokens/new", new_form)
    router.add_post("/tokens/new", create)
    router.add_get("/tokens/{id:tok_[^/]+}/edit", edit_form)
    router.add_post("/tokens/{id:tok_[^/]+}/edit", save)


async def new_form(request: web.Request) -> web.Response:
    return _form(request, {"group": request.query.get("group", "default")})


async def create(request: web.Request) -> web.Response:
    office = request.app[CONTEXT]
    texts = await submitted_texts(request)
    try:
        form = parse_form(CreateKeyForm, texts, {}, office.now())
        token, key = await office.operations.create_key(form.name, form.group, **form.settings())
    except (FormInputError, AdminError) as error:
        return _form(request, texts, errors_by_input(error))
    stash_once(request, token.id, key)
    flash(request, f"Key {token.name} is made.")
    return redirect(f"{LIST_PATH}/{token.id}")


async def edit_form(request: web.Request) -> web.Response:
    token = await requested_token(request)
    return _form(request, key_to_texts(token), token=token)


async def save(request: web.Request) -> web.Response:
    office = request.app[CONTEXT]
    token = await requested_token(request)
    texts = await submitted_texts(request)
    try:
        changes = parse_form(UpdateKeyForm, texts, key_to_texts(token), office.now()).changes()
        if changes:
            token = await office.operations.update_key(token.id, **changes)
    except (FormInputError, AdminError) as error:
        return _form(request, texts, errors_by_input(error), token)
    flash(request, f"Key {token.name} is changed." if changes else "Nothing was changed.")
    return redirect(f"{LIST_PATH}/{token.id}")


async def submitted_texts(request: web.Request) -> Texts:
    """The texts of the form that was sent."""
    sent = await request.post()
    return {name: value for name, value in sent.items() if isinstance(value, str)}


def errors_by_input(error: FormInputError | AdminError) -> Texts:
    """By the names of the inputs; what concerns none of them has none."""
    if isinstance(error, FormInputError):
        return error.errors
    return {_FIELDS.get(type(error), ""): str(error)}


def render_settings_form(
    request: web.Request, template: str, texts: Texts, mistakes: Texts | None, **about: Any
) -> web.Response:
    """A page with a form of terms, with what was typed, and what is wrong with it, in it."""
    return render(
        request,
        template,
        status=422 if mistakes else 200,
        texts=texts,
        mistakes=mistakes or {},
        counts=LIMIT_TITLES,
        budgets=BUDGET_TITLES,
        **about,
    )


def _form(
    request: web.Request,
    texts: Texts,
    mistakes: Texts | None = None,
    token: Token | None = None,
) -> web.Response:
    groups = [group.name for group in request.app[CONTEXT].operations.list_groups()]
    return render_settings_form(
        request, "token_form.html", texts, mistakes, token=token, groups=groups
    )
