"""`gateway admin`: the console's password, and who is signed in. It must not know how either is
kept.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from gateway.cli.client import connect
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.output import format_time, print_json, print_note, print_table


@click.group()
def admin() -> None:
    """Set the console's password; see and end its sessions."""


@admin.command()
@with_json
@with_location
def password(place: Location, as_json: bool) -> None:
    """Set the password of the console: at least 12 characters.

    It is asked for twice, or is the first line of standard input. All sessions end.
    """
    typed = _typed()
    with connect(place.state_dir, may_create=True) as client:
        answer = client.put("/password", {"password": typed})
    if as_json:
        print_json(answer)
        return
    ended = answer["ended"]
    print_note("The password is set." + (f" {_counted(ended)} ended." if ended else ""))


@admin.command()
@click.option("--end-all", is_flag=True, help="End all of them.")
@with_json
@with_location
def sessions(place: Location, as_json: bool, end_all: bool) -> None:
    """List the browsers that are signed in to the console."""
    with connect(place.state_dir) as client:
        answer = client.delete("/sessions") if end_all else client.get("/sessions")
    if as_json:
        print_json(answer)
    elif end_all:
        print_note(f"{_counted(answer['ended'])} ended.")
    else:
        _tell(answer)


def _typed() -> str:
    if sys.stdin.isatty():
        typed: str = click.prompt("New password", hide_input=True, confirmation_prompt=True)
        return typed
    return sys.stdin.readline().rstrip("\r\n")


def _tell(answer: dict[str, Any]) -> None:
    if not answer["password"]:
        print_note("No password is set, so nobody can sign in: gateway admin password")
    elif not answer["sessions"]:
        print_note("Nobody is signed in.")
    else:
        print_table(
            ("signed in", "last seen", "address", "browser"),
            (
                (
                    format_time(each["created_at"]),
                    format_time(each["seen_at"]),
                    each["address"],
                    each["agent"],
                )
                for each in answer["sessions"]
            ),
        )


def _counted(sessions: int) -> str:
    return "1 session" if sessions == 1 else f"{sessions} sessions"
