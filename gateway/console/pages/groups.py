"""The pages of groups: all of them, one of them, and how one is made, changed and removed. They
must not know how a pattern is matched against a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from aiohttp import web

from gateway.admin.errors import AdminError
from gateway.admin.key_forms import CreateGroupForm, UpdateGroupForm
from gateway.console.context import CONTEXT, ConsoleContext
from gateway.console.form_input import FormInputError, Texts, group_to_texts, parse_form
from gateway.console.pages.token_forms import errors_by_input, render_settings_form, submitted_texts
from gateway.console.rendering import flash, redirect, render
from gateway.console.usage_view import BudgetRow, budget_rows, limit_rows, spend_of
from gateway.quota.limits import HolderKind
from gateway.store.records import Group, TokenState, UserAgentMode

LIST_PATH: Final = "/console/groups"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group as the list has it: `models` are the ids that its keys reach now, `keys` counts
    those that are not revoked."""

    group: Group
    models: tuple[str, ...]
    keys: int
    budgets: tuple[BudgetRow, ...]
    month_spend: int


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """What one pattern of a group names: ids of the catalog, and those of them that some channel
    has."""

    pattern: str
    models: tuple[str, ...]
    served: frozenset[str]


def add_routes(app: web.Application) -> None:
    router = app.router
    router.add_get("/groups", list_groups)
    # Beside the groups, not among them: a group may have any name.
    router.add_get("/groups-new", new_form)
    router.add_post("/groups-new", add_group)
    router.add_get("/groups/{name}", show_group)
    router.add_get("/groups/{name}/edit", edit_form)
    router.add_post("/groups/{name}/edit", save)
    router.add_get("/groups/{name}/remove", removal_form)
    router.add_post("/groups/{name}/remove", remove)


async def list_groups(request: web.Request) -> web.Response:
    office = request.app[CONTEXT]
    keys = await _keys(office)
    lines = [
        _line(office, group, keys.count(group.name)) for group in office.operations.list_groups()
    ]
    return render(request, "groups.html", lines=lines)


async def show_group(request: web.Request) -> web.Response:
    office = request.app[CONTEXT]
    group = _group_of(request)
    keys = await _keys(office)
    return render(
        request,
        "group.html",
        line=_line(office, group, keys.count(group.name)),
        spent=spend_of(office.runtime.quota, HolderKind.GROUP, group.name, office.now()),
        counts=list(limit_rows(group.limits)),
        reached=[_reached(office, pattern) for pattern in group.patterns],
    )


async def new_form(request: web.Request) -> web.Response:
    return _form(request, {"multiplier": "1", "user_agent_mode": UserAgentMode.ENFORCE})


async def add_group(request: web.Request) -> web.Response:
    office = request.app[CONTEXT]
    texts = await submitted_texts(request)
    try:
        form = parse_form(CreateGroupForm, texts, {}, office.now())
        group = await office.operations.create_group(form.name, form.patterns, **form.settings())
    except (FormInputError, AdminError) as error:
        return _form(request, texts, errors_by_input(error))
    flash(request, f"Group {group.name} is made.")
    return redirect(_path(group))


async def edit_form(request: web.Request) -> web.Response:
    group = _group_of(request)
    return _form(request, group_to_texts(group), group=group)


async def save(request: web.Request) -> web.Response:
    office = request.app[CONTEXT]
    group = _group_of(request)
    texts = await submitted_texts(request)
    shown = group_to_texts(group)
    try:
        form = parse_form(UpdateGroupForm, {**texts, "name": group.name}, shown, office.now())
        if form.model_fields_set:
            group = await office.operations.update_group(
                group.name, form.patterns, **form.settings()
            )
    except (FormInputError, AdminError) as error:
        return _form(request, texts, errors_by_input(error), group)
    words = f"Group {group.name} is changed: its keys go by it from the next request on."
    flash(request, words if form.model_fields_set else "Nothing was changed.")
    return redirect(_path(group))


async def removal_form(request: web.Request) -> web.Response:
    group = _group_of(request)
    tokens = await request.app[CONTEXT].operations.list_keys()
    users = [token for token in tokens if token.group == group.name]
    return render(request, "group_remove.html", group=group, users=users)


async def remove(request: web.Request) -> web.Response:
    group = _group_of(request)
    await request.app[CONTEXT].operations.delete_group(group.name)
    flash(request, f"Group {group.name} is removed.")
    return redirect(LIST_PATH)


def _group_of(request: web.Request) -> Group:
    """The group that the path names. Raises UnknownGroup."""
    return request.app[CONTEXT].operations.get_group(request.match_info["name"])


async def _keys(office: ConsoleContext) -> list[str]:
    """The group of every key that is not revoked."""
    tokens = await office.operations.list_keys()
    return [token.group for token in tokens if token.state is not TokenState.REVOKED]


def _line(office: ConsoleContext, group: Group, keys: int) -> GroupRow:
    spent = spend_of(office.runtime.quota, HolderKind.GROUP, group.name, office.now())
    models = office.runtime.current.router.access_for(group.patterns).models
    return GroupRow(group, models, keys, budget_rows(group.limits, spent), spent.month)


def _reached(office: ConsoleContext, pattern: str) -> PatternMatch:
    current = office.runtime.current
    named = current.catalog.matching_ids([pattern])
    ordered = tuple(model.id for model in current.catalog if model.id in named)
    return PatternMatch(pattern, ordered, current.router.access_for([pattern]).model_ids)


def _path(group: Group) -> str:
    return f"{LIST_PATH}/{quote(group.name)}"


def _form(
    request: web.Request,
    texts: Texts,
    mistakes: Texts | None = None,
    group: Group | None = None,
) -> web.Response:
    modes = tuple(UserAgentMode)
    return render_settings_form(
        request, "group_form.html", texts, mistakes, group=group, modes=modes
    )
