"""`gateway key`: who may use the gateway. It must not know how a key is made or kept."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli.client import Refused, connect, part
from gateway.cli.options import Place, in_json, placed
from gateway.cli.screen import note, print_fields, print_json, print_table, state, when
from gateway.store.keys import well_formed


@click.group()
def key() -> None:
    """Mint, list and revoke the keys that clients show."""


@key.command()
@click.option("--name", required=True, help="For people; need not be unique.")
@click.option("--group", default="default", show_default=True, help="What the key reaches.")
@in_json
@placed
def mint(place: Place, name: str, group: str, as_json: bool) -> None:
    """Make a key. It is the last line of the output and is never shown again."""
    with connect(place.state_dir, may_create=True) as client:
        minted = client.post("/keys", {"name": name, "group": group})
    if as_json:
        print_json(minted)
        return
    note(
        f"A key for {minted['name']} in group {minted['group']}: its id is {minted['id']}, its "
        f"record is in {place.state_dir.absolute()}.\n"
        "Only its digest is kept: this is the one time you can see it."
    )
    click.echo(minted["key"])


@key.command(name="list")
@in_json
@placed
def list_(place: Place, as_json: bool) -> None:
    """List all keys, revoked ones too, and what they have used."""
    with connect(place.state_dir) as client:
        keys = client.get("/keys")["keys"]
    if as_json:
        print_json(keys)
        return
    titles = ("Id", "Name", "Group", "Key", "State", "Last used", "Requests", "Input", "Output")
    print_table(
        titles,
        (
            (
                each["id"],
                each["name"],
                each["group"],
                each["display"],
                state(each["state"]),
                when(each["last_used_at"]),
                each["requests"],
                each["input_tokens"],
                each["output_tokens"],
            )
            for each in keys
        ),
    )


@key.command()
@click.argument("reference", metavar="ID|NAME")
@in_json
@placed
def show(place: Place, reference: str, as_json: bool) -> None:
    """Show all that is kept of a key."""
    with connect(place.state_dir) as client:
        found = pick(client.get("/keys")["keys"], reference)
    if as_json:
        print_json(found)
        return
    print_fields(
        (
            ("Id", found["id"]),
            ("Name", found["name"]),
            ("Group", found["group"]),
            ("Key", found["display"]),
            ("State", state(found["state"])),
            ("Created", when(found["created_at"])),
            ("Revoked", when(found["revoked_at"])),
            ("Last used", when(found["last_used_at"])),
            ("Requests", found["requests"]),
            ("Input tokens", found["input_tokens"]),
            ("Output tokens", found["output_tokens"]),
        )
    )


@key.command()
@click.argument("reference", metavar="ID|NAME")
@in_json
@placed
def revoke(place: Place, reference: str, as_json: bool) -> None:
    """Revoke a key: it is refused from the next request on, for good."""
    with connect(place.state_dir) as client:
        keys = client.get("/keys")["keys"]
        active = [each for each in keys if each["state"] == "active"]
        meant = any(reference in (each["id"], each["name"]) for each in active)
        found = pick(active if meant else keys, reference)
        revoked = client.delete(f"/keys/{part(found['id'])}")
    if as_json:
        print_json(revoked)
    elif meant:
        note(f"Revoked: {revoked['name']} ({revoked['id']}).")
    else:
        when_revoked = when(revoked["revoked_at"])
        note(f"{revoked['name']} ({revoked['id']}) was revoked already, at {when_revoked}.")


def pick(keys: list[dict[str, Any]], reference: str) -> dict[str, Any]:
    """The key that a person means by an id or a name. Names need not be unique: raises Refused
    with the ids to choose from, or where there is none."""
    for each in keys:
        if each["id"] == reference:
            return each
    if well_formed(reference):
        raise Refused("That is a key itself: name it by its id, which `gateway key list` shows.")
    named = [each for each in keys if each["name"] == reference]
    if not named:
        raise Refused(f"No key has the id or name {reference}.")
    if len(named) > 1:
        ids = "\n".join(f"  {each['id']}  {each['display']}  {each['state']}" for each in named)
        raise Refused(f"{len(named)} keys have the name {reference}: name one by its id.\n{ids}")
    return named[0]
