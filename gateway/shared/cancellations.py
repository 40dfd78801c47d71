"""Cancellation of background responses that run on another replica: a key in Valkey for each, which
all replicas poll."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from gateway.errors import ServiceUnavailable
from gateway.shared.connection import Connection
from gateway.shared.errors import SharedError

_TTL: Final = 60_000
"""Milliseconds."""

Key = tuple[str, str]
"""The id of a token and of its background response."""


class Cancellations:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def request(self, key: Key) -> None:
        """Raises `ServiceUnavailable` where the server cannot be used."""
        try:
            await self._connection.call("SET", self._name(key), 1, "PX", _TTL)
        except SharedError:
            raise ServiceUnavailable(detail="other replicas cannot be reached now") from None

    async def requested(self, keys: Sequence[Key]) -> list[Key]:
        """Those of the keys whose cancellation was requested in the last minute. A server that
        cannot be used counts as none: the connection itself tells of it, and who cancels learns it.
        """
        try:
            answers = await self._connection.call("MGET", *map(self._name, keys))
        except SharedError:
            return []
        return [key for key, answer in zip(keys, answers, strict=True) if answer is not None]

    def _name(self, key: Key) -> str:
        digest = blake2b("\0".join(key).encode(), digest_size=16).hexdigest()
        return f"{self._connection.root}cancel:{digest}"
