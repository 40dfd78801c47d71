"""How every command tells what is wrong with the configuration. It must not know which command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Final

import click
import orjson

from gateway.config import ConfigError

EX_CONFIG: Final = 78
"""Exit code of sysexits.h for a wrong configuration; systemd does not start again after it."""


@contextmanager
def report_config_errors(*, as_json: bool = False) -> Iterator[None]:
    """Let ConfigMistakes end the process: every mistake on stderr, one a line, and exit 78.

    With `as_json` they are one object on stdout: `{"ok": false, "mistakes": [...]}`.
    """
    try:
        yield
    except ConfigError as found:
        if as_json:
            mistakes = [asdict(mistake) for mistake in found.problems]
            click.echo(orjson.dumps({"ok": False, "mistakes": mistakes}))
        else:
            click.echo(str(found), err=True)
        sys.exit(EX_CONFIG)
