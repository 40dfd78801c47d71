"""The admins: people with a name, a password and a role. In memory, and in the database for the
next start; of a password only its hash is stored."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from secrets import token_hex
from typing import Any, Final

from gateway.admin.access.audit import Audit
from gateway.admin.access.passwords import PasswordThread
from gateway.admin.errors import AdminExists, LastAdmin, UnknownAdmin
from gateway.store import access as store
from gateway.store.database import Writer
from gateway.store.records import Admin, Role

DEFAULT_NAME: Final = "admin"
"""The admin who signs in without a name, and whose password is set without one."""


class Admins:
    """`now` gives Unix microseconds. Names are compared as `normalize_name` returns them."""

    def __init__(self, audit: Audit, now: Callable[[], int], admins: Iterable[Admin] = ()) -> None:
        self._audit = audit
        self._now = now
        self._admins = {admin.name: admin for admin in admins}
        self._lock = asyncio.Lock()  # database and memory change together
        self._passwords = PasswordThread()

    async def close(self) -> None:
        """Waits for a running password check."""
        await self._passwords.close()

    def all(self) -> list[Admin]:
        """Returns the admins by name."""
        return sorted(self._admins.values(), key=lambda admin: admin.name)

    def find(self, name: str) -> Admin | None:
        return self._admins.get(normalize_name(name))

    def get(self, name: str) -> Admin:
        """Raises UnknownAdmin."""
        admin = self.find(name)
        if admin is None:
            raise UnknownAdmin(name)
        return admin

    def replace_all(self, admins: Iterable[Admin]) -> None:
        """Replaces all by those that the database has now. An admin that is the same stays the same
        object: its password may be being checked."""
        known = self._admins
        self._admins = {
            admin.name: old if (old := known.get(admin.name)) == admin else admin
            for admin in admins
        }

    async def verify(self, name: str, password: str) -> Admin | None:
        """The admin of that name and password. Takes as long for an unknown name; None too if the
        admin was changed meanwhile."""
        admin = self.find(name)
        digest = None if admin is None else admin.password_digest
        is_right = await self._passwords.verify(password, digest)
        return admin if is_right and self.find(name) is admin else None

    async def add(self, name: str, role: Role, password: str) -> Admin:
        """Raises AdminExists."""
        digest = await self._passwords.hash(password)
        async with self._lock:
            return await self._add(normalize_name(name), role, digest)

    async def update(
        self, name: str, *, role: Role | None = None, password: str | None = None
    ) -> Admin:
        """Ends the sessions of the admin, if anything changes. Raises UnknownAdmin and
        LastAdmin."""
        digest = None if password is None else await self._passwords.hash(password)
        async with self._lock:
            admin = self.get(name)
            if digest is None and role in (None, admin.role):
                self._audit.mark()
                return admin
            return await self._change(admin, role, digest)

    async def set_password(self, password: str) -> Admin:
        """Sets the password of the default admin, who is created if there is none. Ends its
        sessions."""
        digest = await self._passwords.hash(password)
        async with self._lock:
            admin = self.find(DEFAULT_NAME)
            if admin is None:
                return await self._add(DEFAULT_NAME, Role.ADMIN, digest)
            return await self._change(admin, None, digest)

    async def remove(self, name: str) -> None:
        """Ends the sessions of the admin. Raises UnknownAdmin and LastAdmin."""
        async with self._lock:
            admin = self.get(name)
            writer = self._audit.change("admin.remove", admin.name, before=_fields(admin))

            def remove(known: Mapping[str, Admin]) -> None:
                _check_not_last(known, admin.name)

            await self._write(writer, admin.name, remove)

    async def _add(self, name: str, role: Role, digest: str) -> Admin:
        now = self._now()
        admin = Admin(name, role, digest, token_hex(8), now, now)
        writer = self._audit.change("admin.add", name, after=_fields(admin))

        def add(known: Mapping[str, Admin]) -> Admin:
            if name in known:
                raise AdminExists(name)
            return admin

        await self._write(writer, name, add)
        return self._admins[name]

    async def _change(self, admin: Admin, role: Role | None, digest: str | None) -> Admin:
        """Changes an admin; `None` stays as the database has it."""
        changed: dict[str, Any] = {"epoch": token_hex(8)}
        if role is not None:
            changed["role"] = role
        if digest is not None:
            changed |= {"password_digest": digest, "password_at": self._now()}
        password = {} if digest is None else {"password": "changed"}
        after = {"role": role or admin.role} | password
        writer = self._audit.change("admin.set", admin.name, _fields(admin), after)

        def change(known: Mapping[str, Admin]) -> Admin:
            if role not in (None, Role.ADMIN):
                _check_not_last(known, admin.name)
            return replace(_find(known, admin.name), **changed)

        await self._write(writer, admin.name, change)
        return self._admins[admin.name]

    async def _write(
        self,
        writer: Writer,
        name: str,
        change: Callable[[Mapping[str, Admin]], Admin | None],
    ) -> None:
        changed = await store.change_admin(writer, name, change)
        if changed is None:
            self._admins.pop(name, None)
        else:
            self._admins[name] = changed


def _find(known: Mapping[str, Admin], name: str) -> Admin:
    if name not in known:
        raise UnknownAdmin(name)
    return known[name]


def _check_not_last(known: Mapping[str, Admin], name: str) -> None:
    """Raises UnknownAdmin and LastAdmin."""
    others = (each for each in known.values() if each.name != name)
    if _find(known, name).role is Role.ADMIN and not any(
        each.role is Role.ADMIN for each in others
    ):
        raise LastAdmin(name)


def normalize_name(name: str) -> str:
    """Names that look the same but for their case are one."""
    return unicodedata.normalize("NFKC", name).casefold().strip()


def _fields(admin: Admin) -> dict[str, Any]:
    return {"role": admin.role}
