"""Has old rows of the ledger deleted, as the configuration in force says, while the gateway serves.

It must not know what is in them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NoReturn

from gateway.runtime import Runtime
from gateway.store.database import Database
from gateway.store.retention import delete_before

CHECK_INTERVAL: Final = 600.0
"""Seconds between two looks at what is too old; rows go by whole hours."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def run_retention(runtime: Runtime, database: Database) -> AsyncIterator[None]:
    """Until the block ends."""
    task = asyncio.ensure_future(_keep(runtime, database))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _keep(runtime: Runtime, database: Database) -> NoReturn:
    while True:
        try:
            await delete_old_rows(runtime, database)
        except Exception:  # a full disk, say: it is tried again
            log.exception("old rows of the ledger could not be deleted")
        await asyncio.sleep(CHECK_INTERVAL)


async def delete_old_rows(runtime: Runtime, database: Database) -> int:
    """Deletes what is too old now, and tells how many rows that were."""
    keep = runtime.config.logs.keep
    if keep is None:
        return 0
    deleted = await delete_before(database, runtime.now() - int(keep * 1e6))
    if deleted:
        log.info("%d rows of requests were older than logs.keep and are deleted", deleted)
    return deleted
