"""The account that produced a reply, stored in Valkey: a request that continues the reply at
another replica is routed to the same account."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.config.schema import Config
from gateway.fleet.valkey.connection import Connection, load_script
from gateway.fleet.valkey.errors import SharedError
from gateway.routing.account_identity import account_identities
from gateway.routing.affinity import AffinityIndex, RecordedReply
from gateway.routing.health import AccountRef

TTL: Final = 3600
"""Seconds for which the account of a reply is stored."""
MAX_PER_MINUTE: Final = 10_000
"""Replies of all replicas that are stored in a minute; further ones stay in their replica's
memory."""

_RECORD: Final = load_script("affinity_record")


class SharedAffinity:
    """Records each reply of the local index in Valkey. Ids and accounts are stored as digests."""

    def __init__(
        self, connection: Connection, index: AffinityIndex, config: Callable[[], Config]
    ) -> None:
        self._connection, self._index, self._config = connection, index, config
        self._identified: Config | None = None
        self._identities: dict[AccountRef, str] = {}
        self._refs: dict[str, AccountRef] = {}
        index.on_record = self._record

    async def look_up(self, digest: bytes) -> None:
        """Load a reply that the local index does not have, if another replica has stored it. A
        server that cannot be used counts as none."""
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
