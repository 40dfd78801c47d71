"""`gateway group`: which models a key reaches. It must not know how a pattern is matched against
a request, only whether it names anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from gateway.cli.client import connect, part
from gateway.cli.options import Place, in_json, placed
from gateway.cli.screen import note, print_json, print_table, when


@click.group()
def group() -> None:
    """Name sets of models; each key belongs to one.

    A pattern is a model id, a glob over ids ('beta-*', in quotes) or family:NAME.
    """


def _patterns(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command `--models PATTERN...`: what follows the first pattern are patterns too."""
    command = click.argument("more", metavar="[PATTERN]...", nargs=-1)(command)
    return click.option(
        "--models", metavar="PATTERN", multiple=True, required=True, help="What it reaches."
    )(command)


@group.command()
@click.argument("name")
@_patterns
@in_json
@placed
def add(
    place: Place, name: str, models: tuple[str, ...], more: tuple[str, ...], as_json: bool
) -> None:
    """Make a group: gateway group add NAME --models 'beta-*' family:alpha"""
    patterns = models + more
    with connect(place.state_dir, may_create=True) as client:
        added = client.post("/groups", {"name": name, "patterns": patterns})
    _tell(place, added, as_json)


@group.command(name="set")
@click.argument("name")
@_patterns
@in_json
@placed
def set_(
    place: Place, name: str, models: tuple[str, ...], more: tuple[str, ...], as_json: bool
) -> None:
    """Replace what a group reaches; binding from the next request on."""
    patterns = models + more
    with connect(place.state_dir) as client:
        changed = client.put(f"/groups/{part(name)}", {"patterns": patterns})
    _tell(place, changed, as_json)


@group.command(name="list")
@in_json
@placed
def list_(place: Place, as_json: bool) -> None:
    """List all groups."""
    with connect(place.state_dir) as client:
        groups = client.get("/groups")["groups"]
    if as_json:
        print_json(groups)
        return
    print_table(
        ("Name", "Models", "Created"),
        ((each["name"], " ".join(each["patterns"]), when(each["created_at"])) for each in groups),
    )


@group.command()
@click.argument("name")
@placed
def remove(place: Place, name: str) -> None:
    """Remove a group that no key names, not even a revoked one."""
    with connect(place.state_dir) as client:
        client.delete(f"/groups/{part(name)}")
    note(f"Removed: group {name}.")


def _tell(place: Place, changed: dict[str, Any], as_json: bool) -> None:
    _warn(place, changed["patterns"])
    if as_json:
        print_json(changed)
    else:
        note(f"Group {changed['name']} reaches {' '.join(changed['patterns'])}.")


def _warn(place: Place, patterns: Sequence[str]) -> None:
    catalog = place.catalog()
    if catalog is None:
        return
    for pattern in patterns:
        if not catalog.reachable([pattern]):
            note(f"Warning: {pattern} names no model of {place.config}.")
