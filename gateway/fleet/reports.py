"""Messages between replicas through Valkey: reports, cancellations of background responses."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import orjson

from gateway.errors import ServiceUnavailable
from gateway.fleet.valkey.connection import Connection
from gateway.fleet.valkey.errors import SharedError

MAX_SIZE: Final = 256 * 1024
"""Bytes of a report; a larger one is not sent."""
_TTL: Final = 3_600_000
"""Milliseconds after which Valkey drops all reports of a kind, counted from the last one."""


class Reports:
    """`name` is the replica's."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name

    async def exchange(
        self, kind: str, report: dict[str, Any], at: int, max_age: float
    ) -> dict[str, dict[str, Any]]:
        """Store this replica's report and return the others' by replica name, without those older
        than `max_age` seconds. `at` is the current time (Unix µs of the database server). Empty if
        the server cannot be used."""
        key = f"{self._connection.root}reports:{kind}"
        text = orjson.dumps({"at": at, "report": report})
        try:
            if len(text) <= MAX_SIZE:
                self._connection.post("HSET", key, self._name, text)
                self._connection.post("PEXPIRE", key, _TTL)
            answer = await self._connection.call("HGETALL", key)
        except SharedError:
            return {}
        others: dict[str, dict[str, Any]] = {}
        for field, value in zip(answer[::2], answer[1::2], strict=True):
            name, sent = field.decode(), orjson.loads(value)
            if at - sent["at"] > max_age * 1e6:
                self._connection.post("HDEL", key, name)
            elif name != self._name:
                others[name] = sent["report"]
        return others


_CANCELLATION_TTL: Final = 60_000
"""Milliseconds."""

Key = tuple[str, str]
"""The id of a token and of its background response."""


class Cancellations:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def request(self, key: Key) -> None:
        """Raises `ServiceUnavailable` if the server cannot be used."""
        try:
            await self._connection.call("SET", self._name(key), 1, "PX", _CANCELLATION_TTL)
        except SharedError:
            raise ServiceUnavailable(detail="other replicas cannot be reached now") from None

    async def requested(self, keys: Sequence[Key]) -> list[Key]:
        """Returns the keys whose cancellation was requested in the last minute. A server that
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
