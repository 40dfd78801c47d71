"""`gateway key`: who may use the gateway. It must not know how a key is made or kept."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli.client import Refused, connect, part
from gateway.cli.key_import import import_
from gateway.cli.key_show import list_, show
from gateway.cli.options import Place, in_json, placed
from gateway.cli.reference import Fields, old_until, pick, state_of
from gateway.cli.screen import note, print_json, when
from gateway.cli.terms import warn_of_strangers, with_key_terms
from gateway.cli.typed import LASTING
from gateway.config import SOCKET_NAME
from gateway.store.lock import DEMO_NAME


@click.group()
def key() -> None:
    """Mint, change, rotate, list and revoke the keys that clients show.

    KEY is a key's id or name. Options that are left out change nothing, `none` clears.
    """


key.add_command(import_)
key.add_command(list_)
key.add_command(show)


@key.command()
@click.option("--name", required=True, help="For people; need not be unique.")
@click.option("--group", default="default", show_default=True, help="What the key reaches.")
@with_key_terms
@in_json
@placed
def mint(place: Place, name: str, group: str, terms: dict[str, Any], as_json: bool) -> None:
    """Make a key. It is the last line of the output and is never shown again."""
    with connect(place.state_dir, may_create=True) as client:
        minted = client.post("/keys", {"name": name, "group": group} | terms)
        alone = client.alone
    warn_of_strangers(place, terms.get("models"))
    if as_json:
        print_json(minted)
        return
    until = f" It expires at {when(minted['expires_at'])}." if minted["expires_at"] else ""
    note(
        f"A key for {minted['name']} in group {minted['group']}: its id is {minted['id']}, its "
        f"record is in {place.state_dir.absolute()}.{until}\n"
        "Only its digest is kept: this is the one time you can see it."
    )
    if alone:
        note(
            f"No gateway runs on {place.state_dir.absolute()}: one that is started there will know "
            f"the key.{_demonstration(place)}"
        )
    hand_over(minted["key"], minted["id"])


@key.command(name="set")
@click.argument("reference", metavar="KEY")
@click.option("--name", help="For people; need not be unique.")
@click.option("--group", help="What the key reaches.")
@with_key_terms
@in_json
@placed
def set_(
    place: Place,
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
    warn_of_strangers(place, terms.get("models"))
    _tell(changed, as_json, f"is changed: `gateway key show {changed['id']}` tells how it is now.")


@key.command()
@click.argument("reference", metavar="KEY")
@click.option(
    "--overlap",
    metavar="24h",
    type=LASTING,
    default="24h",
    show_default=True,
    help="For how long the old key still works; 0: not at all.",
)
@in_json
@placed
def rotate(place: Place, reference: str, overlap: int, as_json: bool) -> None:
    """Give a key a successor: the same limits, budget and totals under a new secret.

    The new key is the last line of the output and is never shown again.
    """
    with connect(place.state_dir) as client:
        before = pick(client.get("/keys")["keys"], reference)
        path = f"/keys/{part(before['id'])}/rotate"
        rotated = client.post(path, {"overlap_s": overlap})
    if as_json:
        print_json(rotated)
        return
    note(f"A new key for {rotated['name']} ({rotated['id']}).")
    until = old_until(rotated)
    works = f"still works until {when(until)}" if until else "works no more"
    note(f"The old one, {before['display']}, {works}.")
    if old_until(before):
        note(f"The one before it, {before['old_display']}, works no more.")
    _hint(rotated)
    note("Only its digest is kept: this is the one time you can see it.")
    hand_over(rotated["key"], rotated["id"])


@key.command()
@click.argument("reference", metavar="KEY")
@in_json
@placed
def disable(place: Place, reference: str, as_json: bool) -> None:
    """Refuse a key from the next request on, until it is enabled again."""
    disabled = _patch(place, reference, {"state": "disabled"})
    _tell(disabled, as_json, f"is refused until `gateway key enable {disabled['id']}`.")


@key.command()
@click.argument("reference", metavar="KEY")
@in_json
@placed
def enable(place: Place, reference: str, as_json: bool) -> None:
    """Accept a key again that was disabled."""
    enabled = _patch(place, reference, {"state": "active"})
    _tell(enabled, as_json, "is enabled.")


@key.command()
@click.argument("reference", metavar="KEY")
@in_json
@placed
def revoke(place: Place, reference: str, as_json: bool) -> None:
    """Revoke a key: it is refused from the next request on, for good."""
    with connect(place.state_dir) as client:
        found = pick(client.get("/keys")["keys"], reference)
        revoked = client.delete(f"/keys/{part(found['id'])}")
    if as_json:
        print_json(revoked)
    elif found["state"] != "revoked":
        note(f"Revoked: {revoked['name']} ({revoked['id']}).")
    else:
        when_revoked = when(revoked["revoked_at"])
        note(f"{revoked['name']} ({revoked['id']}) was revoked already, at {when_revoked}.")


def _patch(place: Place, reference: str, changes: dict[str, Any]) -> Fields:
    with connect(place.state_dir) as client:
        found = pick(client.get("/keys")["keys"], reference)
        changed: Fields = client.patch(f"/keys/{part(found['id'])}", changes)
    return changed


def _tell(token: Fields, as_json: bool, what: str) -> None:
    if as_json:
        print_json(token)
        return
    note(f"{token['name']} ({token['id']}) {what}")
    if token["state"] != "disabled":
        _hint(token)


def _hint(token: Fields) -> None:
    """What keeps the key from working, where anything does."""
    state = state_of(token)
    if state == "disabled":
        note(f"It is disabled: `gateway key enable {token['id']}` accepts it again.")
    elif state == "expired":
        note(
            f"It expired at {when(token['expires_at'])}:"
            f" `gateway key set {token['id']} --expires 30d` gives it more time."
        )


def hand_over(key: str, token_id: str) -> None:
    """Prints the key, of which nobody has another copy."""
    try:
        click.echo(key)
    except OSError as error:
        raise Refused(
            f"The key is made, but could not be printed ({error.strerror}): "
            f"`gateway key rotate {token_id} --overlap 0` gives another."
        ) from None


def _demonstration(place: Place) -> str:
    """Where a demonstration runs, it is most likely meant."""
    demo = place.state_dir / DEMO_NAME
    if not (demo / SOCKET_NAME).exists():
        return ""
    return f" The demonstration that runs does not: for it, add --state-dir {demo}."
