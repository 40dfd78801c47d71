"""`gateway key list` and `gateway key show`. They must not know how a key is changed."""

from __future__ import annotations

from collections.abc import Iterator

import click

from gateway.admin.figures import cost, grouped, price, units
from gateway.cli.budgets import limit_fields, spent
from gateway.cli.client import connect
from gateway.cli.options import Place, in_json, placed
from gateway.cli.reference import Fields, old_until, pick, state_of
from gateway.cli.screen import (
    Cell,
    figure,
    print_fields,
    print_json,
    print_table,
    short,
    state,
    when,
)
from gateway.config import Money


@click.command(name="list")
@in_json
@placed
def list_(place: Place, as_json: bool) -> None:
    """List all keys, revoked ones too, and what they have used.

    A ! says that a key was used from elsewhere, or by another client, than at first.
    """
    with connect(place.state_dir) as client:
        keys = client.get("/keys")["keys"]
    if as_json:
        print_json(keys)
        return
    money = place.money()
    titles = ["Id", "Name", "Group", "Key", "State", "Expires", "Last used", "Requests", "Units"]
    priced = ["Price"] if money.unit_price is not None else []
    print_table([*titles, *priced, ""], (tuple(_line(each, money)) for each in keys))


@click.command()
@click.argument("reference", metavar="KEY")
@in_json
@placed
def show(place: Place, reference: str, as_json: bool) -> None:
    """Show all that is kept of a key, its limits, and what of its budgets is spent.

    In JSON `spent_micro` has what was spent of each budget.
    """
    with connect(place.state_dir) as client:
        found = pick(client.get("/keys")["keys"], reference)
        found["spent_micro"] = spent(client, key=found["id"])
    if as_json:
        print_json(found)
    else:
        print_fields(_fields(found, place.money()))


def _line(token: Fields, money: Money) -> Iterator[Cell]:
    yield token["id"]
    yield short(token["name"])
    yield token["group"]
    yield token["display"]
    yield state(state_of(token))
    yield when(token["expires_at"])
    yield when(token["last_used_at"])
    yield figure(token["requests"])
    yield figure(units(token["cost_micro"]))
    if (priced := price(token["cost_micro"], money)) is not None:
        yield figure(priced)
    yield short(f"! {token['changed']}") if token["changed"] else ""


def _fields(token: Fields, money: Money) -> Iterator[tuple[str, Cell]]:
    yield "Id", token["id"]
    yield "Name", token["name"]
    yield "Group", token["group"]
    yield "Key", token["display"]
    if until := old_until(token):
        yield "Old key", f"{token['old_display']} still works until {when(until)}"
    yield "State", state(state_of(token))
    yield "Note", token["note"]
    yield "Created", when(token["created_at"])
    yield "Revoked", when(token["revoked_at"])
    yield "Expires", when(token["expires_at"])
    yield "Probe", "yes: models, counts of tokens and health only" if token["probe"] else "no"
    yield "Models", _listed(token["models"], "all of its group")
    yield "Addresses", _listed(token["addresses"], "all")
    yield "User agents", _listed(token["user_agents"], "all that its group allows")
    yield from limit_fields(token["limits"], token["spent_micro"], money)
    yield "First used", _first(token)
    yield "Last used", when(token["last_used_at"])
    if token["changed"]:
        yield "!", f"{token['changed']}, at {when(token['changed_at'])}"
    yield "Requests", grouped(token["requests"])
    yield "Input tokens", grouped(token["input_tokens"])
    yield "Output tokens", grouped(token["output_tokens"])
    yield "Spent", cost(token["cost_micro"], money)


def _listed(patterns: list[str] | None, without: str) -> str:
    return without if patterns is None else "  ".join(patterns)


def _first(token: Fields) -> str | None:
    if token["first_used_at"] is None:
        return None
    whence = f" from {token['first_address']}" if token["first_address"] else ""
    by = f" by {token['first_agent']}" if token["first_agent"] else ""
    return f"{when(token['first_used_at'])}{whence}{by}"
