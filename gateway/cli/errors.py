"""Errors of commands and their exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

import click
import orjson

from gateway.config.document import ConfigError

EX_UNAVAILABLE: Final = 69
"""Exit code of sysexits.h: the gateway does not answer, or a server that it needs. systemd starts
the service again."""

EX_CONFIG: Final = 78
"""Exit code of sysexits.h: invalid configuration. systemd does not restart the service then."""


class CommandRefused(click.ClickException):
    """The gateway rejected the command, or the state directory cannot be used: exit code 1.

    `field_errors` has the `path` and the `message` of each invalid field.
    """

    def __init__(self, message: str, field_errors: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.field_errors = field_errors


class GatewayUnreachable(click.ClickException):
    """No gateway runs, or the process that holds the state directory does not answer."""

    exit_code = EX_UNAVAILABLE


class GatewayHangs(GatewayUnreachable):
    """Process `pid`, if that is known, holds the state directory and does not answer."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


@contextmanager
def report_config_errors(*, as_json: bool = False) -> Iterator[None]:
    """Turns a ConfigError into exit code 78 and one line on stderr for each problem.

    With `as_json` the problems are an object on stdout: `{"ok": false, "mistakes": [...]}`.
    """
    try:
        yield
    except ConfigError as error:
        if as_json:
            problems = [asdict(problem) for problem in error.problems]
            click.echo(orjson.dumps({"ok": False, "mistakes": problems}))
        else:
            click.echo(str(error), err=True)
        sys.exit(EX_CONFIG)
