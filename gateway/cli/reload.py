"""`gateway reload`: the running gateway reads its configuration again. It must not judge it."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli.client import connect
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.output import print_json, print_note, report_config_errors
from gateway.config import ConfigError, ConfigProblem


@click.command()
@with_json
@with_location
def reload(place: Location, as_json: bool) -> None:
    """Have the running gateway read its configuration again, the file that it was started with.

    A file with mistakes changes nothing: exit code 78, and every mistake.
    """
    with connect(place.state_dir, may_serve=False) as client:
        answer = client.post("/reload", {})
    with report_config_errors(as_json=as_json):
        if not answer["ok"]:
            raise ConfigError(ConfigProblem(**each) for each in answer["mistakes"])
    if as_json:
        print_json(answer)
    else:
        _tell(answer)


def _tell(answer: dict[str, Any]) -> None:
    for warning in answer["warnings"]:
        print_note(f"Warning: {warning}")
    print_note(f"{answer['file']}: configuration {answer['hash']} is in force.")
    told = {what: names for what, names in answer["changes"].items() if names}
    for what, names in told.items():
        print_note(f"{what.capitalize()}: {', '.join(names)}.")
    if not told:
        print_note("Nothing was added, removed or changed.")
