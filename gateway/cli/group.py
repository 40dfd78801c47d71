"""`gateway group`: which models a key reaches, and how much its group may use. It must not know
how a pattern is matched against a request."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from gateway.cli.budgets import limit_fields, limit_words, spent
from gateway.cli.client import connect, quote_path
from gateway.cli.key_options import (
    Command,
    given_options,
    warn_unknown_models,
    with_limits,
    with_user_agents,
)
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.output import format_time, print_fields, print_json, print_note, print_table
from gateway.store.records import UserAgentMode

Fields = dict[str, Any]


@click.group()
def group() -> None:
    """Name sets of models and what may be used of them; each key belongs to one.

    A pattern is a model id, a glob over ids ('beta-*', in quotes) or family:NAME. Options that
    are left out change nothing, `none` clears.
    """


_TERMS = ("multiplier", "user_agents", "user_agent_mode")


def _with_models(*, required: bool) -> Callable[[Command], Command]:
    """Gives a command `--models PATTERN...`: what follows the first pattern are patterns too."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def modelled(models: tuple[str, ...], more: tuple[str, ...], **options: Any) -> None:
            if more and not models:
                raise click.UsageError(f"What does {more[0]} mean? Patterns stand after --models.")
            command(patterns=models + more, **options)

        decorated = click.argument("more", metavar="[PATTERN]...", nargs=-1)(modelled)
        return click.option(
            "--models", metavar="PATTERN", multiple=True, required=required, help="What it reaches."
        )(decorated)

    return decorate


def _with_terms(command: Command) -> Command:
    """Gives a command what may be said of a group but its name and models; it takes `terms`, which
    has the `patterns` too."""

    @wraps(command)
    def termed(patterns: tuple[str, ...], limits: Fields, **options: Any) -> None:
        terms = given_options({"patterns": patterns} | {name: options.pop(name) for name in _TERMS})
        command(terms=terms | ({"limits": limits} if limits else {}), **options)

    mode = click.option(
        "--user-agent-mode",
        type=click.Choice([str(each) for each in UserAgentMode]),
        help="Whether clients that --user-agents does not name are refused, or only noted.",
    )
    multiplier = click.option(
        "--multiplier", metavar="X", help="What its usage is multiplied by, such as 0.5."
    )
    return multiplier(with_limits(with_user_agents(mode(termed))))


@group.command()
@click.argument("name")
@_with_models(required=True)
@_with_terms
@with_json
@with_location
def add(place: Location, name: str, terms: Fields, as_json: bool) -> None:
    """Make a group: gateway group add NAME --models 'beta-*' family:alpha"""
    with connect(place.state_dir, may_create=True) as client:
        added = client.post("/groups", {"name": name} | terms)
    _tell(place, added, as_json)


@group.command(name="set")
@click.argument("name")
@_with_models(required=False)
@_with_terms
@with_json
@with_location
def set_(place: Location, name: str, terms: Fields, as_json: bool) -> None:
    """Change a group; binding from the next request on.

    Options that are left out change nothing, none clears.
    """
    if not terms:
        raise click.UsageError("Nothing to change: name what is to be another, such as --rpm 600.")
    with connect(place.state_dir) as client:
        changed = client.patch(f"/groups/{quote_path(name)}", terms)
    _tell(place, changed, as_json)


@group.command(name="list")
@with_json
@with_location
def list_(place: Location, as_json: bool) -> None:
    """List all groups."""
    with connect(place.state_dir) as client:
        groups = client.get("/groups")["groups"]
    if as_json:
        print_json(groups)
        return
    print_table(
        ("Name", "Models", "Multiplier", "Limits", "User agents", "Created"),
        (
            (
                each["name"],
                " ".join(each["patterns"]),
                each["multiplier"],
                limit_words(each["limits"]),
                _agents(each),
                format_time(each["created_at"]),
            )
            for each in groups
        ),
    )


@group.command()
@click.argument("name")
@with_json
@with_location
def show(place: Location, name: str, as_json: bool) -> None:
    """Show all that is kept of a group, its limits, and what of its budgets is spent.

    In JSON `spent_micro` has what was spent of each budget.
    """
    with connect(place.state_dir) as client:
        found = client.get(f"/groups/{quote_path(name)}")
        found["spent_micro"] = spent(client, group=found["name"])
    if as_json:
        print_json(found)
        return
    print_fields(
        (
            ("Name", found["name"]),
            ("Models", "  ".join(found["patterns"])),
            ("Multiplier", found["multiplier"]),
            ("User agents", _agents(found)),
            *limit_fields(found["limits"], found["spent_micro"], place.money()),
            ("Created", format_time(found["created_at"])),
        )
    )


@group.command()
@click.argument("name")
@with_location
def remove(place: Location, name: str) -> None:
    """Remove a group that no key names, not even a revoked one."""
    with connect(place.state_dir) as client:
        client.delete(f"/groups/{quote_path(name)}")
    print_note(f"Removed: group {name}.")


def _tell(place: Location, changed: Fields, as_json: bool) -> None:
    warn_unknown_models(place, changed["patterns"])
    if as_json:
        print_json(changed)
        return
    limits = limit_words(changed["limits"])
    told = [f"reaches {' '.join(changed['patterns'])}"]
    told += [f"counts {changed['multiplier']}-fold"] if changed["multiplier"] != "1" else []
    told += [f"may use {limits}"] if limits else []
    told += _agents_told(changed)
    print_note(f"Group {changed['name']} {', '.join(told)}.")


def _agents_told(group: Fields) -> list[str]:
    if group["user_agents"] is None:
        return []
    if group["user_agent_mode"] == UserAgentMode.OBSERVE:
        what = "notes the use by other clients than"
    else:
        what = "refuses other clients than"
    return [f"{what} {', '.join(map(repr, group['user_agents']))}"]


def _agents(group: Fields) -> str:
    agents = group["user_agents"]
    if agents is None:
        return "all"
    watched = " (observed)" if group["user_agent_mode"] == UserAgentMode.OBSERVE else ""
    return "  ".join(agents) + watched
