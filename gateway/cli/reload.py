"""`gateway reload`: the running gateway reloads its configuration."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli.client import connect
from gateway.cli.errors import report_config_errors
from gateway.cli.options import CommandContext, with_context
from gateway.cli.output import print_note
from gateway.config.document import ConfigError, ConfigProblem


@click.command()
@with_context
def reload(context: CommandContext) -> None:
    """Reload the configuration file with which the running gateway was started.

    An invalid file changes nothing: all errors are listed, with exit code 78.
    """
    with connect(context.state_dir, may_serve=False) as client:
        answer = client.post("/reload", {})
    with report_config_errors(as_json=context.as_json):
        if not answer["ok"]:
            raise ConfigError(ConfigProblem(**problem) for problem in answer["mistakes"])
    context.print(answer, _print_changes)


def _print_changes(answer: dict[str, Any]) -> None:
    for warning in answer["warnings"]:
        print_note(f"Warning: {warning}")
    print_note(f"{answer['file']}: configuration {answer['hash']} is active.")
    changes = {kind: names for kind, names in answer["changes"].items() if names}
    for kind, names in changes.items():
        print_note(f"{kind.capitalize()}: {', '.join(names)}.")
    if not changes:
        print_note("No changes.")
