"""Options that say what a key or a group may use. It must not know which command has them.

What an option names is changed; `none` clears it; an option that is left out changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Final

import click

from gateway.admin.text_fields import short_name
from gateway.cli.client import CommandRefused
from gateway.cli.option_types import CLEARED, TEXT, field_type
from gateway.cli.options import Location
from gateway.cli.output import print_note
from gateway.core.limits import LIMIT_NAMES

Command = Callable[..., None]

_LIMITS: Final = {
    "requests_per_minute": ("N", "Requests in any minute."),
    "tokens_per_minute": ("N", "Input and output tokens in any minute."),
    "concurrent": ("N", "Requests at any moment."),
    "budget": ("UNITS", "Units in all, such as 5M."),
    "budget_day": ("UNITS", "Units in a day of UTC."),
    "budget_month": ("UNITS", "Units in a month of UTC."),
}
_PARAMETERS: Final = {"patterns": "models"}
"""Field of the desk → the parameter that fills it, where their names differ."""
_KEY_TERMS: Final = ("expires_at", "note", "models", "addresses", "user_agents", "probe")


def with_limits(command: Command) -> Command:
    """Gives a command an option for each limit; it takes `limits`, those that were named. What the
    desk finds wrong is told by the names of its options."""

    @wraps(command)
    def limited(**options: Any) -> None:
        limits = {name: options.pop(name) for name in LIMIT_NAMES}
        try:
            command(limits=given_options(limits), **options)
        except CommandRefused as refused:
            raise _as_typed(refused) from None

    decorated: Command = limited
    for name, (metavar, help) in reversed(_LIMITS.items()):
        flag = f"--{short_name(name).replace('_', '-')}"
        option = click.option(flag, name, metavar=metavar, type=field_type(name), help=help)
        decorated = option(decorated)
    return decorated


def with_user_agents(command: Command) -> Command:
    """Gives a command `--user-agents`."""
    return click.option(
        "--user-agents",
        metavar="P",
        type=TEXT,
        multiple=True,
        help="Clients that may call: a beginning of their user agent, or re: and a regular"
        " expression; repeatable, none: all.",
    )(command)


def with_key_options(command: Command) -> Command:
    """Gives a command all that may be said of a key but its name and group; it takes `terms`."""

    @wraps(command)
    def termed(limits: dict[str, Any], **options: Any) -> None:
        terms = given_options({name: options.pop(name) for name in _KEY_TERMS})
        command(terms=terms | ({"limits": limits} if limits else {}), **options)

    decorated = with_user_agents(with_limits(termed))
    for flag, metavar, help in (
        ("--addresses", "CIDR", "Networks it may come from; repeatable, none: all."),
        ("--models", "PATTERN", "Models it may use; repeatable, none: all of its group."),
    ):
        decorated = click.option(flag, metavar=metavar, type=TEXT, multiple=True, help=help)(
            decorated
        )
    decorated = click.option("--note", metavar="TEXT", type=TEXT, help="A remark for people.")(
        decorated
    )
    decorated = click.option(
        "--expires",
        "expires_at",
        metavar="30d|DATE|never",
        type=field_type("expires_at"),
        help="When it ends: after a duration, or as that day of UTC begins.",
    )(decorated)
    return click.option(
        "--probe/--no-probe",
        default=None,
        help="Only models, counts of tokens and health, at no cost.",
    )(decorated)


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """What was named, as the desk is told it."""
    return {
        name: None if value is CLEARED or value == (CLEARED,) else value
        for name, value in options.items()
        if value is not None and value != ()
    }


def _as_typed(refused: CommandRefused) -> CommandRefused:
    if not refused.field_errors:
        return refused
    told = (
        f"{_option(each['path'])}: {each['message']}" if each["path"] else each["message"]
        for each in refused.field_errors
    )
    return CommandRefused("\n".join(told))


def _option(path: Sequence[str | int]) -> str:
    """The option that fills a field of the desk, as it is typed."""
    name, *rest = path[1:] if path[0] == "limits" and len(path) > 1 else path
    name = _PARAMETERS.get(str(name), name)
    for parameter in click.get_current_context().command.params:
        if parameter.name == name:
            number = rest[0] if rest and isinstance(rest[0], int) else 0
            typed = parameter.opts[0] if parameter.param_type_name == "option" else parameter.name
            return f"{typed}, value {number + 1}" if number else str(typed)
    return ".".join(map(str, path))


def warn_unknown_models(place: Location, patterns: Iterable[str] | None) -> None:
    """Says which patterns name no model of the configuration, where one tells."""
    catalog = place.catalog() if patterns else None
    for pattern in patterns or ():
        if catalog is not None and not catalog.matching_ids([pattern]):
            print_note(f"Warning: {pattern} names no model of {place.config}.")
