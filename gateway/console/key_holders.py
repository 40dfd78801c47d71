"""Who may sign in with a key, and what they may do then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.admin.access.permissions import Permission
from gateway.errors import PermissionDenied
from gateway.runtime import Runtime
from gateway.store.keys import digest
from gateway.store.records import Token

_PERMISSIONS: Final[Mapping[str, frozenset[Permission]]] = {
    "off": frozenset(),
    "read": frozenset({Permission.OWN_KEY}),
    "rotate": frozenset({Permission.OWN_KEY, Permission.REPLACE_OWN_KEY}),
}


def accepts_keys(runtime: Runtime) -> bool:
    return runtime.config.console.key_holders != "off"


def permissions_of(runtime: Runtime, token: Token, address: str) -> frozenset[Permission]:
    """Those of the holder of an active key; none from an address that the key is not for."""
    try:
        runtime.permit(token).check_address(address)
    except PermissionDenied:
        return frozenset()
    return _PERMISSIONS[runtime.config.console.key_holders]


def find_token(runtime: Runtime, key: str, address: str) -> Token | None:
    """The token of a key that may sign in. Neither the key from before a rotation may, nor one that
    the playground has lent: the session of a key ends when the key is replaced."""
    hashed = digest(key.strip())
    token = runtime.registry.find(hashed)
    if token is None or token.digest != hashed:
        return None
    if token.has_expired(runtime.now()):
        return None
    return token if permissions_of(runtime, token, address) else None
