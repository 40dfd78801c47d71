"""Deletes rows of the request log and of the audit log that are older than `logs.keep` and
`audit.keep`, and what is stored of replies and conversations once it has expired."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NoReturn

from gateway.admin.audit import Audit
from gateway.runtime import Runtime
from gateway.store import audit as store
from gateway.store.conversations import remove_unused
from gateway.store.database import Database
from gateway.store.retention import delete_before

CHECK_INTERVAL: Final = 600.0
"""Seconds."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def run_retention(runtime: Runtime, database: Database, audit: Audit) -> AsyncIterator[None]:
    task = asyncio.ensure_future(_run(runtime, database, audit))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _run(runtime: Runtime, database: Database, audit: Audit) -> NoReturn:
    while True:
        try:
            await delete_old_rows(runtime, database)
            await delete_expired_replies(runtime)
            await delete_unused_conversations(runtime, database)
            await delete_old_actions(runtime, audit)
        except Exception:  # such as a full disk: the next round tries again
            log.exception("old rows could not be deleted")
        await asyncio.sleep(CHECK_INTERVAL)


async def delete_old_rows(runtime: Runtime, database: Database) -> int:
    """Returns the number of deleted rows, which are those of whole hours."""
    keep = runtime.config.logs.keep
    if keep is None:
        return 0
    deleted = await delete_before(database, runtime.now() - int(keep * 1e6))
    if deleted:
        log.info("deleted %d rows of the request log that were older than logs.keep", deleted)
    return deleted


async def delete_expired_replies(runtime: Runtime) -> int:
    """Returns the number of deleted replies."""
    deleted = await runtime.replies.delete_expired()
    if deleted:
        log.info("deleted %d stored replies that had expired", deleted)
    return deleted


async def delete_unused_conversations(runtime: Runtime, database: Database) -> int:
    """Returns the number of deleted conversations."""
    deleted = 0
    before = runtime.now() - int(runtime.config.responses.ttl * 1e6)
    while count := await remove_unused(database, before):
        deleted += count
    if deleted:
        log.info("deleted %d conversations that were not used for responses.ttl", deleted)
    return deleted


async def delete_old_actions(runtime: Runtime, audit: Audit) -> int:
    """Returns the number of deleted rows of the audit log. Rows that wait are written first."""
    await audit.flush()
    keep = runtime.config.audit.keep
    if keep is None:
        return 0
    deleted = await store.delete_before(audit.database, runtime.now() - int(keep * 1e6))
    if deleted:
        log.info("deleted %d rows of the audit log that were older than audit.keep", deleted)
    return deleted
