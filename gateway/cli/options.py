"""Options that all commands have, and the context that commands get from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gateway.cli.errors import report_config_errors
from gateway.cli.output import print_json
from gateway.config.document import ConfigError
from gateway.config.limits import Money
from gateway.config.load import find_config, find_state_dir, load_config
from gateway.config.schema import Config
from gateway.routing.catalog import Catalog

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
    """`config` is None if there is no configuration file."""

    state_dir: Path
    config: Path | None
    as_json: bool

    def print(self, value: Value, display: Callable[[Value], None]) -> None:
        """Prints JSON if the command has `--json`, else calls `display`."""
        if self.as_json:
            print_json(value)
        else:
            display(value)

    def catalog(self) -> Catalog | None:
        """None without a valid configuration."""
        config = self._load_config()
        return None if config is None else Catalog(config.models)

    def money(self) -> Money:
        """The price of units; without a valid configuration there is none."""
        config = self._load_config()
        return Money() if config is None else config.money

    def _load_config(self) -> Config | None:
        if self.config is None:
            return None
        try:
            return load_config(self.config, resolve_secrets=False)
        except ConfigError:
            return None


FILE: Final = click.Path(path_type=Path, readable=False)
"""A path; whoever reads it says why it cannot be read."""

config_option = click.option("--config", type=FILE, help="The configuration file.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def subcommand(group: click.Group, *options: Decorator, json: bool = True) -> Decorator:
    """Adds a function to the group as a command of the same name, without a trailing `_`. It gets
    the `options` and `context`."""

    def decorate(function: Command) -> Command:
        command = add_options(*options)(with_context(function, json=json))
        return group.command(function.__name__.rstrip("_"))(command)

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
        with report_config_errors():
            context = CommandContext(find_state_dir(state_dir, file), file, as_json)
        command(context=context, **arguments)

    return json_option(run) if json else run


def add_options(*options: Decorator) -> Decorator:
    """Adds several options, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
