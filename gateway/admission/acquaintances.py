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

from gateway.store.batch import storable
from gateway.store.records import Token
from gateway.store.registry import Registry

_MOST: Final = 64
"""Strangers that are told apart for each key: of more nobody is told."""

_LONGEST: Final = 100

Note = Callable[..., Awaitable[Any]]
"""`note_use` of the store, but for its database."""

log = logging.getLogger(__name__)


class Acquaintances:
    """`write` puts on record what is found; it is done beside the requests, which do not wait."""

    def __init__(self, registry: Registry, write: Note, now: Callable[[], int]) -> None:
        self._registry = registry
        self._write = write
        self._now = now
        self._strangers: dict[str, set[str]] = {}
        self._latest: dict[str, tuple[Token, str, str]] = {}
        self._writing: set[asyncio.Future[None]] = set()

    def meet(self, token: Token, address: str, user_agent: str) -> str | None:
        """What is new about who uses the key, where it is not the first use. Versions of the same
        client are one."""
        if self._latest.get(token.id) == (token, address, user_agent):
            return None
        odd = self._meet(token, address, user_agent)
        if odd is None and token.first_used_at is not None:
            self._latest[token.id] = token, address, user_agent
        return odd

    def _meet(self, token: Token, address: str, user_agent: str) -> str | None:
        address, client = _storable(address), product(user_agent)
        if token.first_used_at is None:
            self._first(token, address, client)
            return None
        if address == token.first_address and client == token.first_agent:
            return None
        return self._stranger(token, address, client)

    async def close(self) -> None:
        """Everything is on record."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=5)

    def _first(self, token: Token, address: str, client: str) -> None:
        at = self._now()
        met = replace(token, first_used_at=at, first_address=address, first_agent=client)
        self._registry.put_token(met)
        self._put(token.id, first=(at, address, client), changed=None)

    def _stranger(self, token: Token, address: str, client: str) -> str | None:
        known = self._strangers.setdefault(token.id, set())
        what = _told(token, address, client)
        if what in known or len(known) >= _MOST:
            return None
        known.add(what)
        if what == token.changed:
            return None  # of an earlier run
        at = self._now()
        self._registry.put_token(replace(token, changed_at=at, changed=what))
        self._put(token.id, first=None, changed=(at, what))
        log.warning("key %s (%s) is used by somebody new: %s", token.name, token.id, what)
        return f"new: {what}"

    def _put(self, token_id: str, **found: Any) -> None:
        self._writing.add(task := asyncio.ensure_future(self._record(token_id, found)))
        task.add_done_callback(self._writing.discard)

    async def _record(self, token_id: str, found: dict[str, Any]) -> None:
        try:
            await self._write(token_id, **found)
        except Exception:  # a full disk, say: the warning is in the log, and requests go on
            log.warning("who uses key %s could not be put on record", token_id, exc_info=True)


def product(user_agent: str) -> str:
    """The client without its version: what stands before the first `/` or blank."""
    return _storable(user_agent.replace("/", " ", 1).partition(" ")[0])


def _storable(text: str) -> str:
    """What a client wrote of itself, as the ledger can hold it: nobody stays off the record by a
    byte that is no text."""
    return storable(text[:_LONGEST])


def _told(token: Token, address: str, client: str) -> str:
    told = []
    if address != token.first_address:
        told.append(f"address {address}, first {token.first_address}")
    if client != token.first_agent:
        told.append(f"client {client or 'without a name'}, first {token.first_agent or 'none'}")
    return "; ".join(told)
