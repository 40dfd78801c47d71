"""Options that all commands have, and the context that commands get from them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gateway.cli.errors import RUNNING_CONFIG, report_config_errors
from gateway.cli.output import print_json
from gateway.config.document import ConfigError
from gateway.config.limits import Money
from gateway.config.load import find_config, find_state_dir, load_config
from gateway.config.schema import Config

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

    def gateway_config(self) -> tuple[Path, Config] | None:
        """The file of this state directory's gateway, and what it says: the one that was named,
        else the one that a running gateway names, else the one that was found, if it has this state
        directory. None without it, or where it is invalid."""
        running = click.get_current_context().meta
        file = self.config if self.is_named else running.get(RUNNING_CONFIG, self.config)
        if file is None:
            return None
        environ = {name: text for name, text in os.environ.items() if name != "GATEWAY_STATE_DIR"}
        try:
            config = load_config(Path(file), resolve_secrets=False, env=environ)
        except ConfigError:
            return None
        is_own = os.path.realpath(config.state_dir) == os.path.realpath(self.state_dir)
        is_known = self.is_named or RUNNING_CONFIG in running
        return (Path(file), config) if is_known or is_own else None

    def money(self) -> Money:
        """The price of units; without a valid configuration there is none."""
        known = self.gateway_config()
        return Money() if known is None else known[1].money


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
            place = find_state_dir(state_dir, file)
        is_named = config is not None or "GATEWAY_CONFIG" in os.environ
        context = CommandContext(place, file, is_named, as_json)
        command(context=context, **arguments)

    return json_option(run) if json else run


def add_options(*options: Decorator) -> Decorator:
    """Adds several options, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
