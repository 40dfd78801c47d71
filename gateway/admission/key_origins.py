"""Who has used a key: the first to do so is remembered, and whoever is another is told of.

A key that turns up elsewhere may have been stolen, so the operator hears of it; nobody is refused.
It must not know requests.
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
"""Strangers that are told apart for each key: of more nobody is told."""

_MAX_CHARS: Final = 100

RecordOrigin = Callable[..., Awaitable[Any]]
"""`note_use` of the store, but for its database."""

log = logging.getLogger(__name__)


class KeyOriginMonitor:
    """`write` puts on record what is found; it is done beside the requests, which do not wait."""

    def __init__(self, registry: Registry, write: RecordOrigin, now: Callable[[], int]) -> None:
        self._registry = registry
        self._write = write
        self._now = now
        self._origins: dict[str, set[str]] = {}
        self._last_seen: dict[str, tuple[Token, str, str]] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    def observe(self, token: Token, address: str, user_agent: str) -> str | None:
        """What is new about who uses the key, where it is not the first use. Versions of the same
        client are one."""
        if self._last_seen.get(token.id) == (token, address, user_agent):
            return None
        odd = self._observe(token, address, user_agent)
        if odd is None and token.first_used_at is not None:
            self._last_seen[token.id] = token, address, user_agent
        return odd

    def _observe(self, token: Token, address: str, user_agent: str) -> str | None:
        address, client = _clip(address), client_product(user_agent)
        if token.first_used_at is None:
            self._record_first(token, address, client)
            return None
        if address == token.first_address and client == token.first_agent:
            return None
        return self._new_origin(token, address, client)

    async def close(self) -> None:
        """Everything is on record."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    def _record_first(self, token: Token, address: str, client: str) -> None:
        at = self._now()
        met = replace(token, first_used_at=at, first_address=address, first_agent=client)
        self._registry.put_token(met)
        self._save(token.id, first=(at, address, client), changed=None)

    def _new_origin(self, token: Token, address: str, client: str) -> str | None:
        known = self._origins.setdefault(token.id, set())
        what = _describe(token, address, client)
        if what in known or len(known) >= _MAX_ORIGINS:
            return None
        known.add(what)
        if what == token.changed:
            return None  # of an earlier run
        at = self._now()
        self._registry.put_token(replace(token, changed_at=at, changed=what))
        self._save(token.id, first=None, changed=(at, what))
        log.warning("key %s (%s) is used by somebody new: %s", token.name, token.id, what)
        return f"new: {what}"

    def _save(self, token_id: str, **found: Any) -> None:
        self._tasks.add(task := asyncio.ensure_future(self._write_origin(token_id, found)))
        task.add_done_callback(self._tasks.discard)

    async def _write_origin(self, token_id: str, found: dict[str, Any]) -> None:
        try:
            await self._write(token_id, **found)
        except Exception:  # a full disk, say: the warning is in the log, and requests go on
            log.warning("who uses key %s could not be put on record", token_id, exc_info=True)


def client_product(user_agent: str) -> str:
    """The client without its version: what stands before the first `/` or blank."""
    return _clip(user_agent.replace("/", " ", 1).partition(" ")[0])


def _clip(text: str) -> str:
    """What a client wrote of itself, as the ledger can hold it: nobody stays off the record by a
    byte that is no text."""
    return sanitize_text(text[:_MAX_CHARS])


def _describe(token: Token, address: str, client: str) -> str:
    told = []
    if address != token.first_address:
        told.append(f"address {address}, first {token.first_address}")
    if client != token.first_agent:
        told.append(f"client {client or 'without a name'}, first {token.first_agent or 'none'}")
    return "; ".join(told)
