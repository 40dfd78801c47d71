"""`gateway key list` and `gateway key show`. They must not know how a key is changed."""

from __future__ import annotations

from collections.abc import Iterator

import click

from gateway.admin.figures import format_cost, format_count, format_price, format_units
from gateway.cli.budgets import limit_fields, spent
from gateway.cli.client import connect
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.reference import KeyRecord, old_key_expiry, find_key, effective_state
from gateway.cli.screen import (
    Cell,
    right_align,
    print_fields,
    print_json,
    print_table,
    shorten,
    style_state,
    format_time,
)
from gateway.config import Money


@click.command(name="list")
@with_json
@with_location
def list_(place: Location, as_json: bool) -> None:
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
@with_json
@with_location
def show(place: Location, reference: str, as_json: bool) -> None:
    """Show all that is kept of a key, its limits, and what of its budgets is spent.

    In JSON `spent_micro` has what was spent of each budget.
    """
    with connect(place.state_dir) as client:
        found = find_key(client.get("/keys")["keys"], reference)
        found["spent_micro"] = spent(client, key=found["id"])
    if as_json:
        print_json(found)
    else:
        print_fields(_fields(found, place.money()))


def _line(token: KeyRecord, money: Money) -> Iterator[Cell]:
    yield token["id"]
    yield shorten(token["name"])
    yield token["group"]
    yield token["display"]
    yield style_state(effective_state(token))
    yield format_time(token["expires_at"])
    yield format_time(token["last_used_at"])
    yield right_align(token["requests"])
    yield right_align(format_units(token["cost_micro"]))
    if (priced := format_price(token["cost_micro"], money)) is not None:
        yield right_align(priced)
    yield shorten(f"! {token['changed']}") if token["changed"] else ""


def _fields(token: KeyRecord, money: Money) -> Iterator[tuple[str, Cell]]:
    yield "Id", token["id"]
    yield "Name", token["name"]
    yield "Group", token["group"]
    yield "Key", token["display"]
    if until := old_key_expiry(token):
        yield "Old key", f"{token['old_display']} still works until {format_time(until)}"
    yield "State", style_state(effective_state(token))
    yield "Note", token["note"]
    yield "Created", format_time(token["created_at"])
    yield "Revoked", format_time(token["revoked_at"])
    yield "Expires", format_time(token["expires_at"])
    yield "Probe", "yes: models, counts of tokens and health only" if token["probe"] else "no"
    yield "Models", _listed(token["models"], "all of its group")
    yield "Addresses", _listed(token["addresses"], "all")
    yield "User agents", _listed(token["user_agents"], "all that its group allows")
    yield from limit_fields(token["limits"], token["spent_micro"], money)
    yield "First used", _first(token)
    yield "Last used", format_time(token["last_used_at"])
    if token["changed"]:
        yield "!", f"{token['changed']}, at {format_time(token['changed_at'])}"
    yield "Requests", format_count(token["requests"])
    yield "Input tokens", format_count(token["input_tokens"])
    yield "Output tokens", format_count(token["output_tokens"])
    yield "Spent", format_cost(token["cost_micro"], money)


def _listed(patterns: list[str] | None, without: str) -> str:
    return without if patterns is None else "  ".join(patterns)


def _first(token: KeyRecord) -> str | None:
    if token["first_used_at"] is None:
        return None
    whence = f" from {token['first_address']}" if token["first_address"] else ""
    by = f" by {token['first_agent']}" if token["first_agent"] else ""
    return f"{format_time(token['first_used_at'])}{whence}{by}"
