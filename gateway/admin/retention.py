"""Deletes rows of the request log and of the audit log that are older than `logs.keep` and
`audit.keep`, end users that are older than `logs.end_users.keep`, and what is stored of replies and
conversations once it has expired; then the file shrinks. On a server it also creates the days of
the request log ahead, and adds up usage by day. Sums of traffic are counted and folded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NoReturn

from gateway.admin.access.audit import Audit
from gateway.runtime import Runtime
from gateway.scheduler import running
from gateway.store import audit as store
from gateway.store.conversations import remove_unused
from gateway.store.database import Database
from gateway.store.errors import Busy
from gateway.store.log.links import begin_linking
from gateway.store.log.retention import clear_end_users, delete_before, has_much_free, shrink
from gateway.store.log.traffic import keep_traffic

START_DELAY: Final = 5.0
"""Seconds of a start that belong to requests: clients that have waited for it come all at once."""
CHECK_INTERVAL: Final = 600.0
"""Seconds."""

CREATION_TIMEOUT: Final = 15.0
"""Seconds that a start waits for partitions at most."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def run_retention(runtime: Runtime, database: Database, audit: Audit) -> AsyncIterator[None]:
    await create_partitions(runtime, database)
    async with running(_run(runtime, database, audit)):
        yield


async def _run(runtime: Runtime, database: Database, audit: Audit) -> NoReturn:
    hint = None
    await asyncio.sleep(START_DELAY)
    while True:
        try:
            if runtime.fleet.is_leader:
                await delete_old_rows(runtime, database)
                await clear_old_end_users(runtime, database)
                await delete_expired_replies(runtime)
                await delete_unused_conversations(runtime, database)
                await delete_old_actions(runtime, audit)
                await shrink_file(database)
                await add_up_usage(database)
                await database.delete_past_spending(runtime.now())
                await begin_linking(database, runtime.now())
                await keep_traffic(database, runtime.now())
                if hint is None and (hint := await vacuum_hint(database)) is not None:
                    log.warning(hint)
            else:
                await audit.flush()
        except Exception:  # such as a full disk: the next round tries again
            log.exception("old rows could not be deleted")
        await asyncio.sleep(CHECK_INTERVAL)
        await create_partitions(runtime, database)


async def create_partitions(runtime: Runtime, database: Database) -> None:
    """Creates the partitions of today and the next days, on a server. Without them rows go to the
    default partition."""
    try:
        async with asyncio.timeout(CREATION_TIMEOUT):
            created = await database.create_days(runtime.now())
    except Exception:  # such as a server that is gone: the next round tries again
        log.exception("days of the request log could not be created")
    else:
        if created:
            log.info("created days of the request log: %s", " ".join(created))


async def add_up_usage(database: Database) -> None:
    """Adds up usage by day, on a server."""
    try:
        await database.add_up_days()
    except Busy:
        log.warning("usage of past days is added up later: its tables are in use")


async def delete_old_rows(runtime: Runtime, database: Database) -> int:
    """Returns the number of deleted rows, which are those of whole hours."""
    keep = runtime.config.logs.keep
    if keep is None:
        return 0
    deleted = await delete_before(database, runtime.now() - int(keep * 1e6))
    if deleted:
        log.info("deleted %d rows of the request log that were older than logs.keep", deleted)
    return deleted


async def clear_old_end_users(runtime: Runtime, database: Database) -> int:
    """Returns the number of rows that had one."""
    keep = runtime.config.logs.end_users.keep
    if keep is None:
        return 0
    cleared = await clear_end_users(database, runtime.now() - int(keep * 1e6))
    if cleared:
        log.info("cleared end users of %d rows that were older than logs.end_users.keep", cleared)
    return cleared


async def delete_expired_replies(runtime: Runtime) -> int:
    """Returns the number of deleted replies."""
    deleted = await runtime.responses.delete_expired()
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


async def shrink_file(database: Database) -> None:
    if (shrunk := await shrink(database)) is not None:
        before, after = (size / 2**20 for size in (shrunk.size_before, shrunk.size))
        text = "the database file has shrunk from %.1f to %.1f MiB; its longest step took %.0f ms"
        log.info(text, before, after, shrunk.longest * 1000)


async def vacuum_hint(database: Database) -> str | None:
    """Tells what to do about the free space of a file that cannot shrink, as an older release has
    created it."""
    state = await database.free_pages()
    if state is None or state.can_shrink or not has_much_free(state):
        return None
    free = state.free * state.page_size / 2**20
    return (
        f"{free:,.0f} MiB of the database file are free, and it cannot shrink while it is used: "
        "stop the gateway and run `gateway db vacuum` once"
    )
