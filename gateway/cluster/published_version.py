"""The newest version of keys in Valkey: what replicas ask that cannot ask the database."""

from __future__ import annotations

from typing import Final

from gateway.config.cluster import SharedServer
from gateway.shared.connection import Connection, Script
from gateway.shared.errors import SharedError

_EXCHANGE: Final = Script(
    "key_version",
    """
local newest = tonumber(redis.call('GET', KEYS[1]) or -1)
local known = tonumber(ARGV[1])
if ARGV[2] == '1' and known > newest then
    redis.call('SET', KEYS[1], ARGV[1])
    return known
end
return newest
""",
)


class PublishedVersion:
    """A `SharedVersion` of `cluster.changes`, on a connection of its own: nothing delays it."""

    def __init__(self, server: SharedServer, name: str) -> None:
        self._connection = Connection(server, f"{name} keys")
        self._is_open = False

    async def exchange(self, known: int, *, can_publish: bool) -> int | None:
        try:
            if not self._is_open:
                await self._connection.open()
                self._is_open = True
            key = f"{self._connection.root}key_version"
            newest = await self._connection.run(_EXCHANGE, [key], [known, int(can_publish)])
        except SharedError as error:
            raise OSError(str(error)) from None
        return None if newest < 0 else int(newest)

    async def close(self) -> None:
        await self._connection.close()
