"""`gateway key list` and `gateway key show`. They must not know how a key is changed.

`gateway key`: who may use the gateway. It must not know how a key is made or kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from gateway.admin.units import format_cost, format_count, format_price, format_units
from gateway.cli.budgets import limit_fields, spent
from gateway.cli.client import CommandRefused, connect, quote_path
from gateway.cli.find_key import KeyRecord, effective_state, find_key, old_key_expiry
from gateway.cli.key_import import import_keys
from gateway.cli.key_options import warn_unknown_models, with_key_options
from gateway.cli.option_types import DURATION
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.output import (
    Cell,
    format_time,
    print_fields,
    print_json,
    print_note,
    print_table,
    right_align,
    shorten,
    style_state,
)
from gateway.config import SOCKET_NAME, Money
from gateway.store.lock import DEMO_NAME


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


@click.group()
def key() -> None:
    """Mint, change, rotate, list and revoke the keys that clients show.

    KEY is a key's id or name. Options that are left out change nothing, `none` clears.
    """


key.add_command(import_keys)
key.add_command(list_)
key.add_command(show)


@key.command()
@click.option("--name", required=True, help="For people; need not be unique.")
@click.option("--group", default="default", show_default=True, help="What the key reaches.")
@with_key_options
@with_json
@with_location
def mint(place: Location, name: str, group: str, terms: dict[str, Any], as_json: bool) -> None:
    """Make a key. It is the last line of the output and is never shown again."""
    with connect(place.state_dir, may_create=True) as client:
        minted = client.post("/keys", {"name": name, "group": group} | terms)
        alone = client.is_standalone
    warn_unknown_models(place, terms.get("models"))
    if as_json:
        print_json(minted)
        return
    until = f" It expires at {format_time(minted['expires_at'])}." if minted["expires_at"] else ""
    print_note(
        f"A key for {minted['name']} in group {minted['group']}: its id is {minted['id']}, its "
        f"record is in {place.state_dir.absolute()}.{until}\n"
        "Only its digest is kept: this is the one time you can see it."
    )
    if alone:
        print_note(
            f"No gateway runs on {place.state_dir.absolute()}: one that is started there will know "
            f"the key.{_demonstration(place)}"
        )
    print_key(minted["key"], minted["id"])


@key.command(name="set")
@click.argument("reference", metavar="KEY")
@click.option("--name", help="For people; need not be unique.")
@click.option("--group", help="What the key reaches.")
@with_key_options
@with_json
@with_location
def set_(
    place: Location,
    reference: str,
    name: str | None,
    group: str | None,
    terms: dict[str, Any],
    as_json: bool,
) -> None:
    """Change a key; binding from the next request on.

    Options that are left out change nothing, none clears.
    """
    stated = {"name": name, "group": group}
    changes = {field: value for field, value in stated.items() if value is not None} | terms
    if not changes:
        raise click.UsageError("Nothing to change: name what is to be another, such as --rpm 600.")
    changed = _patch(place, reference, changes)
    warn_unknown_models(place, terms.get("models"))
    _tell(changed, as_json, f"is changed: `gateway key show {changed['id']}` tells how it is now.")


@key.command()
@click.argument("reference", metavar="KEY")
@click.option(
    "--overlap",
    metavar="24h",
    type=DURATION,
    default="24h",
    show_default=True,
    help="For how long the old key still works; 0: not at all.",
)
@with_json
@with_location
def rotate(place: Location, reference: str, overlap: int, as_json: bool) -> None:
    """Give a key a successor: the same limits, budget and totals under a new secret.

    The new key is the last line of the output and is never shown again.
    """
    with connect(place.state_dir) as client:
        before = find_key(client.get("/keys")["keys"], reference)
        path = f"/keys/{quote_path(before['id'])}/rotate"
        rotated = client.post(path, {"overlap_s": overlap})
    if as_json:
        print_json(rotated)
        return
    print_note(f"A new key for {rotated['name']} ({rotated['id']}).")
    until = old_key_expiry(rotated)
    works = f"still works until {format_time(until)}" if until else "works no more"
    print_note(f"The old one, {before['display']}, {works}.")
    if old_key_expiry(before):
        print_note(f"The one before it, {before['old_display']}, works no more.")
    _hint(rotated)
    print_note("Only its digest is kept: this is the one time you can see it.")
    print_key(rotated["key"], rotated["id"])


@key.command()
@click.argument("reference", metavar="KEY")
@with_json
@with_location
def disable(place: Location, reference: str, as_json: bool) -> None:
    """Refuse a key from the next request on, until it is enabled again."""
    disabled = _patch(place, reference, {"state": "disabled"})
    _tell(disabled, as_json, f"is refused until `gateway key enable {disabled['id']}`.")


@key.command()
@click.argument("reference", metavar="KEY")
@with_json
@with_location
def enable(place: Location, reference: str, as_json: bool) -> None:
    """Accept a key again that was disabled."""
    enabled = _patch(place, reference, {"state": "active"})
    _tell(enabled, as_json, "is enabled.")


@key.command()
@click.argument("reference", metavar="KEY")
@with_json
@with_location
def revoke(place: Location, reference: str, as_json: bool) -> None:
    """Revoke a key: it is refused from the next request on, for good."""
    with connect(place.state_dir) as client:
        found = find_key(client.get("/keys")["keys"], reference)
        revoked = client.delete(f"/keys/{quote_path(found['id'])}")
    if as_json:
        print_json(revoked)
    elif found["state"] != "revoked":
        print_note(f"Revoked: {revoked['name']} ({revoked['id']}).")
    else:
        when_revoked = format_time(revoked["revoked_at"])
        print_note(f"{revoked['name']} ({revoked['id']}) was revoked already, at {when_revoked}.")


def _patch(place: Location, reference: str, changes: dict[str, Any]) -> KeyRecord:
    with connect(place.state_dir) as client:
        found = find_key(client.get("/keys")["keys"], reference)
        changed: KeyRecord = client.patch(f"/keys/{quote_path(found['id'])}", changes)
    return changed


def _tell(token: KeyRecord, as_json: bool, what: str) -> None:
    if as_json:
        print_json(token)
        return
    print_note(f"{token['name']} ({token['id']}) {what}")
    if token["state"] != "disabled":
        _hint(token)


def _hint(token: KeyRecord) -> None:
    """What keeps the key from working, where anything does."""
    state = effective_state(token)
    if state == "disabled":
        print_note(f"It is disabled: `gateway key enable {token['id']}` accepts it again.")
    elif state == "expired":
        print_note(
            f"It expired at {format_time(token['expires_at'])}:"
            f" `gateway key set {token['id']} --expires 30d` gives it more time."
        )


def print_key(key: str, token_id: str) -> None:
    """Prints the key, of which nobody has another copy."""
    try:
        click.echo(key)
    except OSError as error:
        raise CommandRefused(
            f"The key is made, but could not be printed ({error.strerror}): "
            f"`gateway key rotate {token_id} --overlap 0` gives another."
        ) from None


def _demonstration(place: Location) -> str:
    """Where a demonstration runs, it is most likely meant."""
    demo = place.state_dir / DEMO_NAME
    if not (demo / SOCKET_NAME).exists():
        return ""
    return f" The demonstration that runs does not: for it, add --state-dir {demo}."
