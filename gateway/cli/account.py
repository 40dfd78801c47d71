"""`gateway account`: how the upstreams' accounts are, and what to do about it. It must not know
what makes an account well or not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from gateway.admin.units import format_duration
from gateway.cli.client import CommandRefused, connect, quote_path
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.output import (
    format_time,
    print_fields,
    print_json,
    print_note,
    print_table,
    shorten,
    style_account_state,
)

States = list[dict[str, Any]]
"""An account with each model that it was asked for."""

_DISABLED: Final = "disabled"


@click.group()
def account() -> None:
    """See and set how the accounts of a running gateway are.

    NAME is channel/account, or the account's name alone where no other has it.
    """


@account.command(name="list")
@with_json
@with_location
def list_(place: Location, as_json: bool) -> None:
    """List all accounts, well or not, with each model that they were asked for."""
    with connect(place.state_dir, may_serve=False) as client:
        states = client.get("/accounts")["accounts"]
    if as_json:
        print_json(states)
        return
    titles = (
        *("Account", "Model", "State", "Until", "Reason"),
        *("Succeeded", "Failed", "Under way", "Last error"),
    )
    print_table(
        titles,
        (
            (
                _name(each),
                each["model"],
                style_account_state(each["state"]),
                format_time(each["until"]),
                each["reason"],
                each["succeeded"],
                each["failed"],
                _load(each),
                shorten(each["error"]),
            )
            for each in states
        ),
    )


@account.command()
@click.argument("name")
@with_json
@with_location
def reset(place: Location, name: str, as_json: bool) -> None:
    """Forget what is held against an account: it is asked again."""
    states = _put(place, name, "reset")
    disabled = any(each["state"] == _DISABLED for each in states)
    _tell(states, as_json, "is reset, but stays disabled" if disabled else "is healthy")


@account.command()
@click.argument("name")
@with_json
@with_location
def disable(place: Location, name: str, as_json: bool) -> None:
    """Ask an account no more, until it is enabled or the gateway starts anew."""
    states = _put(place, name, "disable")
    _tell(states, as_json, "is asked no more; what is under way goes on")


@account.command()
@click.argument("name")
@with_json
@with_location
def enable(place: Location, name: str, as_json: bool) -> None:
    """Ask an account again that was disabled."""
    _tell(_put(place, name, "enable"), as_json, "may be asked again")


@account.command(name="try")
@click.argument("name")
@click.option("--model", help="Which of the channel's models to ask for, instead of the first.")
@with_json
@with_location
def try_(place: Location, name: str, model: str | None, as_json: bool) -> None:
    """Send one small real request through an account; a success resets it."""
    query = f"?model={quote_path(model)}" if model is not None else ""
    with connect(place.state_dir, may_serve=False) as client:
        path = _path(client.get("/accounts")["accounts"], name)
        tried = client.post(f"{path}/try{query}", None)
    if as_json:
        print_json(tried)
    else:
        print_fields(_fields(tried))
    if not tried["ok"]:
        sys.exit(1)


def find_account(states: States, name: str) -> tuple[str, str]:
    """The channel and the account that a person means. Raises Refused with what there is to choose
    from."""
    places = list(dict.fromkeys((each["channel"], each["account"]) for each in states))
    meant = [place for place in places if name in ("/".join(place), place[1])]
    if len(meant) == 1:
        return meant[0]
    choice = "\n".join(f"  {'/'.join(each)}" for each in meant or places)
    if meant:
        raise CommandRefused(f"{len(meant)} channels have an account {name}: name one of\n{choice}")
    if places:
        raise CommandRefused(f"There is no account {name}; there are\n{choice}")
    raise CommandRefused("The running configuration has no accounts.")


def _path(states: States, name: str) -> str:
    return "/accounts/" + "/".join(map(quote_path, find_account(states, name)))


def _put(place: Location, name: str, what: str) -> States:
    with connect(place.state_dir, may_serve=False) as client:
        path = _path(client.get("/accounts")["accounts"], name)
        states: States = client.put(f"{path}/{what}", None)["accounts"]
    return states


def _tell(states: States, as_json: bool, what: str) -> None:
    if as_json:
        print_json(states)
    else:
        print_note(f"{_name(states[0])} {what}.")


def _name(state: dict[str, Any]) -> str:
    return f"{state['channel']}/{state['account']}"


def _load(state: dict[str, Any]) -> str:
    most = state["concurrency"]
    return f"{state['under_way']} of {most}" if most else str(state["under_way"])


def _fields(tried: dict[str, Any]) -> Sequence[tuple[str, str | int | None]]:
    asked = (
        ("Account", _name(tried)),
        ("Model", f"{tried['model']} ({tried['upstream_model']}, {tried['format']})"),
        ("Status", tried["status"]),
        ("Time", format_duration(tried["total_us"])),
    )
    if tried["ok"]:
        tokens = f"{_count(tried['input_tokens'])} in, {_count(tried['output_tokens'])} out"
        return (*asked, ("Tokens", tokens), ("Words", _words(tried)))
    judged = f"{tried['verdict']} ({tried['blame']})" if tried["verdict"] else None
    return (*asked, ("Judged as", judged), ("Error", tried["error"]))


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)


def _words(tried: dict[str, Any]) -> str:
    words = " ".join(tried["words"].split())
    return words or f"none: the reply ended with {tried['stop_reason']}"
