"""Detects the use of a key by new clients or from new addresses, which can mean a leak.

The first use is recorded; later origins are logged, and no request is rejected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from gateway.store.records import Token, sanitize_text
from gateway.store.registry import Registry

_MAX_ORIGINS: Final = 64
"""New origins that are reported for each key."""

_MAX_CHARS: Final = 100

log = logging.getLogger(__name__)


class KeyOriginMonitor:
    """`write` is `record_origin` of the store, without its database; it runs in the background."""

    def __init__(
        self, registry: Registry, write: Callable[..., Awaitable[Any]], now: Callable[[], int]
    ) -> None:
        self.on_new_origin: Callable[[Token, str], None] | None = None
        """Called with the key and what differs from its first use; it must not raise."""
        self._registry = registry
        self._write = write
        self._now = now
        self._origins: dict[str, set[str]] = {}
        self._last_seen: dict[str, tuple[Token, str, str]] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    def observe(self, token: Token, address: str, user_agent: str) -> str | None:
        """A warning for a new origin after the first use. Versions of a client are the same
        client."""
        if self._last_seen.get(token.id) == (token, address, user_agent):
            return None
        if self._registry.is_lent(token.id):
            return None  # the console is no client
        clipped, client = _clip(address), client_product(user_agent)
        if token.first_used_at is None:
            self._record_first(token, clipped, client)
            return None
        warning = self._new_origin(token, clipped, client)
        if warning is None:
            self._last_seen[token.id] = token, address, user_agent
        return warning

    async def close(self) -> None:
        """Waits until everything is stored."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    def _record_first(self, token: Token, address: str, client: str) -> None:
        at = self._now()
        used = replace(token, first_used_at=at, first_address=address, first_agent=client)
        self._registry.put_token(used)
        self._save(token.id, first=(at, address, client))

    def _new_origin(self, token: Token, address: str, client: str) -> str | None:
        origin = _describe(token, address, client)
        if not origin:
            return None
        origins = self._origins.setdefault(token.id, set())
        if origin in origins or len(origins) >= _MAX_ORIGINS:
            return None
        origins.add(origin)
        if origin == token.changed:
            return None  # reported before a restart
        at = self._now()
        self._registry.put_token(replace(token, changed_at=at, changed=origin))
        self._save(token.id, changed=(at, origin))
        log.warning("key %s (%s) is used by a new client: %s", token.name, token.id, origin)
        if self.on_new_origin is not None:
            self.on_new_origin(token, origin)
        return f"new: {origin}"

    def _save(self, token_id: str, **fields: Any) -> None:
        self._tasks.add(task := asyncio.ensure_future(self._write_origin(token_id, fields)))
        task.add_done_callback(self._tasks.discard)

    async def _write_origin(self, token_id: str, fields: dict[str, Any]) -> None:
        try:
            await self._write(token_id, **fields)
        except Exception:  # such as a full disk: requests have to go on
            log.warning("the origin of key %s could not be stored", token_id, exc_info=True)


def client_product(user_agent: str) -> str:
    """The client without its version: the text before the first `/` or space."""
    return _clip(user_agent.replace("/", " ", 1).partition(" ")[0])


def _clip(text: str) -> str:
    return sanitize_text(text[:_MAX_CHARS])


def _describe(token: Token, address: str, client: str) -> str:
    """Describes what differs from the first use."""
    parts = []
    if address != token.first_address:
        parts.append(f"address {address}, first {token.first_address}")
    if client != token.first_agent:
        parts.append(f"client {client or 'without a name'}, first {token.first_agent or 'none'}")
    return "; ".join(parts)
