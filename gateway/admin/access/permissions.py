"""Permissions of the console and the admin API, and the actor of a request."""

from __future__ import annotations

import asyncio
import pwd
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from aiohttp import web

from gateway.admin.errors import PermissionRequired
from gateway.core.text import escape_unprintable
from gateway.core.value import value
from gateway.store.records import Role, Scope, Token


class Permission(StrEnum):
    READ = "read"
    """States, usage and the request log; no conversations."""
    KEYS = "keys"
    """Keys and groups."""
    OPERATE = "operate"
    """Accounts, and reloading the configuration."""
    ADMINISTER = "administer"
    """Admins, tokens, the audit log, and the conversations that are stored."""
    OWN_KEY = "own_key"
    """The usage and the limits of the key that has signed in."""
    REPLACE_OWN_KEY = "replace_own_key"
    """Rotating that key."""


OF_HOLDERS: Final = frozenset({Permission.OWN_KEY, Permission.REPLACE_OWN_KEY})
"""The permissions of who has signed in with a key, and of nobody else."""
EVERYTHING: Final = frozenset(Permission) - OF_HOLDERS

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


_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid
_MAX_NAME: Final = 200


@value
class Actor:
    """`name` is that of the audit log: a kind, a colon and a name. `address` is the client's."""

    name: str
    address: str | None = None
    permissions: frozenset[Permission] = EVERYTHING

    def may(self, permission: Permission | str) -> bool:
        return permission in self.permissions

    def require(self, permission: Permission) -> None:
        """Raises PermissionRequired."""
        if permission not in self.permissions:
            raise PermissionRequired(permission, self.name)


GATEWAY: Final = Actor("gateway")
FILE_WATCHER: Final = Actor("file watcher")
SIGNAL: Final = Actor("signal")

_current: Final[ContextVar[Actor]] = ContextVar("actor", default=GATEWAY)


def current_actor() -> Actor:
    """The gateway itself outside of a request."""
    return _current.get()


@contextmanager
def acting_as(actor: Actor) -> Iterator[None]:
    """Sets the actor for the block, also for tasks that are created within it."""
    before = _current.set(actor)
    try:
        yield
    finally:
        _current.reset(before)


def admin_actor(name: str) -> str:
    return f"admin: {name}"


def key_actor(token: Token) -> str:
    """The holder of a key."""
    return f"key: {token.name} ({token.id})"


async def socket_actor(request: web.Request) -> Actor:
    """The user of the process that is connected to the admin socket."""
    connection = request.get_extra_info("socket")
    if connection is None:
        return Actor("socket: disconnected")
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(packed)
    return Actor(f"socket: {await asyncio.to_thread(user_name, uid)}")


@lru_cache(100)
def user_name(uid: int) -> str:
    """The id and the name of a user. It may be looked up over a network."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
    return f"{uid}/{escape_unprintable(name)[:_MAX_NAME]}"
