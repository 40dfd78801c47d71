"""`gateway key`: who may use the gateway. It must not know how a key is made or kept."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli.client import CommandRefused, connect, quote_path
from gateway.cli.key_import import import_keys
from gateway.cli.key_show import list_, show
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.reference import KeyRecord, old_key_expiry, find_key, effective_state
from gateway.cli.screen import print_note, print_json, format_time
from gateway.cli.terms import warn_unknown_models, with_key_options
from gateway.cli.typed import DURATION
from gateway.config import SOCKET_NAME
from gateway.store.lock import DEMO_NAME


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
