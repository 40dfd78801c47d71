"""Options that commands share: where the gateway is, and how to answer.

This room must not know what a command does with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from gateway.cli.output import report_config_errors
from gateway.config import (
    Config,
    ConfigError,
    Money,
    find_config,
    find_state_dir,
    load_config,
)
from gateway.routing.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Location:
    """Which gateway is meant: its state directory, and the configuration where one was found."""

    state_dir: Path
    config: Path | None

    def catalog(self) -> Catalog | None:
        """The models that exist; None where no configuration, or none that is right, tells."""
        found = self._read()
        return None if found is None else Catalog(found.models)

    def money(self) -> Money:
        """How units are shown; without a price where no configuration tells one."""
        found = self._read()
        return Money() if found is None else found.money

    def _read(self) -> Config | None:
        if self.config is None:
            return None
        try:
            return load_config(self.config, resolve_secrets=False)
        except ConfigError:
            return None


def with_location(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command `--config` and `--state-dir`; it takes a `place`."""

    @click.option("--config", type=click.Path(path_type=Path), help="The configuration file.")
    @click.option(
        "--state-dir",
        type=click.Path(path_type=Path),
        help="The gateway's state directory; else $GATEWAY_STATE_DIR, the configuration's, var.",
    )
    @wraps(command)
    def with_place(config: Path | None, state_dir: Path | None, **rest: Any) -> None:
        found = find_config(config)
        with report_config_errors():
            place = Location(find_state_dir(state_dir, found), found)
        command(place=place, **rest)

    return with_place


def with_json(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command `--json`; it takes `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for scripts.")(
        command
    )
