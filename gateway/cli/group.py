"""`gateway group`: sets of models for keys, with a price multiplier and limits."""

from __future__ import annotations

from functools import wraps
from typing import Any, Final

import click

from gateway.cli.budgets import get_spent, limit_columns, limit_summary
from gateway.cli.client import connect, quote_path
from gateway.cli.options import (
    Command,
    CommandContext,
    Decorator,
    subcommand,
    warn_unknown_models,
    warn_unpriced,
    with_group_options,
)
from gateway.cli.output import Column, Record, print_note, print_record
from gateway.store.records import OnSharedLoss, UserAgentMode


def _user_agents(group: Record) -> str:
    agents = group["user_agents"]
    if agents is None:
        return "all"
    observed = " (observed)" if group["user_agent_mode"] == UserAgentMode.OBSERVE else ""
    return ", ".join(agents) + observed


_COLUMNS: Final[dict[str, Column]] = {
    "Name": "name",
    "Models": "patterns",
    "Multiplier": "multiplier",
    "User agents": _user_agents,
    "Created": "created_at",
}
_LIMITS: Final[dict[str, Column]] = {"Limits": lambda group: limit_summary(group["limits"])}

_STORING: Final[dict[str, Column]] = {
    "Stored responses": lambda group: "yes" if group["store_replies"] else "none",
    "While shared limits are lost": "on_shared_loss",
}

_GROUP_NAME: Final = click.argument("group_name", metavar="NAME")


@click.group()
def group() -> None:
    """Manage groups of keys: their models, price multiplier and limits.

    A PATTERN is a model id, a glob for ids ('beta-*', in quotes) or family:NAME.
    """


def _with_patterns(*, required: bool) -> Decorator:
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


@subcommand(group, _GROUP_NAME, _with_patterns(required=True), with_group_options)
def add(context: CommandContext, group_name: str, settings: dict[str, Any]) -> None:
    """Create a group: gateway group add NAME --models 'beta-*' family:alpha"""
    with connect(context.state_dir, context.config, may_create=True) as client:
        added = client.post("/groups", {"name": group_name} | settings)
    warn_unpriced(context, settings)
    _report(context, added)


@subcommand(group, _GROUP_NAME, _with_patterns(required=False), with_group_options)
def set_(context: CommandContext, group_name: str, settings: dict[str, Any]) -> None:
    """Change a group, from the next request on.

    Omitted options change nothing; none clears a value.
    """
    with connect(context.state_dir, context.config) as client:
        changed = client.patch(f"/groups/{quote_path(group_name)}", settings)
    warn_unpriced(context, settings)
    _report(context, changed)


@subcommand(group)
def list_(context: CommandContext) -> None:
    """List all groups."""
    with connect(context.state_dir, context.config) as client:
        groups = client.get("/groups")["groups"]
    context.print_table(groups, _COLUMNS | _LIMITS)


@subcommand(group, _GROUP_NAME)
def show(context: CommandContext, group_name: str) -> None:
    """Show all details of a group, including spent budgets.

    In JSON `spent_micro` has the spent amounts.
    """
    with connect(context.state_dir, context.config) as client:
        group = client.get(f"/groups/{quote_path(group_name)}")
        group["spent_micro"] = get_spent(client, "group", group["name"])
    columns = _COLUMNS | _STORING | limit_columns(context.money())
    context.print(group, lambda _: print_record(group, columns))


@subcommand(group, _GROUP_NAME, json=False)
def remove(context: CommandContext, group_name: str) -> None:
    """Remove a group without keys; revoked keys count too."""
    with connect(context.state_dir, context.config) as client:
        client.delete(f"/groups/{quote_path(group_name)}")
    print_note(f"Removed group {group_name}.")


def _report(context: CommandContext, group: Record) -> None:
    warn_unknown_models(context, group["patterns"])
    context.print(group, lambda _: print_note(_summary(group)))


def _summary(group: Record) -> str:
    parts = [f"models {', '.join(group['patterns'])}"]
    if group["multiplier"] != "1":
        parts.append(f"price multiplier {group['multiplier']}x")
    if limits := limit_summary(group["limits"]):
        parts.append(limits)
    if group["user_agents"] is not None:
        parts.append(f"user agents {_user_agents(group)}")
    if not group["store_replies"]:
        parts.append("stores no replies")
    if group["on_shared_loss"] == OnSharedLoss.REFUSE:
        parts.append("refused while shared limits are lost")
    return f"Group {group['name']}: {'; '.join(parts)}."
