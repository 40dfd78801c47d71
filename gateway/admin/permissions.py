"""Which permission each handler of the console and of the admin API requires, and who has it.

A handler that states none is denied: whoever adds one has to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from gateway.store.records import Role, Scope


class Permission(StrEnum):
    READ = "read"
    """States, usage and the request log; no conversations."""
    KEYS = "keys"
    """Keys and groups."""
    OPERATE = "operate"
    """Accounts, and reloading the configuration."""
    ADMINISTER = "administer"
    """Admins, tokens, the audit log, and the conversations that are stored."""


EVERYTHING: Final = frozenset(Permission)

PERMISSIONS: Final[Mapping[Role | Scope, frozenset[Permission]]] = {
    Role.VIEWER: frozenset({Permission.READ}),
    Role.OPERATOR: frozenset({Permission.READ, Permission.KEYS, Permission.OPERATE}),
    Role.ADMIN: EVERYTHING,
    Scope.READ: frozenset({Permission.READ}),
    Scope.KEYS: frozenset({Permission.READ, Permission.KEYS}),
    Scope.ALL: EVERYTHING,
}


class Requirement(NamedTuple):
    """`action` is the one that the audit log has, None for reads that it does not have."""

    permission: Permission
    action: str | None


Handler = TypeVar("Handler", bound=Callable[..., Any])

_requirements: Final[WeakKeyDictionary[Callable[..., Any], Requirement]] = WeakKeyDictionary()


def requires(permission: Permission, action: str | None = None) -> Callable[[Handler], Handler]:
    """States the requirement of a handler. `action` is mandatory where it changes something."""

    def state(handler: Handler) -> Handler:
        _requirements[handler] = Requirement(permission, action)
        return handler

    return state


def requirement_of(handler: Callable[..., Any]) -> Requirement | None:
    return _requirements.get(getattr(handler, "__func__", handler))
