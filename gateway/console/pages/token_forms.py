"""The pages on which a key is made and its terms are changed. They must not know what a term does.

What is wrong is told beside the input, which keeps what was typed.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gateway.admin.key_forms import ChangeForm, MintForm
from gateway.admin.refusals import DeskError, ExpiryPassed, UnknownGroup
from gateway.console.allowances import BUDGETS, COUNTS
from gateway.console.entries import Texts, Wrong, read, texts_of_token
from gateway.console.office import OFFICE
from gateway.console.pages.tokens import LIST, token_of
from gateway.console.rendering import hand, render, say, see
from gateway.store.records import Token

_FIELDS = {ExpiryPassed: "expires_at", UnknownGroup: "group"}
"""Where what the desk refuses was typed."""


def add(app: web.Application) -> None:
    router = app.router
    router.add_get("/tokens/new", ask_new)
    router.add_post("/tokens/new", mint)
    router.add_get("/tokens/{id:tok_[^/]+}/edit", ask_changes)
    router.add_post("/tokens/{id:tok_[^/]+}/edit", change)


async def ask_new(request: web.Request) -> web.Response:
    return _form(request, {"group": request.query.get("group", "default")})


async def mint(request: web.Request) -> web.Response:
    office = request.app[OFFICE]
    texts = await typed(request)
    try:
        form = read(MintForm, texts, {}, office.now())
        token, key = await office.desk.mint_key(form.name, form.group, **form.terms())
    except (Wrong, DeskError) as error:
        return _form(request, texts, mistakes_of(error))
    hand(request, token.id, key)
    say(request, f"Key {token.name} is made.")
    return see(f"{LIST}/{token.id}")


async def ask_changes(request: web.Request) -> web.Response:
    token = await token_of(request)
    return _form(request, texts_of_token(token), token=token)


async def change(request: web.Request) -> web.Response:
    office = request.app[OFFICE]
    token = await token_of(request)
    texts = await typed(request)
    try:
        changes = read(ChangeForm, texts, texts_of_token(token), office.now()).changes()
        if changes:
            token = await office.desk.change_key(token.id, **changes)
    except (Wrong, DeskError) as error:
        return _form(request, texts, mistakes_of(error), token)
    say(request, f"Key {token.name} is changed." if changes else "Nothing was changed.")
    return see(f"{LIST}/{token.id}")


async def typed(request: web.Request) -> Texts:
    """The texts of the form that was sent."""
    sent = await request.post()
    return {name: value for name, value in sent.items() if isinstance(value, str)}


def mistakes_of(error: Wrong | DeskError) -> Texts:
    """By the names of the inputs; what concerns none of them has none."""
    if isinstance(error, Wrong):
        return error.mistakes
    return {_FIELDS.get(type(error), ""): str(error)}


def terms_form(
    request: web.Request, template: str, texts: Texts, mistakes: Texts | None, **about: Any
) -> web.Response:
    """A page with a form of terms, with what was typed, and what is wrong with it, in it."""
    return render(
        request,
        template,
        status=422 if mistakes else 200,
        texts=texts,
        mistakes=mistakes or {},
        counts=COUNTS,
        budgets=BUDGETS,
        **about,
    )


def _form(
    request: web.Request,
    texts: Texts,
    mistakes: Texts | None = None,
    token: Token | None = None,
) -> web.Response:
    groups = [group.name for group in request.app[OFFICE].desk.groups()]
    return terms_form(request, "token_form.html", texts, mistakes, token=token, groups=groups)
