"""Finds a key by its id or name; its state at the current time."""

from __future__ import annotations

from typing import Any

from gateway.cli.client import Client
from gateway.cli.errors import CommandRefused
from gateway.cli.option_types import now_us
from gateway.store.keys import well_formed

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
    """When the secret from before the last rotation expires; None if it has."""
    expiry = key["old_expires_at"]
    if expiry is not None and key["expires_at"] is not None:
        expiry = min(expiry, key["expires_at"])
    return None if expiry is None or expiry <= now_us() else int(expiry)


def effective_state(key: KeyRecord) -> str:
    """Why every request of an active key is refused, if so, else its state."""
    expired = key["expires_at"] is not None and key["expires_at"] <= now_us()
    is_expired = expired and key["state"] == "active"  # also known where no gateway runs
    return "expired" if is_expired else str(key.get("refused") or key["state"])
