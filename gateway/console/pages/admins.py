"""The pages of admins: the list with sessions and tokens, and the forms that change admins."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.access import CreateAdminForm, UpdateAdminForm
from gateway.admin.api.forms import validate
from gateway.admin.errors import AdminError, AdminExists, FormError, LastAdmin
from gateway.console.context import CONTEXT
from gateway.console.form_input import Texts, error_messages
from gateway.console.pages.token_forms import submitted_texts
from gateway.console.rendering import flash, pop_stash, redirect, render
from gateway.store.records import Admin, Role

LIST_PATH: Final = "/console/admins"
NEW_STASH: Final = "created"
"""The stash of a token that was created on the previous page."""

_INPUTS: Final[dict[type[AdminError], str]] = {AdminExists: "name", LastAdmin: "role"}

routes = web.RouteTableDef()


@routes.get("/admins")
@requires(Permission.ADMINISTER)
async def list_admins(request: web.Request) -> web.Response:
    access = request.app[CONTEXT].access
    tokens = [(token, access.tokens.is_expired(token)) for token in access.tokens.all()]
    return render(
        request,
        "admins.html",
        admins=access.admins.all(),
        sessions=access.sessions.active(),
        tokens=tokens,
        new_token=pop_stash(request, NEW_STASH),
    )


# Not below /admins/, where every name can be that of an admin.
@routes.get("/admins-new")
@requires(Permission.ADMINISTER)
async def new_form(request: web.Request) -> web.Response:
    return _form(request, {"role": Role.VIEWER})


@routes.post("/admins-new")
@requires(Permission.ADMINISTER, "admin.add")
async def create(request: web.Request) -> web.Response:
    texts = await submitted_texts(request)
    try:
        form = validate(CreateAdminForm, dict(texts))
        admin = await request.app[CONTEXT].access.admins.add(form.name, form.role, form.password)
    except AdminError as error:
        return _form(request, texts, _errors(error))
    flash(request, f"Admin {admin.name} added.")
    return redirect(LIST_PATH)


@routes.get("/admins/{name}")
@requires(Permission.ADMINISTER)
async def edit_form(request: web.Request) -> web.Response:
    admin = _requested_admin(request)
    return _form(request, {"role": admin.role}, admin=admin)


@routes.post("/admins/{name}")
@requires(Permission.ADMINISTER, "admin.set")
async def save(request: web.Request) -> web.Response:
    admin, texts = _requested_admin(request), await submitted_texts(request)
    try:
        form = validate(UpdateAdminForm, {name: text for name, text in texts.items() if text})
        await request.app[CONTEXT].access.admins.update(
            admin.name, role=form.role, password=form.password
        )
    except AdminError as error:
        return _form(request, texts, _errors(error), admin)
    flash(request, f"Admin {admin.name} saved.")
    return redirect(LIST_PATH)


@routes.get("/admins/{name}/remove")
@requires(Permission.ADMINISTER)
async def removal_form(request: web.Request) -> web.Response:
    admin = _requested_admin(request)
    return render(
        request,
        "confirm.html",
        title=f"Remove {admin.name}?",
        text="The sessions of this admin end. Rows of the audit log stay.",
        button="Remove",
        action=f"{LIST_PATH}/{quote(admin.name)}/remove",
        back=LIST_PATH,
        section="Admins",
    )


@routes.post("/admins/{name}/remove")
@requires(Permission.ADMINISTER, "admin.remove")
async def remove(request: web.Request) -> web.Response:
    admin = _requested_admin(request)
    await request.app[CONTEXT].access.admins.remove(admin.name)
    flash(request, f"Admin {admin.name} removed.")
    return redirect(LIST_PATH)


def _requested_admin(request: web.Request) -> Admin:
    """The admin of the path. Raises UnknownAdmin."""
    return request.app[CONTEXT].access.admins.get(request.match_info["name"])


def _errors(error: AdminError) -> Texts:
    if isinstance(error, FormError):
        return error_messages(error)
    return {_INPUTS.get(type(error), ""): str(error)}


def _form(
    request: web.Request, texts: Texts, errors: Texts | None = None, admin: Admin | None = None
) -> web.Response:
    return render(
        request,
        "admin_form.html",
        status=422 if errors else 200,
        texts=texts,
        errors=errors or {},
        edited=admin,
        roles=list(Role),
    )
