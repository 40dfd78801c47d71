"""`gateway config`: the effective configuration, and the history of its file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
import yaml
from click.core import ParameterSource

from gateway.admin.config_file import write_config, write_error
from gateway.admin.config_history import ConfigHistory, Snapshot, unified_diff
from gateway.admin.errors import AdminError
from gateway.cli.client import connect
from gateway.cli.errors import CommandRefused, GatewayUnreachable, report_config_errors
from gateway.cli.options import CommandContext, now_us, subcommand
from gateway.cli.output import Column, format_time, print_note
from gateway.config.document import ConfigError, ConfigProblem, decode
from gateway.config.file_errors import user_name
from gateway.config.load import load_config
from gateway.config.locate import read_file
from gateway.config.masking import SecretMask, public_config
from gateway.core.text import escape_unprintable

_COLUMNS: Final[dict[str, Column]] = {
    "No.": "number",
    "Time": lambda each: format_time(each["at"]),
    "Cause": "cause",
    "By": "actor",
    "Changes": lambda each: "; ".join(
        filter(None, (each["same_as"] and f"as {each['same_as']}", each["changes"]))
    ),
}
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


@click.group()
def config() -> None:
    """Show the effective configuration; compare and restore earlier files.

    The gateway keeps each configuration that it accepts as a numbered snapshot in the state
    directory. Secrets are masked in all output.
    """


@subcommand(
    config, click.option("--all", "with_defaults", is_flag=True, help="Include the defaults.")
)
def show(context: CommandContext, with_defaults: bool) -> None:
    """Print the effective configuration: that of the running gateway, or with --config that of the
    file. Options with their default are left out."""
    source = click.get_current_context().get_parameter_source("config")
    try:
        if source is ParameterSource.COMMANDLINE:
            answer = _of_file(context, with_defaults)
        else:
            with connect(context.state_dir, may_serve=False) as client:
                answer = client.get("/config", all="true" if with_defaults else None)
    except GatewayUnreachable as error:
        raise GatewayUnreachable(f"{error.message} To use a file instead: --config FILE") from None
    context.print(answer, _print_config)


@subcommand(config)
def history(context: CommandContext) -> None:
    """List the snapshots, the latest first: when, why, by whom, and what changed."""
    items = [asdict(each) for each in ConfigHistory(context.state_dir).snapshots()]
    context.print_table(items, _COLUMNS)


@subcommand(
    config,
    click.argument("old", metavar="[A]", type=int, required=False),
    click.argument("new", metavar="[B]", type=int, required=False),
)
def diff(context: CommandContext, old: int | None, new: int | None) -> None:
    """Compare snapshot A, or the latest, with snapshot B, or the file as it is now.

    A secret is shown as <secret N>: the same number in both is the same secret.
    """
    history, mask = ConfigHistory(context.state_dir), SecretMask()
    latest = _latest(history)
    with report_config_errors(as_json=context.as_json):
        texts = [
            _text_of(history, number, file)
            for number, file in ((old or latest.number, ""), (new, _file_of(context, latest)))
        ]
        names, shown = zip(*((name, mask.hide(text, name)) for name, text in texts), strict=True)
        text = unified_diff(*shown, *names)
    answer = {"old": names[0], "new": names[1], "differs": bool(text), "diff": text}
    context.print(answer, _print_diff)


@subcommand(config, click.argument("number", metavar="N", type=int))
def rollback(context: CommandContext, number: int) -> None:
    """Make the file what it was in snapshot N, and reload the running gateway.

    What was in the file is kept as a snapshot. If the gateway refuses the old file, it is put back.
    """
    history = ConfigHistory(context.state_dir)
    file = Path(_file_of(context, _latest(history)))
    content = _read(history, number)
    with report_config_errors(as_json=context.as_json):
        load_config(file, state_dir=context.state_dir, resolve_secrets=False, content=content)
        before = read_file(file)[0]
        try:
            _keep(history, before, file)
            write_config(file, content)
        except OSError as error:
            raise CommandRefused(write_error(error, file)) from None
        answer = _reload(context, lambda: write_config(file, before))
    context.print({"file": str(file), "number": number, "reload": answer}, _print_rollback)


def _reload(context: CommandContext, undo: Callable[[], None]) -> dict[str, Any] | None:
    """The gateway's answer; None if none runs. Raises ConfigError after `undo` if the gateway
    refuses the file."""
    try:
        with connect(context.state_dir, may_serve=False) as client:
            answer: dict[str, Any] = client.post("/reload", {})
    except GatewayUnreachable:
        return None
    if not answer["ok"]:
        undo()
        raise ConfigError(ConfigProblem(**problem) for problem in answer["mistakes"])
    return answer


def _keep(history: ConfigHistory, content: bytes, file: Path) -> None:
    """Keeps what is in the file, if it is not the latest snapshot."""
    actor = f"command: {os.geteuid()}/{user_name(os.geteuid())}"
    history.add(content, str(file), at=now_us(), actor=actor, cause="found")


def _of_file(context: CommandContext, with_defaults: bool) -> dict[str, Any]:
    with report_config_errors(as_json=context.as_json):
        loaded = load_config(context.config, state_dir=context.state_dir, resolve_secrets=False)
    config = public_config(loaded, with_defaults=with_defaults)
    return {"file": str(context.config), "hash": None, "config": config}


def _latest(history: ConfigHistory) -> Snapshot:
    if not (snapshots := history.snapshots()):
        raise CommandRefused(
            f"There are no snapshots in {history.folder}: the gateway keeps them when it starts "
            "and when its configuration is reloaded."
        )
    return snapshots[0]


def _file_of(context: CommandContext, latest: Snapshot) -> str:
    """The file that was named, else the one of the latest snapshot."""
    return str(context.config) if context.is_named else latest.file


def _text_of(history: ConfigHistory, number: int | None, file: str) -> tuple[str, str]:
    """The name and the text of a snapshot, or without a number of the file."""
    name = file if number is None else f"snapshot {number}"
    content = read_file(Path(file))[0] if number is None else _read(history, number)
    return name, decode(content, name)


def _read(history: ConfigHistory, number: int) -> bytes:
    try:
        return history.read(number)
    except AdminError as error:
        raise CommandRefused(str(error)) from None


def _print_config(answer: dict[str, Any]) -> None:
    print_note(f"# {answer['file']}, configuration {answer['hash'] or 'not in use'}")
    text = yaml.dump(answer["config"], Dumper=yaml.CSafeDumper, sort_keys=False, width=100)
    click.echo("\n".join(map(escape_unprintable, text.splitlines())))


def _print_diff(answer: dict[str, Any]) -> None:
    if not answer["differs"]:
        print_note(f"{answer['old']} and {answer['new']} are the same.")
    for line in answer["diff"].splitlines():
        click.echo(click.style(escape_unprintable(line), fg=_COLOURS.get(line[:1])))


def _print_rollback(answer: dict[str, Any]) -> None:
    print_note(f"{answer['file']} is what it was in snapshot {answer['number']}.")
    if (reload := answer["reload"]) is None:
        print_note("No gateway runs: the next start uses it.")
    else:
        print_note(f"Configuration {reload['hash']} is active.")
