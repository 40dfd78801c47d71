"""`gateway group`: sets of models for keys, with a price multiplier and limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final

import click

from gateway.cli.budgets import get_spent, limit_fields, limit_summary
from gateway.cli.client import connect, quote_path
from gateway.cli.key_options import warn_unknown_models, with_group_options
from gateway.cli.options import Command, CommandContext, with_context, with_location
from gateway.cli.output import format_time, print_fields, print_note, print_table
from gateway.store.records import UserAgentMode

GroupRecord = dict[str, Any]
"""A group as the admin API returns it."""

_GROUP_NAME: Final = click.argument("group_name", metavar="NAME")


@click.group()
def group() -> None:
    """Manage groups of keys: their models, price multiplier and limits.

    A PATTERN is a model id, a glob for ids ('beta-*', in quotes) or family:NAME.
    """


def _with_patterns(*, required: bool) -> Callable[[Command], Command]:
    """Adds `--models PATTERN...`; all arguments after it are patterns too."""

    def decorate(command: Command) -> Command:
        @click.option(
            "--models",
            "patterns",
            metavar="PATTERN",
            multiple=True,
            required=required,
            help="The models of the group; repeatable.",
        )
        @click.argument("more", metavar="[PATTERN]...", nargs=-1)
        @wraps(command)
        def run(patterns: tuple[str, ...], more: tuple[str, ...], **arguments: Any) -> None:
            if more and not patterns:
                raise click.UsageError(f"Unexpected argument {more[0]}: patterns follow --models.")
            command(patterns=patterns + more, **arguments)

        return run

    return decorate


@group.command()
@_GROUP_NAME
@_with_patterns(required=True)
@with_group_options
@with_context
def add(context: CommandContext, group_name: str, settings: dict[str, Any]) -> None:
    """Create a group: gateway group add NAME --models 'beta-*' family:alpha"""
    with connect(context.state_dir, may_create=True) as client:
        added = client.post("/groups", {"name": group_name} | settings)
    _report(context, added)


@group.command(name="set")
@_GROUP_NAME
@_with_patterns(required=False)
@with_group_options
@with_context
def set_(context: CommandContext, group_name: str, settings: dict[str, Any]) -> None:
    """Change a group, from the next request on.

    Omitted options change nothing; none clears a value.
    """
    with connect(context.state_dir) as client:
        changed = client.patch(f"/groups/{quote_path(group_name)}", settings)
    _report(context, changed)


@group.command(name="list")
@with_context
def list_(context: CommandContext) -> None:
    """List all groups."""
    with connect(context.state_dir) as client:
        groups = client.get("/groups")["groups"]
    context.print(groups, _print_groups)


@group.command()
@_GROUP_NAME
@with_context
def show(context: CommandContext, group_name: str) -> None:
    """Show all details of a group, including spent budgets.

    In JSON `spent_micro` has the spent amounts.
    """
    with connect(context.state_dir) as client:
        found = client.get(f"/groups/{quote_path(group_name)}")
        found["spent_micro"] = get_spent(client, group=found["name"])
    context.print(found, partial(_print_details, context))


@group.command()
@_GROUP_NAME
@with_location
def remove(context: CommandContext, group_name: str) -> None:
    """Remove a group without keys; revoked keys count too."""
    with connect(context.state_dir) as client:
        client.delete(f"/groups/{quote_path(group_name)}")
    print_note(f"Removed group {group_name}.")


def _print_groups(groups: list[GroupRecord]) -> None:
    print_table(
        ("Name", "Models", "Multiplier", "Limits", "User agents", "Created"),
        (
            (
                group["name"],
                " ".join(group["patterns"]),
                group["multiplier"],
                limit_summary(group["limits"]),
                _user_agents(group),
                format_time(group["created_at"]),
            )
            for group in groups
        ),
    )


def _print_details(context: CommandContext, group: GroupRecord) -> None:
    print_fields(
        (
            ("Name", group["name"]),
            ("Models", "  ".join(group["patterns"])),
            ("Multiplier", group["multiplier"]),
            ("User agents", _user_agents(group)),
            *limit_fields(group["limits"], group["spent_micro"], context.money()),
            ("Created", format_time(group["created_at"])),
        )
    )


def _report(context: CommandContext, group: GroupRecord) -> None:
    warn_unknown_models(context, group["patterns"])
    context.print(group, lambda _: print_note(_summary(group)))


def _summary(group: GroupRecord) -> str:
    parts = [f"models {' '.join(group['patterns'])}"]
    if group["multiplier"] != "1":
        parts.append(f"price multiplier {group['multiplier']}x")
    if limits := limit_summary(group["limits"]):
        parts.append(f"limits {limits}")
    if group["user_agents"] is not None:
        parts.append(f"user agents {_user_agents(group)}")
    return f"Group {group['name']}: {'; '.join(parts)}."


def _user_agents(group: GroupRecord) -> str:
    agents = group["user_agents"]
    if agents is None:
        return "all"
    observed = " (observed)" if group["user_agent_mode"] == UserAgentMode.OBSERVE else ""
    return "  ".join(agents) + observed
