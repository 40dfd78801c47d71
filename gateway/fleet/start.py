"""The life of a replica in the cluster, from its registration until it leaves."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gateway.config.cluster import DatabaseServer
from gateway.config.schema import Config
from gateway.fleet.changes import Apply, Changes, SharedVersion
from gateway.fleet.connection import ERRORS
from gateway.fleet.keys import KeyAppliers
from gateway.fleet.membership import Membership
from gateway.runtime import Runtime
from gateway.store.database import Database
from gateway.store.errors import error_reason
from gateway.store.postgresql.connection import server_failure

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    server: DatabaseServer
    membership: Membership
    changes: Changes

    def follow(self, runtime: Runtime, appliers: Mapping[str, Apply]) -> None:
        """Apply the changes of other replicas from now on. Call it once everything is loaded.
        `appliers`, by kind, are those for state outside the runtime."""
        keys = KeyAppliers(runtime)
        own: dict[str, Apply] = {
            "token": keys.tokens,
            "group": keys.groups,
            "account": keys.accounts,
        }
        self.changes.start({**own, **appliers})


@asynccontextmanager
async def joined(
    database: Database, server: DatabaseServer, config: Config, boot_id: str
) -> AsyncIterator[Member]:
    """Register this replica for the duration of the block. Raises StoreError."""
    membership = Membership(database, server, config, boot_id)
    own, clock, shared = membership.own, membership.clock, None
    if config.shared is not None:
        shared = SharedVersion(config.shared, own.name)
    changes = Changes(server, database.changing, own, clock, shared)
    try:
        if count := await membership.join():
            log.warning("%d exchanges were interrupted by the end of an earlier run", count)
        try:
            await changes.open()
        except ERRORS as error:
            text = f"changes of keys cannot be read: {error_reason(error)}"
            raise server_failure(text, error) from error
        yield Member(server, membership, changes)
    finally:
        await changes.close()
        await membership.leave()
