"""Options of commands: their types, the context that commands get from them, settings of keys and
groups (omitted options change nothing; `none` clears a value).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from gateway.admin.text_fields import TEXT_FIELDS, short_name
from gateway.admin.units import NONE_WORDS, parse_duration, parse_time
from gateway.cli.errors import RUNNING_CONFIG, CommandRefused, report_config_errors
from gateway.cli.output import Column, Record, print_json, print_note, print_table
from gateway.config.document import ConfigError
from gateway.config.locate import find_config, find_state_dir, read_options
from gateway.core.limits import BUDGET_SETTINGS, DIMENSION_BUDGETS, LIMIT_NAMES, Currency
from gateway.store.records import OnSharedLoss, UserAgentMode

if TYPE_CHECKING:  # commands start without what validates configurations
    from gateway.config.limits import Money
    from gateway.config.schema import Config

CLEARED: Final = object()
"""The value of `none` and `never`; the value of an omitted option is None."""


def now_us() -> int:
    """The current time in Unix microseconds."""
    return time.time_ns() // 1000


def option_type(parse: Callable[[str], Any], *, optional: bool = True) -> Callable[[str], Any]:
    """The type of an option from a function that raises ValueError. `none` clears an optional
    one."""

    def convert(text: str) -> Any:
        if optional and text in NONE_WORDS:
            return CLEARED
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return convert


def field_type(name: str) -> Callable[[str], Any]:
    """The type of the option that sets a field of a key or a group."""
    return option_type(lambda text: TEXT_FIELDS[name].parse(text, now_us()))


TEXT: Final = option_type(str)
PAST_TIME: Final = option_type(lambda text: parse_time(text, now_us(), -1), optional=False)
until_option: Final = click.option(
    "--until", metavar="7d|DATE", type=PAST_TIME, help="Before this date, or until this long ago."
)
DURATION: Final = option_type(parse_duration, optional=False)


Command = Callable[..., Any]
Decorator = Callable[[Command], Command]
Value = TypeVar("Value")

limit_option: Final = click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    metavar="N",
    help="How many.",
)


@dataclass(frozen=True, slots=True)
class CommandContext:
    """`config` is None if there is no configuration file, and may be one of another gateway unless
    it `is_named`."""

    state_dir: Path
    config: Path | None
    is_named: bool
    as_json: bool

    def print(self, value: Value, display: Callable[[Value], None]) -> None:
        """Prints JSON if the command has `--json`, else calls `display`."""
        if self.as_json:
            print_json(value)
        else:
            display(value)

    def print_list(
        self,
        items: Sequence[Record],
        display: Callable[[Sequence[Record]], None],
        *,
        next_: str | None = None,
        about: Record | None = None,
    ) -> None:
        """Prints a list; with `--json` as `items`, with what is stated `about` them. `next_` is the
        `--before` of the next page."""
        value = (about or {}) | {"items": items, "next": next_}
        self.print(value, lambda _: display(items))

    def print_table(
        self, items: Sequence[Record], columns: Mapping[str, Column], *, next_: str | None = None
    ) -> None:
        """Prints a list as a table, and how to get the next page."""
        self.print_list(items, partial(print_table, columns=columns), next_=next_)
        if next_ is not None and not self.as_json:
            print_note(f"Older ones: --before {next_}")

    def gateway_config(self) -> tuple[Path, Config] | None:
        """The file of this state directory's gateway, and what it says. None without it, or where
        it is invalid."""
        try:
            file = self._gateway_file()
            if file is None:
                return None
            from gateway.config.load import load_config  # what most commands do not need

            return file, load_config(file, state_dir=self.state_dir, resolve_secrets=False)
        except ConfigError:
            return None

    def money(self) -> Money | None:
        """The price of units; None without a file that states a valid one."""
        try:
            file = self._gateway_file()
            if file is None or not (document := read_options(file, "money")[0]).data:
                return None
            from gateway.config.validation import validate  # what most commands do not need

            return validate(document, None).money
        except ConfigError:
            return None

    def _gateway_file(self) -> Path | None:
        """The one that was named, else the one that a running gateway names, else the one that was
        found, if it has this state directory. Raises ConfigError."""
        running = click.get_current_context().meta
        if self.is_named or RUNNING_CONFIG in running:
            file = self.config if self.is_named else running[RUNNING_CONFIG]
            return None if file is None else Path(file)
        if self.config is None:
            return None
        environ = {name: text for name, text in os.environ.items() if name != "GATEWAY_STATE_DIR"}
        own = find_state_dir(None, self.config, environ)
        return self.config if os.path.realpath(own) == os.path.realpath(self.state_dir) else None


FILE: Final = click.Path(path_type=Path, readable=False)
"""A path; whoever reads it says why it cannot be read."""

config_option = click.option("--config", type=FILE, help="The configuration file.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def subcommand(
    group: click.Group, *options: Decorator, name: str | None = None, json: bool = True
) -> Decorator:
    """Adds a function to the group as a command, by default of the same name without a trailing
    `_`. It gets the `options` and `context`."""

    def decorate(function: Command) -> Command:
        command = add_options(*options)(with_context(function, json=json))
        return group.command(name or function.__name__.rstrip("_"))(command)

    return decorate


def with_context(command: Command, *, json: bool = True) -> Command:
    """Adds `--json`, `--config` and `--state-dir`; the command gets `context`."""

    @config_option
    @click.option(
        "--state-dir",
        type=FILE,
        help="The state directory; default: $GATEWAY_STATE_DIR, the configuration's, var.",
    )
    @wraps(command)
    def run(
        config: Path | None, state_dir: Path | None, as_json: bool = False, **arguments: Any
    ) -> None:
        file = find_config(config)
        with report_config_errors(as_json=as_json):
            place = find_state_dir(state_dir, file)
        is_named = config is not None or "GATEWAY_CONFIG" in os.environ
        context = CommandContext(place, file, is_named, as_json)
        try:
            command(context=context, **arguments)
        except click.ClickException as error:
            if as_json and not isinstance(error, click.UsageError):  # besides the text on stderr
                about = {"message": error.format_message(), "exit_code": error.exit_code}
                print_json({"error": about}, indent=False)
            raise

    return json_option(run) if json else run


def add_options(*options: Decorator) -> Decorator:
    """Adds several options, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


dimension_filters: Final = add_options(
    click.option("--end-user", help="Only this end user, as the log has it."),
    click.option("--session", help="Only this session."),
    click.option("--agent", help="Only this agent, such as main or subagent/Explore."),
    click.option("--tag", help="Only this tag."),
)
"""Filters by what requests of keys that trust them state of themselves."""


_FIELDS: Final = (
    *("name", "group", "expires_at", "note", "models", "addresses", "user_agents", "probe"),
    *("trust", "cost_in_usage", "patterns", "multiplier", "user_agent_mode", "store_replies"),
    "on_shared_loss",
    *LIMIT_NAMES,
    *DIMENSION_BUDGETS,
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
    click.option(
        "--cost-in-usage/--no-cost-in-usage",
        default=None,
        help="Replies state their cost in US dollars in their usage.",
    ),
    _option("expires_at", "30d|DATE|never", "Expiry: a duration, or the start of a day (UTC)."),
    _option("note", "TEXT", "A note for people."),
    _option("models", "PATTERN", "Allowed models of its group", multiple=True),
    _option("addresses", "CIDR", "Allowed client networks", multiple=True),
    _USER_AGENTS,
    click.option(
        "--trust",
        metavar="DIMENSION",
        type=TEXT,
        multiple=True,
        help="What its requests may state for the log: end-user, session, agent, tag, or of one "
        "header, such as end-user=x-email; repeatable, none: nothing.",
    ),
    *_LIMITS,
    _option("budget_day_per_user", "UNITS", "Daily budget in units of each trusted end user."),
    _option("budget_usd_day_per_user", "USD", "The same in US dollars."),
    _option("budget_day_per_session", "UNITS", "Daily budget in units of each trusted session."),
    _option("budget_usd_day_per_session", "USD", "The same in US dollars."),
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
    limits = {**settings, **(settings.get("limits") or {})}
    in_usd = [
        name
        for name, kind in BUDGET_SETTINGS.items()
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
    from gateway.routing.catalog import Catalog  # what most commands do not need

    file, config = known
    catalog = Catalog(config.models)
    for pattern in patterns:
        if not catalog.matching_ids([pattern]):
            print_note(f"Warning: {pattern} matches no model of {file}.")
