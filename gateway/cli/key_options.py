"""Options for the settings of keys and groups.

Omitted options change nothing; `none` clears a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Final

import click

from gateway.admin.text_fields import short_name
from gateway.cli.errors import CommandRefused
from gateway.cli.option_types import CLEARED, TEXT, field_type
from gateway.cli.options import Command, CommandContext, Decorator, add_options
from gateway.cli.output import print_note
from gateway.core.limits import BUDGETS, LIMIT_NAMES, Currency
from gateway.routing.catalog import Catalog
from gateway.store.records import OnSharedLoss, UserAgentMode

_FIELDS: Final = (
    *("name", "group", "expires_at", "note", "models", "addresses", "user_agents", "probe"),
    *("patterns", "multiplier", "user_agent_mode", "store_replies", "on_shared_loss"),
    *LIMIT_NAMES,
)


def _with_settings(command: Command) -> Command:
    """Passes the given options as `settings`, a body for the admin API. Errors in its fields are
    reported by option."""

    @wraps(command)
    def run(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in _FIELDS if name in arguments}
        settings: dict[str, Any] = {}
        for name, value in given.items():
            if value is None or value == ():
                continue
            target = settings.setdefault("limits", {}) if name in LIMIT_NAMES else settings
            target[name] = None if value in (CLEARED, (CLEARED,)) else value
        if not settings:
            raise click.UsageError(
                "Nothing to change: give at least one option, such as --rpm 600."
            )
        try:
            command(settings=settings, **arguments)
        except CommandRefused as error:
            raise _with_option_names(error) from None

    return run


def _with_option_names(error: CommandRefused) -> CommandRefused:
    if not error.field_errors:
        return error
    return CommandRefused(
        "\n".join(
            f"{_option_name(each['path'])}: {each['message']}" if each["path"] else each["message"]
            for each in error.field_errors
        )
    )


def _option_name(path: Sequence[str | int]) -> str:
    """The option for a field of the admin API, such as `--models, value 2`."""
    name, *index = path[1:] if path[0] == "limits" and len(path) > 1 else path
    for parameter in click.get_current_context().command.params:
        if parameter.name == name and isinstance(parameter, click.Option):
            number = index[0] + 1 if index and isinstance(index[0], int) else 1
            return parameter.opts[0] + (f", value {number}" if number > 1 else "")
    return ".".join(map(str, path))


def _option(field: str, metavar: str, help: str, *, multiple: bool = False) -> Decorator:
    return click.option(
        f"--{short_name(field).replace('_', '-')}",
        field,
        metavar=metavar,
        type=TEXT if multiple else field_type(field),
        multiple=multiple,
        help=f"{help}; repeatable, none: all." if multiple else help,
    )


_LIMITS: Final = (
    _option("requests_per_minute", "N", "Requests per minute (RPM)."),
    _option("tokens_per_minute", "N", "Input and output tokens per minute (TPM)."),
    _option("concurrent", "N", "Max concurrent requests."),
    _option("budget", "UNITS", "Total budget in units, such as 5M."),
    _option("budget_5h", "UNITS", "Budget in units for any five hours."),
    _option("budget_day", "UNITS", "Daily budget in units (UTC)."),
    _option("budget_week", "UNITS", "Budget in units for any seven days."),
    _option("budget_month", "UNITS", "Monthly budget in units (UTC)."),
    _option("budget_usd", "USD", "Total budget in US dollars, such as 50 or 2.50."),
    _option("budget_usd_5h", "USD", "Budget in US dollars for any five hours."),
    _option("budget_usd_day", "USD", "Daily budget in US dollars (UTC)."),
    _option("budget_usd_week", "USD", "Budget in US dollars for any seven days."),
    _option("budget_usd_month", "USD", "Monthly budget in US dollars (UTC)."),
)
_USER_AGENTS: Final = _option(
    "user_agents",
    "P",
    "Allowed clients: a prefix of the user agent, or re: and a regular expression",
    multiple=True,
)
with_key_options: Final = add_options(
    click.option(
        "--probe/--no-probe",
        default=None,
        help="Health-check key: models, token counts and health only, at no cost.",
    ),
    _option("expires_at", "30d|DATE|never", "Expiry: a duration, or the start of a day (UTC)."),
    _option("note", "TEXT", "A note for people."),
    _option("models", "PATTERN", "Allowed models of its group", multiple=True),
    _option("addresses", "CIDR", "Allowed client networks", multiple=True),
    _USER_AGENTS,
    *_LIMITS,
    _with_settings,
)
"""Options of a key; the command gets `settings`, with its own `--name` and `--group`."""

with_group_options: Final = add_options(
    click.option("--multiplier", metavar="X", help="Price multiplier, such as 0.5."),
    *_LIMITS,
    _USER_AGENTS,
    click.option(
        "--user-agent-mode",
        type=click.Choice([str(mode) for mode in UserAgentMode]),
        help="Whether other clients are rejected, or only noted in the request log.",
    ),
    click.option(
        "--store-replies/--no-store-replies",
        default=None,
        help="Whether responses are stored, so that later requests can continue them.",
    ),
    click.option(
        "--on-shared-loss",
        type=click.Choice([str(each) for each in OnSharedLoss]),
        help="Of several replicas: while the server of their limits is lost, requests are refused, "
        "or each replica has its share of the limits.",
    ),
    _with_settings,
)
"""Options of a group; the command gets `settings`, with its own `--models`."""


def warn_unpriced(context: CommandContext, settings: Mapping[str, Any]) -> None:
    """Warns of a budget in dollars where no model has a price in dollars."""
    limits = settings.get("limits") or {}
    in_usd = [
        name
        for name, kind in BUDGETS.items()
        if kind.currency is Currency.USD and limits.get(name) is not None
    ]
    if not in_usd or (known := context.gateway_config()) is None:
        return
    file, config = known
    money = config.money
    if money.currency == "USD" and money.unit_price is not None:
        return
    if all(model.price is None for model in config.models):
        print_note(
            f"Warning: no model of {file} has a price in USD, so a budget in USD limits "
            "nothing: state price under models, or money.unit_price."
        )


def warn_unknown_models(context: CommandContext, patterns: Iterable[str] | None) -> None:
    """Warns of patterns that match no model of the gateway's configuration."""
    if not patterns or (known := context.gateway_config()) is None:
        return
    file, config = known
    catalog = Catalog(config.models)
    for pattern in patterns:
        if not catalog.matching_ids([pattern]):
            print_note(f"Warning: {pattern} matches no model of {file}.")
