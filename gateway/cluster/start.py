"""The life of a replica in the cluster, from its registration until it leaves."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gateway.cluster.changes import Apply, Changes
from gateway.cluster.connection import ERRORS
from gateway.cluster.keys import KeyAppliers
from gateway.cluster.membership import Membership
from gateway.config.cluster import DatabaseServer
from gateway.config.schema import Config
from gateway.runtime import Runtime
from gateway.store.database import Database
from gateway.store.errors import error_reason
from gateway.store.postgresql.connection import server_failure

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    membership: Membership
    changes: Changes

    def follow(self, runtime: Runtime, appliers: Mapping[str, Apply]) -> None:
        """Apply the changes of other replicas from now on, and serve only while they are known.
        Call it once everything is loaded. `appliers`, by kind, are those for state outside the
        runtime."""
        keys = KeyAppliers(runtime)
        own: dict[str, Apply] = {
            "token": keys.tokens,
            "group": keys.groups,
            "account": keys.accounts,
        }
        self.changes.appliers.update({**own, **appliers})
        if runtime.config.shared is not None:
            from gateway.cluster.published_version import PublishedVersion

            name = self.membership.own.name
            self.changes.shared = PublishedVersion(runtime.config.shared, name)
        self.changes.start()
        runtime.contact = self.changes


@asynccontextmanager
async def joined(
    database: Database, server: DatabaseServer, config: Config, boot_id: str
) -> AsyncIterator[Member]:
    """Register this replica for the duration of the block. Raises StoreError."""
    membership = Membership(database, server, config, boot_id)
    own, clock, is_alone = membership.own, membership.clock, config.shared is None
    changes = Changes(server, database.changing, own, clock, is_alone=is_alone)
    try:
        if count := await membership.join():
            log.warning("%d exchanges were interrupted by the end of an earlier run", count)
        try:
            await changes.open()
        except ERRORS as error:
            text = f"changes of keys cannot be read: {error_reason(error)}"
            raise server_failure(text, error) from error
        yield Member(membership, changes)
    finally:
        await changes.close()
        await membership.leave()
