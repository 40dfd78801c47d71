"""The newest version of keys, published in Valkey for replicas that cannot reach the database."""

from __future__ import annotations

from typing import Final

from gateway.config.cluster import SharedServer
from gateway.fleet.valkey.connection import Connection, load_script
from gateway.fleet.valkey.errors import SharedError

_PUBLISH: Final = load_script("publish_version")


class PublishedVersion:
    """A `SharedVersion` of `fleet.changes`, on a connection of its own, so that nothing delays
    it."""

    def __init__(self, server: SharedServer, name: str) -> None:
        self._connection = Connection(server, f"{name} keys")
        self._is_open = False

    async def exchange(self, known: int, *, can_publish: bool) -> int | None:
        try:
            if not self._is_open:
                await self._connection.open()
                self._is_open = True
            key = f"{self._connection.root}key_version"
            newest = await self._connection.run(_PUBLISH, [key], [known, int(can_publish)])
        except SharedError as error:
            raise OSError(str(error)) from None
        return None if newest < 0 else int(newest)

    async def close(self) -> None:
        await self._connection.close()
