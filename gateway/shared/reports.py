"""Reports that replicas exchange through Valkey: the newest of each kind and replica."""

from __future__ import annotations

from typing import Any, Final

import orjson

from gateway.shared.connection import Connection
from gateway.shared.errors import SharedError

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
