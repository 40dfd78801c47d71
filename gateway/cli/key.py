"""`gateway key`: create, change, rotate, list and revoke keys. The import is in `key_import`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import click

from gateway.admin.units import format_cost, format_count, format_price, format_units
from gateway.cli.budgets import get_spent, limit_fields
from gateway.cli.client import connect, quote_path
from gateway.cli.errors import CommandRefused
from gateway.cli.find_key import KeyRecord, effective_state, find_key, old_key_expiry
from gateway.cli.key_import import import_keys
from gateway.cli.key_options import warn_unknown_models, with_key_options
from gateway.cli.option_types import DURATION
from gateway.cli.options import CommandContext, with_context
from gateway.cli.output import (
    Cell,
    format_time,
    print_fields,
    print_note,
    print_table,
    right_align,
    shorten,
    style_state,
)
from gateway.config import SOCKET_NAME, Money
from gateway.store.lock import DEMO_NAME

_COPY_NOTE: Final = "Copy the key now: it is not shown again."

_REFERENCE: Final = click.argument("reference", metavar="KEY")


@click.group()
def key() -> None:
    """Create, change, rotate, list and revoke keys.

    KEY is a key's id or name.
    """


key.add_command(import_keys)


@key.command(name="list")
@with_context
def list_(context: CommandContext) -> None:
    """List all keys, including revoked ones, and their usage.

    A ! marks a key that is used by a new client or from a new address: a possible leak.
    """
    with connect(context.state_dir) as client:
        keys = client.get("/keys")["keys"]
    context.print(keys, partial(_print_keys, context))


@key.command()
@_REFERENCE
@with_context
def show(context: CommandContext, reference: str) -> None:
    """Show all details of a key, including spent budgets.

    In JSON `spent_micro` has the spent amounts.
    """
    with connect(context.state_dir) as client:
        found = find_key(client, reference)
        found["spent_micro"] = get_spent(client, key=found["id"])
    context.print(found, lambda _: print_fields(_details(found, context.money())))


@key.command()
@click.option("--name", required=True, help="A name for people; need not be unique.")
@click.option("--group", default="default", show_default=True, help="The group of the key.")
@with_key_options
@with_context
def mint(context: CommandContext, settings: dict[str, Any]) -> None:
    """Create a key. It is the last line of the output and is not shown again."""
    with connect(context.state_dir, may_create=True) as client:
        created = client.post("/keys", settings)
        is_standalone = client.is_standalone
    warn_unknown_models(context, settings.get("models"))
    context.print(created, partial(_print_created, context, is_standalone))


@key.command(name="set")
@_REFERENCE
@click.option("--name", help="A name for people; need not be unique.")
@click.option("--group", help="The group of the key.")
@with_key_options
@with_context
def set_(context: CommandContext, reference: str, settings: dict[str, Any]) -> None:
    """Change a key, from the next request on.

    Omitted options change nothing; none clears a value.
    """
    changed = _patch(context, reference, settings)
    warn_unknown_models(context, settings.get("models"))
    _report(context, changed, f"changed. Details: `gateway key show {changed['id']}`")


@key.command()
@_REFERENCE
@click.option(
    "--overlap",
    metavar="24h",
    type=DURATION,
    default="24h",
    show_default=True,
    help="How long the old key still works; 0: revoke it immediately.",
)
@with_context
def rotate(context: CommandContext, reference: str, overlap: int) -> None:
    """Replace the secret of a key; its limits, budgets and totals stay.

    The new key is the last line of the output and is not shown again.
    """
    with connect(context.state_dir) as client:
        before = find_key(client, reference)
        rotated = client.post(f"{_path(before)}/rotate", {"overlap_s": overlap})
    context.print(rotated, partial(_print_rotated, before))


@key.command()
@_REFERENCE
@with_context
def disable(context: CommandContext, reference: str) -> None:
    """Reject a key from the next request on, until it is enabled."""
    disabled = _patch(context, reference, {"state": "disabled"})
    _report(context, disabled, f"disabled. To enable it: `gateway key enable {disabled['id']}`")


@key.command()
@_REFERENCE
@with_context
def enable(context: CommandContext, reference: str) -> None:
    """Accept a disabled key again."""
    _report(context, _patch(context, reference, {"state": "active"}), "enabled.")


@key.command()
@_REFERENCE
@with_context
def revoke(context: CommandContext, reference: str) -> None:
    """Reject a key permanently, from the next request on."""
    with connect(context.state_dir) as client:
        before = find_key(client, reference)
        revoked = client.delete(_path(before))
    message = "revoked."
    if before["state"] == "revoked":
        message = f"was already revoked at {format_time(revoked['revoked_at'])}."
    context.print(revoked, lambda _: print_note(f"{_label(revoked)} {message}"))


def print_key(key: str, token_id: str) -> None:
    """Prints the only copy of a key."""
    try:
        click.echo(key)
    except OSError as error:
        raise CommandRefused(
            f"The key was created, but could not be printed ({error.strerror}). Replace it: "
            f"`gateway key rotate {token_id} --overlap 0`"
        ) from None


def _path(key: KeyRecord) -> str:
    return f"/keys/{quote_path(key['id'])}"


def _label(key: KeyRecord) -> str:
    return f"{key['name']} ({key['id']})"


def _patch(context: CommandContext, reference: str, changes: dict[str, Any]) -> KeyRecord:
    with connect(context.state_dir) as client:
        changed: KeyRecord = client.patch(_path(find_key(client, reference)), changes)
    return changed


def _report(context: CommandContext, key: KeyRecord, message: str) -> None:
    def display(key: KeyRecord) -> None:
        print_note(f"{_label(key)} {message}")
        if key["state"] != "disabled":
            _print_hint(key)

    context.print(key, display)


def _print_hint(key: KeyRecord) -> None:
    """Why the key does not work, if so."""
    state = effective_state(key)
    if state == "disabled":
        print_note(f"It is disabled. To enable it: `gateway key enable {key['id']}`")
    elif state == "expired":
        print_note(
            f"It expired at {format_time(key['expires_at'])}."
            f" To extend it: `gateway key set {key['id']} --expires 30d`"
        )


def _print_created(context: CommandContext, is_standalone: bool, key: KeyRecord) -> None:
    state_dir = context.state_dir.absolute()
    expiry = f" It expires at {format_time(key['expires_at'])}." if key["expires_at"] else ""
    print_note(f"Created key {_label(key)} in group {key['group']} of {state_dir}.{expiry}")
    if is_standalone:
        demo = context.state_dir / DEMO_NAME
        print_note("No gateway runs there; one that starts there will accept the key.")
        if (demo / SOCKET_NAME).exists():
            print_note(f"The running demo does not accept it: for the demo, use --state-dir {demo}")
    print_note(_COPY_NOTE)
    print_key(key["key"], key["id"])


def _print_rotated(before: KeyRecord, rotated: KeyRecord) -> None:
    expiry = old_key_expiry(rotated)
    status = f"works until {format_time(expiry)}" if expiry else "is revoked"
    print_note(f"Rotated key {_label(rotated)}.")
    print_note(f"The old key, {before['display']}, {status}.")
    if old_key_expiry(before):
        print_note(f"The key before it, {before['old_display']}, is revoked.")
    _print_hint(rotated)
    print_note(_COPY_NOTE)
    print_key(rotated["key"], rotated["id"])


def _print_keys(context: CommandContext, keys: list[KeyRecord]) -> None:
    money = context.money()
    price = ["Price"] if money.unit_price is not None else []
    print_table(
        (
            *("Id", "Name", "Group", "Key", "State", "Expires", "Last used", "Requests", "Units"),
            *price,
            "",
        ),
        (tuple(_cells(key, money)) for key in keys),
    )


def _cells(key: KeyRecord, money: Money) -> Iterator[Cell]:
    yield key["id"]
    yield shorten(key["name"])
    yield key["group"]
    yield key["display"]
    yield style_state(effective_state(key))
    yield format_time(key["expires_at"])
    yield format_time(key["last_used_at"])
    yield right_align(key["requests"])
    yield right_align(format_units(key["cost_micro"]))
    if (price := format_price(key["cost_micro"], money)) is not None:
        yield right_align(price)
    yield shorten(f"! {key['changed']}") if key["changed"] else ""


def _details(key: KeyRecord, money: Money) -> Iterator[tuple[str, Cell]]:
    yield "Id", key["id"]
    yield "Name", key["name"]
    yield "Group", key["group"]
    yield "Key", key["display"]
    if expiry := old_key_expiry(key):
        yield "Old key", f"{key['old_display']} works until {format_time(expiry)}"
    yield "State", style_state(effective_state(key))
    yield "Note", key["note"]
    yield "Created", format_time(key["created_at"])
    yield "Revoked", format_time(key["revoked_at"])
    yield "Expires", format_time(key["expires_at"])
    yield "Health-check key", "yes" if key["probe"] else "no"
    yield "Models", _join(key["models"], "all of its group")
    yield "Addresses", _join(key["addresses"], "all")
    yield "User agents", _join(key["user_agents"], "all that its group allows")
    yield from limit_fields(key["limits"], key["spent_micro"], money)
    yield "First used", _first_use(key)
    yield "Last used", format_time(key["last_used_at"])
    if key["changed"]:
        yield "!", f"{key['changed']}, at {format_time(key['changed_at'])}"
    yield "Requests", format_count(key["requests"])
    yield "Input tokens", format_count(key["input_tokens"])
    yield "Output tokens", format_count(key["output_tokens"])
    yield "Cost", format_cost(key["cost_micro"], money)


def _join(items: list[str] | None, default: str) -> str:
    return default if items is None else "  ".join(items)


def _first_use(key: KeyRecord) -> str | None:
    if key["first_used_at"] is None:
        return None
    address = f" from {key['first_address']}" if key["first_address"] else ""
    agent = f" by {key['first_agent']}" if key["first_agent"] else ""
    return f"{format_time(key['first_used_at'])}{address}{agent}"
