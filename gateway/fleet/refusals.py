"""Shares what upstreams refuse between replicas: what one has learned, and an upstream has
confirmed by accepting a request without it, the others do not send either.

The server keeps it for as long as it is remembered, so that replicas that start know it. Without
the server each replica learns for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import orjson

from gateway.config.schema import Config
from gateway.fleet.valkey.connection import Connection
from gateway.fleet.valkey.errors import SharedError
from gateway.routing.account_identity import account_identities
from gateway.routing.health import AccountRef
from gateway.routing.refusals import LIFETIME, Refusals, UpstreamModel

_MAX_SIZE: Final = 4096
"""Bytes of one message."""


class SharedRefusals:
    """`config` returns the configuration in force. A channel is named by its first account, so that
    it is the same one in every replica whose file has it; times are Unix microseconds."""

    def __init__(
        self, connection: Connection, refusals: Refusals, config: Callable[[], Config]
    ) -> None:
        self._connection, self._refusals, self._config = connection, refusals, config
        self._key, self._channel = f"{connection.root}refusals", f"{connection.root}refusals:new"
        self._loading: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._refusals.on_learn = self._send
        self._connection.subscribe(self._channel, self._receive, self._begin)

    def _send(self, model: UpstreamModel, names: Iterable[str], until: int) -> None:
        channel = {ref[0]: each for ref, each in reversed(self._identities())}.get(model[0])
        text = orjson.dumps([channel, model[1], list(names), until])
        if channel is not None and len(text) <= _MAX_SIZE:
            field = orjson.dumps([channel, model[1], *names])
            self._connection.post("HSET", self._key, field, text)
            self._connection.post("PEXPIRE", self._key, LIFETIME // 1000)
            self._connection.post("PUBLISH", self._channel, text)

    def _receive(self, channel: bytes, message: bytes) -> None:
        channels = {each: ref[0] for ref, each in self._identities()}
        with suppress(TypeError, ValueError):  # of another release
            identity, model, names, until = orjson.loads(message)
            if (name := channels.get(identity)) is not None:
                self._refusals.adopt((name, model), names, until)

    def _begin(self) -> None:
        self._loading = asyncio.ensure_future(self._load())

    async def _load(self) -> None:
        """Adopts what the server keeps; what is over by now has no effect."""
        with suppress(SharedError):
            for message in await self._connection.call("HVALS", self._key):
                self._receive(b"", message)

    def _identities(self) -> list[tuple[AccountRef, str]]:
        return list(account_identities(self._config()).items())
