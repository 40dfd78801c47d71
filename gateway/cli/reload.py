"""`gateway reload`: the running gateway reads its configuration again. It must not judge it."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli.client import connect
from gateway.cli.mistakes import mistakes_told
from gateway.cli.options import Place, in_json, placed
from gateway.cli.screen import note, print_json
from gateway.config import ConfigMistakes, Mistake


@click.command()
@in_json
@placed
def reload(place: Place, as_json: bool) -> None:
    """Have the running gateway read its configuration again, the file that it was started with.

    A file with mistakes changes nothing: exit code 78, and every mistake.
    """
    with connect(place.state_dir, may_serve=False) as client:
        answer = client.post("/reload", {})
    with mistakes_told(as_json=as_json):
        if not answer["ok"]:
            raise ConfigMistakes(Mistake(**each) for each in answer["mistakes"])
    if as_json:
        print_json(answer)
    else:
        _tell(answer)


def _tell(answer: dict[str, Any]) -> None:
    for warning in answer["warnings"]:
        note(f"Warning: {warning}")
    note(f"{answer['file']}: configuration {answer['hash']} is in force.")
    told = {what: names for what, names in answer["changes"].items() if names}
    for what, names in told.items():
        note(f"{what.capitalize()}: {', '.join(names)}.")
    if not told:
        note("Nothing was added, removed or changed.")
