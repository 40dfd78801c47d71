"""Tokens of the admin API, for scripts. In memory, and in the database for the next start; of a
secret only its digest is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from secrets import token_hex
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from gateway.admin.access.audit import Audit
from gateway.admin.access.permissions import current_actor
from gateway.admin.errors import ExpiryPassed, TokenNameTaken, UnknownToken
from gateway.store import access as store
from gateway.store import keys
from gateway.store.errors import StoreError
from gateway.store.records import AdminToken, Scope

_SAVE_INTERVAL: Final = 60 * 1_000_000  # microseconds between two saves of the last use

log = logging.getLogger(__name__)


class AdminTokens:
    """`now` gives Unix microseconds."""

    def __init__(
        self, audit: Audit, now: Callable[[], int], tokens: Iterable[AdminToken] = ()
    ) -> None:
        self._audit = audit
        self._now = now
        self._tokens = {token.digest: token for token in tokens}
        self._saved_at: dict[str, int] = {}
        self._lock = asyncio.Lock()  # database and memory change together

    def all(self) -> list[AdminToken]:
        """Returns the tokens, oldest first, expired ones too."""
        return sorted(self._tokens.values(), key=lambda token: (token.created_at, token.id))

    def replace_all(self, tokens: Iterable[AdminToken]) -> None:
        """Replaces all by those that the database has now; what is known of their last use here may
        be newer."""
        self._tokens = {token.digest: self._with_last_use(token) for token in tokens}

    def _with_last_use(self, token: AdminToken) -> AdminToken:
        known = self._tokens.get(token.digest)
        if known is None or (known.last_used_at or 0) <= (token.last_used_at or 0):
            return token
        return replace(token, last_used_at=known.last_used_at, last_address=known.last_address)

    def find(self, secret: str) -> AdminToken | None:
        """The token of a secret, unless it has expired."""
        token = self._tokens.get(keys.digest(secret))
        return None if token is None or self.is_expired(token) else token

    def is_expired(self, token: AdminToken) -> bool:
        return token.expires_at is not None and token.expires_at <= self._now()

    async def create(
        self, name: str, scope: Scope, expires_at: int | None = None
    ) -> tuple[AdminToken, str]:
        """The token and its secret, which is stored nowhere. Raises TokenNameTaken and
        ExpiryPassed."""
        async with self._lock:
            now = self._now()
            if expires_at is not None and expires_at <= now:
                raise ExpiryPassed
            if any(each.name == name for each in self._tokens.values()):
                raise TokenNameTaken(name)
            secret = keys.generate_key(keys.ADMIN_PREFIX)
            token = AdminToken(
                id=f"adt_{token_hex(8)}",
                name=name,
                digest=keys.digest(secret),
                display=keys.display(secret, keys.ADMIN_PREFIX),
                scope=scope,
                created_at=now,
                created_by=current_actor().name,
                expires_at=expires_at,
            )
            writer = self._audit.change("admin_token.create", _label(token), after=_fields(token))
            await store.add_token(writer, token)
            self._tokens[token.digest] = token
        return token, secret

    async def revoke(self, reference: str) -> AdminToken:
        """Revokes a token by its id or its name. Raises UnknownToken."""
        async with self._lock:
            token = self.get(reference)
            writer = self._audit.change("admin_token.revoke", _label(token), before=_fields(token))
            await store.remove_token(writer, token.id)
            del self._tokens[token.digest]
            self._saved_at.pop(token.id, None)
        return token

    def get(self, reference: str) -> AdminToken:
        """Returns a token by its id or its name. Raises UnknownToken."""
        found = [each for each in self._tokens.values() if reference in (each.id, each.name)]
        if not found:
            raise UnknownToken(reference)
        # A name can be the id of another token.
        return next((each for each in found if each.id == reference), found[0])

    async def touch(self, token: AdminToken, address: str) -> None:
        """Notes the last use, and saves it once a minute."""
        now = self._now()
        used = replace(token, last_used_at=now, last_address=address)
        self._tokens[token.digest] = used
        if now - self._saved_at.get(token.id, 0) < _SAVE_INTERVAL:
            return
        self._saved_at[token.id] = now
        try:
            await store.touch_token(self._audit.database, used)
        except (SQLAlchemyError, StoreError) as error:
            # Such as a full disk: the request is served nevertheless.
            log.warning("the last use of an admin token could not be saved: %s", error)


def _label(token: AdminToken) -> str:
    return f"{token.name} ({token.id})"


def _fields(token: AdminToken) -> dict[str, Any]:
    return {"scope": token.scope, "expires_at": token.expires_at, "display": token.display}
