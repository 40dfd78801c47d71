"""Which account a reply came from, for requests that name it at another replica."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.config.schema import Config
from gateway.routing.account_identity import account_identities
from gateway.routing.affinity import AffinityIndex, RecordedReply
from gateway.routing.health import AccountRef
from gateway.shared.connection import Connection, Script
from gateway.shared.errors import SharedError

TTL: Final = 3600
"""Seconds that a reply is known."""
MAX_PER_MINUTE: Final = 10_000
"""Replies of the whole fleet: further ones are known to their own replica alone."""

_RECORD: Final = Script("affinity_record")


class SharedAffinity:
    """The server has digests of ids and accounts, nothing of conversations."""

    def __init__(
        self, connection: Connection, index: AffinityIndex, config: Callable[[], Config]
    ) -> None:
        self._connection, self._index, self._config = connection, index, config
        self._identified: Config | None = None
        self._identities: dict[AccountRef, str] = {}
        self._refs: dict[str, AccountRef] = {}
        index.on_record = self._record

    async def look_up(self, digest: bytes) -> None:
        """Of a reply that the index does not have: it has it then, if another replica does. Waits
        no longer than for any answer of the server."""
        try:
            stored = await self._connection.call("GET", self._name(digest))
        except SharedError:
            return
        if stored is None:
            return
        key, _, identity = stored.partition(b":")
        self._identify()
        ref = self._refs.get(identity.decode())
        if ref is not None:
            self._index.adopt(digest, RecordedReply(bytes.fromhex(key.decode()), ref))

    def _record(self, digest: bytes, reply: RecordedReply) -> None:
        self._identify()
        identity = self._identities.get(reply.account_ref)
        if identity is not None:
            root = self._connection.root
            names = self._name(digest), f"{root}affinity:minute"
            args = f"{reply.key.hex()}:{identity}", TTL, MAX_PER_MINUTE
            self._connection.post_run(_RECORD, names, args)

    def _name(self, digest: bytes) -> str:
        return f"{self._connection.root}affinity:{digest.hex()}"

    def _identify(self) -> None:
        config = self._config()
        if config is not self._identified:
            self._identified, self._identities = config, account_identities(config)
            self._refs = {identity: ref for ref, identity in self._identities.items()}
