"""Which key a person means, and whether it opens anything. It must not know what is to be done
with it."""

from __future__ import annotations

from typing import Any

from gateway.cli.client import CommandRefused
from gateway.cli.option_types import now_us
from gateway.store.keys import well_formed

KeyRecord = dict[str, Any]
"""A token as the desk tells it."""


def find_key(keys: list[KeyRecord], reference: str) -> KeyRecord:
    """The key that a person means by an id or a name; a revoked one only if no other can be meant.
    Names need not be unique: raises Refused with the ids to choose from, or where there is none."""
    for each in keys:
        if each["id"] == reference:
            return each
    if well_formed(reference):
        raise CommandRefused(
            "That is a key itself: name it by its id, which `gateway key list` shows."
        )
    named = [each for each in keys if each["name"] == reference]
    named = [each for each in named if each["state"] != "revoked"] or named
    if not named:
        raise CommandRefused(f"No key has the id or name {reference}.")
    if len(named) > 1:
        ids = "\n".join(f"  {each['id']}  {each['display']}  {each['state']}" for each in named)
        raise CommandRefused(
            f"{len(named)} keys have the name {reference}: name one by its id.\n{ids}"
        )
    return named[0]


def old_key_expiry(token: KeyRecord) -> int | None:
    """When the key of before the last rotation ends, be it with the token; None where it has."""
    until = token["old_expires_at"]
    if until is not None and token["expires_at"] is not None:
        until = min(until, token["expires_at"])
    return None if until is None or until <= now_us() else int(until)


def effective_state(token: KeyRecord) -> str:
    """The token's state, where an active one may have expired."""
    expired = token["expires_at"] is not None and token["expires_at"] <= now_us()
    return "expired" if expired and token["state"] == "active" else str(token["state"])
