"""Errors of commands and their exit codes. No command ends in a traceback."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
import orjson

import gateway
from gateway.config.document import ConfigError
from gateway.config.file_errors import file_error_reason

EX_UNAVAILABLE: Final = 69
"""Exit code of sysexits.h: the gateway does not answer, or a server that it needs. systemd starts
the service again."""

EX_SOFTWARE: Final = 70
"""Exit code of sysexits.h: an error of this program, or a gateway of another release."""

EX_CONFIG: Final = 78
"""Exit code of sysexits.h: invalid configuration. systemd does not restart the service then."""


class CommandRefused(click.ClickException):
    """The gateway rejected the command, or the state directory cannot be used: exit code 1.

    `field_errors` has the `path` and the `message` of each invalid field, `code` is the API's.
    """

    def __init__(
        self, message: str, field_errors: Sequence[dict[str, Any]] = (), code: str | None = None
    ) -> None:
        super().__init__(message)
        self.field_errors = field_errors
        self.code = code


class StateDirMissing(CommandRefused):
    """A state directory that does not exist yet, so that there is nothing to ask."""


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


class UnexpectedError(click.ClickException):
    exit_code = EX_SOFTWARE


RUNNING_RELEASE: Final = "gateway.cli.running_release"
"""The key, in `meta` of click's context, of the release of the gateway that has answered."""
RUNNING_CONFIG: Final = "gateway.cli.running_config"
"""The key, in `meta` of click's context, of the gateway's configuration file, or None if it has
none."""


def explain(error: Exception, context: click.Context) -> click.ClickException:
    """Explains an error that no command expects to the user. Of its text it shows only the first
    line, as pydantic repeats the input in the others."""
    if isinstance(error, OSError) and isinstance(error.filename, str):
        path = Path(error.filename)
        return CommandRefused(f"Cannot use {path}: {file_error_reason(error, path)}.")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = (str(error).splitlines() or [""])[0]
    place = f"{type(error).__name__}: {text} ({Path(frame.filename).name}, line {frame.lineno})"
    if RUNNING_RELEASE not in context.meta:
        return UnexpectedError(f"Unexpected {place}. PYTHONDEVMODE=1 shows where it comes from.")
    return UnexpectedError(
        f"The answer of the gateway, {context.meta[RUNNING_RELEASE]}, was not understood by this "
        f"command, {gateway.__version__}: use that of its environment, or restart it. {place}"
    )
