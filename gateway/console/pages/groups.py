"""The pages of groups: all of them, one of them, and how one is made, changed and removed. They
must not know how a pattern is matched against a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from aiohttp import web

from gateway.admin.group_forms import GroupChange, GroupForm
from gateway.admin.refusals import DeskError
from gateway.console.allowances import Budget, budgets_of, counts_of, spent_by
from gateway.console.entries import Texts, Wrong, read, texts_of_group
from gateway.console.office import OFFICE, Office
from gateway.console.pages.token_forms import mistakes_of, terms_form, typed
from gateway.console.rendering import render, say, see
from gateway.quota.limits import HolderKind
from gateway.store.records import AgentMode, Group, TokenState

LIST: Final = "/console/groups"


@dataclass(frozen=True, slots=True)
class Line:
    """A group as the list has it: `models` are the ids that its keys reach now, `keys` counts
    those that are not revoked."""

    group: Group
    models: tuple[str, ...]
    keys: int
    budgets: tuple[Budget, ...]
    month: int


@dataclass(frozen=True, slots=True)
class Reached:
    """What one pattern of a group names: ids of the catalog, and those of them that some channel
    has."""

    pattern: str
    named: tuple[str, ...]
    served: frozenset[str]


def add(app: web.Application) -> None:
    router = app.router
    router.add_get("/groups", list_groups)
    # Beside the groups, not among them: a group may have any name.
    router.add_get("/groups-new", ask_new)
    router.add_post("/groups-new", add_group)
    router.add_get("/groups/{name}", show_group)
    router.add_get("/groups/{name}/edit", ask_changes)
    router.add_post("/groups/{name}/edit", change)
    router.add_get("/groups/{name}/remove", ask_removal)
    router.add_post("/groups/{name}/remove", remove)


async def list_groups(request: web.Request) -> web.Response:
    office = request.app[OFFICE]
    keys = await _keys(office)
    lines = [_line(office, group, keys.count(group.name)) for group in office.desk.groups()]
    return render(request, "groups.html", lines=lines)


async def show_group(request: web.Request) -> web.Response:
    office = request.app[OFFICE]
    group = _group_of(request)
    keys = await _keys(office)
    return render(
        request,
        "group.html",
        line=_line(office, group, keys.count(group.name)),
        spent=spent_by(office.runtime.quota, HolderKind.GROUP, group.name, office.now()),
        counts=list(counts_of(group.limits)),
        reached=[_reached(office, pattern) for pattern in group.patterns],
    )


async def ask_new(request: web.Request) -> web.Response:
    return _form(request, {"multiplier": "1", "user_agent_mode": AgentMode.ENFORCE})


async def add_group(request: web.Request) -> web.Response:
    office = request.app[OFFICE]
    texts = await typed(request)
    try:
        form = read(GroupForm, texts, {}, office.now())
        group = await office.desk.add_group(form.name, form.patterns, **form.terms())
    except (Wrong, DeskError) as error:
        return _form(request, texts, mistakes_of(error))
    say(request, f"Group {group.name} is made.")
    return see(_path(group))


async def ask_changes(request: web.Request) -> web.Response:
    group = _group_of(request)
    return _form(request, texts_of_group(group), group=group)


async def change(request: web.Request) -> web.Response:
    office = request.app[OFFICE]
    group = _group_of(request)
    texts = await typed(request)
    shown = texts_of_group(group)
    try:
        form = read(GroupChange, {**texts, "name": group.name}, shown, office.now())
        if form.model_fields_set:
            group = await office.desk.set_group(group.name, form.patterns, **form.terms())
    except (Wrong, DeskError) as error:
        return _form(request, texts, mistakes_of(error), group)
    words = f"Group {group.name} is changed: its keys go by it from the next request on."
    say(request, words if form.model_fields_set else "Nothing was changed.")
    return see(_path(group))


async def ask_removal(request: web.Request) -> web.Response:
    group = _group_of(request)
    tokens = await request.app[OFFICE].desk.keys()
    users = [token for token in tokens if token.group == group.name]
    return render(request, "group_remove.html", group=group, users=users)


async def remove(request: web.Request) -> web.Response:
    group = _group_of(request)
    await request.app[OFFICE].desk.remove_group(group.name)
    say(request, f"Group {group.name} is removed.")
    return see(LIST)


def _group_of(request: web.Request) -> Group:
    """The group that the path names. Raises UnknownGroup."""
    return request.app[OFFICE].desk.group(request.match_info["name"])


async def _keys(office: Office) -> list[str]:
    """The group of every key that is not revoked."""
    tokens = await office.desk.keys()
    return [token.group for token in tokens if token.state is not TokenState.REVOKED]


def _line(office: Office, group: Group, keys: int) -> Line:
    spent = spent_by(office.runtime.quota, HolderKind.GROUP, group.name, office.now())
    models = office.runtime.current.router.reach(group.patterns).models
    return Line(group, models, keys, budgets_of(group.limits, spent), spent.month)


def _reached(office: Office, pattern: str) -> Reached:
    current = office.runtime.current
    named = current.catalog.reachable([pattern])
    ordered = tuple(model.id for model in current.catalog if model.id in named)
    return Reached(pattern, ordered, current.router.reach([pattern]).members)


def _path(group: Group) -> str:
    return f"{LIST}/{quote(group.name)}"


def _form(
    request: web.Request,
    texts: Texts,
    mistakes: Texts | None = None,
    group: Group | None = None,
) -> web.Response:
    modes = tuple(AgentMode)
    return terms_form(request, "group_form.html", texts, mistakes, group=group, modes=modes)
