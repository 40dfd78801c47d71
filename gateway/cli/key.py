"""`gateway key`: create, change, rotate, list and revoke keys. The import is in `key_import`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from gateway.admin.units import format_cost
from gateway.cli.budgets import cost_columns, dimension_cell, get_spent, limit_columns
from gateway.cli.client import Client, connect, database_server, quote_path
from gateway.cli.errors import CommandRefused
from gateway.cli.key_import import import_keys
from gateway.cli.options import (
    DURATION,
    CommandContext,
    now_us,
    subcommand,
    warn_unknown_models,
    warn_unpriced,
    with_key_options,
)
from gateway.cli.output import (
    Cell,
    Column,
    format_time,
    print_note,
    print_record,
    shorten,
    style_state,
)
from gateway.config.locate import SOCKET_NAME
from gateway.store.keys import well_formed
from gateway.store.sqlite.lock import DEMO_NAME

if TYPE_CHECKING:  # commands start without what validates configurations
    from gateway.config.limits import Money

KeyRecord = dict[str, Any]
"""A key as the admin API returns it."""


def find_key(client: Client, reference: str) -> KeyRecord:
    """The key with this id, or with this name: names need not be unique, but a key that is not
    revoked is preferred. Raises CommandRefused."""
    keys: list[KeyRecord] = client.get("/keys")["keys"]
    if matches := [key for key in keys if key["id"] == reference]:
        return matches[0]
    if well_formed(reference):
        raise CommandRefused("That is a secret: use the key's id, see `gateway key list`.")
    matches = [key for key in keys if key["name"] == reference]
    matches = [key for key in matches if key["state"] != "revoked"] or matches
    if not matches:
        raise CommandRefused(f"No key has the id or name {reference}.")
    if len(matches) > 1:
        ids = "\n".join(f"  {key['id']}  {key['display']}  {key['state']}" for key in matches)
        raise CommandRefused(f"{len(matches)} keys have the name {reference}; use an id:\n{ids}")
    return matches[0]


def key_names(client: Client) -> dict[str, str]:
    """Key id → name."""
    return {key["id"]: key["name"] for key in client.get("/keys")["keys"]}


def old_key_expiry(key: KeyRecord) -> int | None:
    """Returns when the secret from before the last rotation expires; None if it has."""
    expiry = key["old_expires_at"]
    if expiry is not None and key["expires_at"] is not None:
        expiry = min(expiry, key["expires_at"])
    return None if expiry is None or expiry <= now_us() else int(expiry)


def effective_state(key: KeyRecord) -> str:
    """Tells why every request of an active key is refused, if so, else its state."""
    expired = key["expires_at"] is not None and key["expires_at"] <= now_us()
    is_expired = expired and key["state"] == "active"  # also known where no gateway runs
    return "expired" if is_expired else str(key.get("refused") or key["state"])


def _old_key(key: KeyRecord) -> str | None:
    expiry = old_key_expiry(key)
    return f"{key['old_display']} works until {format_time(expiry)}" if expiry else None


def _first_use(key: KeyRecord) -> str | None:
    if key["first_used_at"] is None:
        return None
    address = f" from {key['first_address']}" if key["first_address"] else ""
    agent = f" by {key['first_agent']}" if key["first_agent"] else ""
    return f"{format_time(key['first_used_at'])}{address}{agent}"


def _state(key: KeyRecord) -> Cell:
    return style_state(effective_state(key))


def _warning(key: KeyRecord) -> Cell:
    return shorten(f"! {key['changed']}") if key["changed"] else ""


_LIST_COLUMNS: Final[dict[str, Column]] = {
    "Name": lambda key: shorten(key["name"]),
    "Id": "id",
    "Group": "group",
    "Key": "display",
    "State": _state,
    "Expires": "expires_at",
    "Last used": "last_used_at",
    "Requests": "requests",
}


def _detail_columns(money: Money | None) -> dict[str, Column]:
    return {
        "Id": "id",
        "Name": "name",
        "Group": "group",
        "Key": "display",
        "Old key": _old_key,
        "State": _state,
        "Note": "note",
        "Created": "created_at",
        "Revoked": "revoked_at",
        "Expires": "expires_at",
        "Health-check key": lambda key: "yes" if key["probe"] else "no",
        "Cost in usage": lambda key: "yes" if key["cost_in_usage"] else "no",
        "Models": lambda key: _join(key["models"], "all of its group"),
        "Addresses": lambda key: _join(key["addresses"], "all"),
        "User agents": lambda key: _join(key["user_agents"], "all that its group allows"),
        "Trusted": lambda key: _join(key["trust"], "nothing"),
        **limit_columns(money),
        "Each end user": partial(dimension_cell, "end_user"),
        "Each session": partial(dimension_cell, "session"),
        "First used": _first_use,
        "Last used": "last_used_at",
        "Warning": lambda key: (
            f"{key['changed']}, at {format_time(key['changed_at'])}" if key["changed"] else None
        ),
        "Requests": "requests",
        "Input tokens": "input_tokens",
        "Output tokens": "output_tokens",
        "Cost": lambda key: format_cost(key["cost_micro"], key["usd_micro"], money),
    }


def _join(items: list[str] | None, default: str) -> str:
    return default if items is None else ", ".join(items)


_COPY_NOTE: Final = "Copy the key now: it is not shown again."

_REFERENCE: Final = click.argument("reference", metavar="KEY")
_LET_RUN: Final = click.option(
    "--let-run", is_flag=True, help="Let its background responses end by themselves."
)


@click.group()
def key() -> None:
    """Create, change, rotate, list and revoke keys.

    KEY is a key's id or name.
    """


key.add_command(import_keys)


@subcommand(key)
def list_(context: CommandContext) -> None:
    """List all keys, including revoked ones, and their usage.

    A ! marks a key that is used by a new client or from a new address: a possible leak.
    """
    with connect(context.state_dir, context.config) as client:
        keys = client.get("/keys")["keys"]
    columns = _LIST_COLUMNS | cost_columns(context.money(), keys) | {"": _warning}
    context.print_table(keys, columns)


@subcommand(key, _REFERENCE)
def show(context: CommandContext, reference: str) -> None:
    """Show all details of a key, including spent budgets.

    In JSON `spent_micro` has the spent amounts.
    """
    with connect(context.state_dir, context.config) as client:
        key = find_key(client, reference)
        key["spent_micro"] = get_spent(client, "key", key["id"])
    context.print(key, lambda _: print_record(key, _detail_columns(context.money())))


@subcommand(
    key,
    click.option("--name", required=True, help="A name for people; need not be unique."),
    click.option("--group", default="default", show_default=True, help="The group of the key."),
    with_key_options,
)
def mint(context: CommandContext, settings: dict[str, Any]) -> None:
    """Create a key. It is the last line of the output and is not shown again."""
    with connect(context.state_dir, context.config, may_create=True) as client:
        created = client.post("/keys", settings)
        is_standalone = client.is_standalone
    warn_unknown_models(context, settings.get("models"))
    warn_unpriced(context, settings)
    context.print(created, partial(_print_created, context, is_standalone))


@subcommand(
    key,
    _REFERENCE,
    click.option("--name", help="A name for people; need not be unique."),
    click.option("--group", help="The group of the key."),
    with_key_options,
)
def set_(context: CommandContext, reference: str, settings: dict[str, Any]) -> None:
    """Change a key, from the next request on.

    Omitted options change nothing; none clears a value.
    """
    changed = _patch(context, reference, settings)
    warn_unknown_models(context, settings.get("models"))
    warn_unpriced(context, settings)
    _report(context, changed, f"changed. Details: `gateway key show {changed['id']}`")


@subcommand(
    key,
    _REFERENCE,
    click.option(
        "--overlap",
        metavar="24h",
        type=DURATION,
        default="24h",
        show_default=True,
        help="How long the old key still works; 0: revoke it immediately.",
    ),
)
def rotate(context: CommandContext, reference: str, overlap: int) -> None:
    """Replace the secret of a key; its limits, budgets and totals stay.

    The new key is the last line of the output and is not shown again.
    """
    with connect(context.state_dir, context.config) as client:
        before = find_key(client, reference)
        rotated = client.post(f"{_path(before)}/rotate", {"overlap_s": overlap})
    context.print(rotated, partial(_print_rotated, before))


@subcommand(key, _REFERENCE, _LET_RUN)
def disable(context: CommandContext, reference: str, let_run: bool) -> None:
    """Reject a key until it is enabled, and cancel its background responses."""
    changes = {"state": "disabled"} | ({"let_run": True} if let_run else {})
    disabled = _patch(context, reference, changes)
    _report(context, disabled, f"disabled. To enable it: `gateway key enable {disabled['id']}`")


@subcommand(key, _REFERENCE)
def enable(context: CommandContext, reference: str) -> None:
    """Accept a disabled key again."""
    _report(context, _patch(context, reference, {"state": "active"}), "enabled.")


@subcommand(key, _REFERENCE, _LET_RUN)
def revoke(context: CommandContext, reference: str, let_run: bool) -> None:
    """Reject a key permanently, and cancel its background responses."""
    with connect(context.state_dir, context.config) as client:
        before = find_key(client, reference)
        revoked = client.delete(_path(before), let_run=let_run or None)
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
    with connect(context.state_dir, context.config) as client:
        changed: KeyRecord = client.patch(_path(find_key(client, reference)), changes)
    return changed


def _report(context: CommandContext, key: KeyRecord, message: str) -> None:
    def display(key: KeyRecord) -> None:
        print_note(f"{_label(key)} {message}")
        if key["state"] != "disabled":
            _print_hint(key)

    context.print(key, display)


def _print_hint(key: KeyRecord) -> None:
    """Prints why the key does not work, if so."""
    state = effective_state(key)
    if state == "disabled":
        print_note(f"It is disabled. To enable it: `gateway key enable {key['id']}`")
    elif state == "expired":
        print_note(
            f"It expired at {format_time(key['expires_at'])}."
            f" To extend it: `gateway key set {key['id']} --expires 30d`"
        )
    elif state not in ("active", "revoked"):
        print_note(f"Every request of it is refused: {state}.")


def _print_created(context: CommandContext, is_standalone: bool, key: KeyRecord) -> None:
    state_dir = context.state_dir.absolute()
    expiry = f" It expires at {format_time(key['expires_at'])}." if key["expires_at"] else ""
    print_note(f"Created key {_label(key)} in group {key['group']} of {state_dir}.{expiry}")
    _print_hint(key)
    if is_standalone:
        demo = context.state_dir / DEMO_NAME
        if database_server(context.config) is None:
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
