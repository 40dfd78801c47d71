"""The pages that create and revoke tokens of the admin API; the page of admins lists them."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.access import CreateTokenForm
from gateway.admin.api.forms import validate
from gateway.admin.errors import AdminError, ExpiryPassed, FieldError, FormError, TokenNameTaken
from gateway.admin.text_fields import parse_field
from gateway.console.context import CONTEXT
from gateway.console.form_input import Texts, error_messages
from gateway.console.pages.admins import LIST_PATH, NEW_STASH
from gateway.console.pages.token_forms import submitted_texts
from gateway.console.rendering import flash, redirect, render, stash_once
from gateway.store.records import Scope

_INPUTS = {ExpiryPassed: "expires_at", TokenNameTaken: "name"}

routes = web.RouteTableDef()


@routes.get("/admin-tokens/new")
@requires(Permission.ADMINISTER)
async def new_form(request: web.Request) -> web.Response:
    return _form(request, {"scope": Scope.READ, "expires_at": "90d"})


@routes.post("/admin-tokens/new")
@requires(Permission.ADMINISTER, "admin_token.create")
async def create(request: web.Request) -> web.Response:
    context, texts = request.app[CONTEXT], await submitted_texts(request)
    try:
        form = validate(CreateTokenForm, _fields(texts, context.now()))
        token, secret = await context.access.tokens.create(form.name, form.scope, form.expires_at)
    except FormError as error:
        return _form(request, texts, error_messages(error))
    except AdminError as error:
        return _form(request, texts, {_INPUTS.get(type(error), ""): str(error)})
    stash_once(request, NEW_STASH, secret)
    flash(request, f"Token {token.name} created.")
    return redirect(LIST_PATH)


@routes.get("/admin-tokens/{id}/revoke")
@requires(Permission.ADMINISTER)
async def revocation_form(request: web.Request) -> web.Response:
    token = request.app[CONTEXT].access.tokens.get(request.match_info["id"])
    return render(
        request,
        "confirm.html",
        title=f"Revoke {token.name}?",
        text=f"{token.display} is rejected from now on.",
        button="Revoke",
        action=f"/console/admin-tokens/{token.id}/revoke",
        back=LIST_PATH,
        section="Admins",
    )


@routes.post("/admin-tokens/{id}/revoke")
@requires(Permission.ADMINISTER, "admin_token.revoke")
async def revoke(request: web.Request) -> web.Response:
    token = await request.app[CONTEXT].access.tokens.revoke(request.match_info["id"])
    flash(request, f"Token {token.name} revoked.")
    return redirect(LIST_PATH)


def _fields(texts: Texts, now: int) -> dict[str, Any]:
    """Raises FormError."""
    try:
        expires_at = parse_field("expires_at", texts.get("expires_at", ""), now)
    except ValueError as error:
        raise FormError(FieldError(("expires_at",), str(error))) from None
    return {**texts, "expires_at": expires_at}


def _form(request: web.Request, texts: Texts, errors: Texts | None = None) -> web.Response:
    return render(
        request,
        "admin_token_form.html",
        status=422 if errors else 200,
        texts=texts,
        errors=errors or {},
        scopes=list(Scope),
    )
