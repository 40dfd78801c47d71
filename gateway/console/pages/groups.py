"""The pages of groups: the list, one group, and the forms that create, edit and remove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.key_forms import CreateGroupForm, UpdateGroupForm
from gateway.admin.errors import AdminError
from gateway.admin.text_fields import YES
from gateway.admission.budgets import holder_of
from gateway.console.context import CONTEXT, ConsoleContext
from gateway.console.form_input import Texts, group_to_texts, parse_form
from gateway.console.pages.token_forms import errors_by_input, render_settings_form, submitted_texts
from gateway.console.rendering import flash, redirect, render
from gateway.console.usage_view import BudgetRow, Spend, budget_rows, limit_rows, spend_of
from gateway.quota.limits import HolderKind
from gateway.store.records import Group, OnSharedLoss, UserAgentMode
from gateway.store.tokens import count_by_group

LIST_PATH: Final = "/console/groups"

_MAX_LISTED_KEYS: Final = 20


@dataclass(frozen=True, slots=True)
class GroupRow:
    """`models` are the ids that its keys can use now; `key_count` is without revoked keys."""

    group: Group
    models: tuple[str, ...]
    key_count: int
    spent: Spend
    budgets: tuple[BudgetRow, ...]


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """The models of the catalog that a pattern matches, and those of them that a channel has."""

    pattern: str
    models: tuple[str, ...]
    served: frozenset[str]


routes = web.RouteTableDef()


@routes.get("/groups")
@requires(Permission.READ)
async def list_groups(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    counts = await count_by_group(context.operations.database)
    rows = [_group_row(context, group, counts) for group in context.operations.list_groups()]
    return render(request, "groups.html", rows=rows)


@routes.get("/groups/{name}")
@requires(Permission.READ)
async def show_group(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    group = _requested_group(request)
    return render(
        request,
        "group.html",
        row=_group_row(context, group, await count_by_group(context.operations.database)),
        limits=list(limit_rows(group.limits)),
        stores_replies=context.runtime.config.responses.store,
        has_shared=context.runtime.config.shared is not None,
        patterns=[_match_pattern(context, pattern) for pattern in group.patterns],
    )


# Not below /groups/, where every name can be that of a group.
@routes.get("/groups-new")
@requires(Permission.KEYS)
async def new_form(request: web.Request) -> web.Response:
    defaults = {"user_agent_mode": UserAgentMode.ENFORCE, "store_replies": YES}
    defaults["on_shared_loss"] = OnSharedLoss.SHARE
    return _form(request, {"multiplier": "1"} | defaults)


@routes.post("/groups-new")
@requires(Permission.KEYS, "group.create")
async def create(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    texts = await submitted_texts(request)
    try:
        form = parse_form(CreateGroupForm, texts, {"store_replies": YES}, context.now())
        group = await context.operations.create_group(form.name, form.patterns, **form.settings())
    except AdminError as error:
        return _form(request, texts, errors_by_input(error))
    flash(request, f"Group {group.name} created.")
    return redirect(_path(group))


@routes.get("/groups/{name}/edit")
@requires(Permission.KEYS)
async def edit_form(request: web.Request) -> web.Response:
    group = _requested_group(request)
    return _form(request, group_to_texts(group), group=group)


@routes.post("/groups/{name}/edit")
@requires(Permission.KEYS, "group.update")
async def save(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    group = _requested_group(request)
    texts = await submitted_texts(request)
    displayed = group_to_texts(group)
    try:
        given = {"on_shared_loss": group.on_shared_loss, **texts, "name": group.name}
        form = parse_form(UpdateGroupForm, given, displayed, context.now())
        group = await context.operations.update_group(group.name, form.patterns, **form.settings())
    except AdminError as error:
        return _form(request, texts, errors_by_input(error), group)
    message = f"Group {group.name} saved: the changes apply from the next request."
    flash(request, message if form.model_fields_set else "Nothing was changed.")
    return redirect(_path(group))


@routes.get("/groups/{name}/remove")
@requires(Permission.KEYS)
async def removal_form(request: web.Request) -> web.Response:
    group = _requested_group(request)
    operations = request.app[CONTEXT].operations
    tokens, count = await operations.keys_of_group(group.name, _MAX_LISTED_KEYS)
    return render(request, "group_remove.html", group=group, tokens=tokens, count=count)


@routes.post("/groups/{name}/remove")
@requires(Permission.KEYS, "group.remove")
async def remove(request: web.Request) -> web.Response:
    group = _requested_group(request)
    await request.app[CONTEXT].operations.delete_group(group.name)
    flash(request, f"Group {group.name} removed.")
    return redirect(LIST_PATH)


def _requested_group(request: web.Request) -> Group:
    """The group of the path. Raises UnknownGroup."""
    return request.app[CONTEXT].operations.get_group(request.match_info["name"])


def _group_row(context: ConsoleContext, group: Group, counts: Mapping[str, int]) -> GroupRow:
    quota, holder = context.runtime.quota, holder_of(HolderKind.GROUP, group)
    spent = spend_of(quota, HolderKind.GROUP, group.name, context.now())
    models = context.runtime.current.router.access_for(group.patterns).models
    budgets = budget_rows(quota, holder, context.now())
    return GroupRow(group, models, counts.get(group.name, 0), spent, budgets)


def _match_pattern(context: ConsoleContext, pattern: str) -> PatternMatch:
    current = context.runtime.current
    ids = current.catalog.matching_ids([pattern])
    models = tuple(model.id for model in current.catalog if model.id in ids)
    return PatternMatch(pattern, models, current.router.access_for([pattern]).model_ids)


def _path(group: Group) -> str:
    return f"{LIST_PATH}/{quote(group.name)}"


def _form(
    request: web.Request, texts: Texts, errors: Texts | None = None, group: Group | None = None
) -> web.Response:
    modes, losses = tuple(UserAgentMode), tuple(OnSharedLoss)
    return render_settings_form(
        request, "group_form.html", texts, errors, group=group, modes=modes, losses=losses
    )
