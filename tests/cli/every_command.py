"""Every command of the tree, each once, with arguments that it accepts, and what became of it.

As a program it runs all of them, for tests that need another user: JSON on standard output.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import click
import orjson
from click.testing import CliRunner

from gateway.cli import main

_VALUES = {
    "client": "codex",
    "format_": "chat",
    "role": "viewer",
    "scope": "read",
    "shell": "bash",
    "models": "*",
    "reference": "k",
    "since": "1d",
    "number": "1",
}
_OPTIONS = {
    "init": ("--format", "chat", "--url", "http://a.example/v1", "--key", "none", "--model", "m"),
    "admin password": ("owner",),
    "db copy": ("--to", "postgresql://127.0.0.1:1/name"),
    "group set": ("--rpm", "1"),
    "key set": ("--rpm", "1"),
    "serve": ("--host", "192.0.2.1"),
}
"""`serve` cannot listen on an address that no machine has, so that it ends."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`error` is the traceback of what was raised; what a user sees is `output`."""

    command: str
    exit_code: int
    output: str
    error: str | None


def commands(
    group: click.Group = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join((*path, name)), command


def arguments(name: str, command: click.Command, file: str) -> list[str]:
    """What is required, and `file` wherever the command takes one."""
    given = [*name.split(), *_OPTIONS.get(name, ())]
    for parameter in command.params:
        is_file = isinstance(parameter.type, click.Path | click.File)
        value = file if is_file else _VALUES.get(parameter.name or "", "x")
        if isinstance(parameter, click.Argument) and (parameter.required or is_file):
            given.append(value)
        elif isinstance(parameter, click.Option) and parameter.required:
            given += [parameter.opts[0], value]
    return given


def run_all(
    options: Mapping[str, str], file: str, environ: Mapping[str, str] | None = None
) -> list[Outcome]:
    """With those of `options` that a command has, such as `--config`."""
    outcomes = []
    for name, command in commands():
        known = {option for parameter in command.params for option in parameter.opts}
        given = [part for pair in options.items() if pair[0] in known for part in pair]
        result = CliRunner().invoke(
            main,
            [*arguments(name, command, file), *given],
            input="a long password\n" * 2,
            env=environ,
        )
        error = result.exception
        is_expected = error is None or isinstance(error, SystemExit)
        text = None if is_expected else "".join(traceback.format_exception(error))
        outcomes.append(Outcome(name, result.exit_code, result.output, text))
    return outcomes


if __name__ == "__main__":
    found = run_all(orjson.loads(sys.argv[1]), sys.argv[2], orjson.loads(sys.argv[3]))
    sys.stdout.buffer.write(orjson.dumps([asdict(each) for each in found]))
