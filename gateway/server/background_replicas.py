"""Background responses of other replicas: cancelling them, and ending those of one that is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final, NoReturn

from aiohttp import web

from gateway.errors import ServiceUnavailable
from gateway.runtime import Runtime
from gateway.server.background import BACKGROUND, BackgroundResponses, end_interrupted
from gateway.server.exchange import RUNTIME
from gateway.store.records import StoredReply
from gateway.wire.responses.background import RUNNING

LOOK: Final = 0.4
"""Seconds between two looks at what others want to cancel here, and at what others run."""

_CANCEL_TIMEOUT: Final = 10.0
_SWEEP_EVERY: Final = 5.0

log = logging.getLogger(__name__)


def runs_elsewhere(row: StoredReply) -> bool:
    """For a background response that this process does not run."""
    return row.background and row.status in RUNNING


async def cancel_elsewhere(runtime: Runtime, token_id: str, id: str) -> None:
    """Returns once it has ended; at once where it runs nowhere. Raises `ServiceUnavailable` where
    that cannot be reached."""
    if not runtime.fleet.has_shared:
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _CANCEL_TIMEOUT
    while True:
        row = await runtime.replies.find(token_id, id)
        if row is None or not runs_elsewhere(row):
            return
        if loop.time() > deadline:
            raise ServiceUnavailable(detail="the replica that runs the response does not answer")
        await runtime.fleet.request_cancellation((token_id, id))
        await asyncio.sleep(LOOK / 2)


async def watch_background(app: web.Application) -> AsyncIterator[None]:
    """While the application runs: saves what others show of the responses here, cancels those that
    others want to cancel, and ends those of replicas that are gone."""
    task = asyncio.ensure_future(_watch(app[RUNTIME], app[BACKGROUND]))
    yield
    task.cancel()
    await asyncio.wait({task})


async def _watch(runtime: Runtime, responses: BackgroundResponses) -> NoReturn:
    loop = asyncio.get_running_loop()
    swept_at = loop.time()
    while True:
        await asyncio.sleep(LOOK)
        try:
            responses.save_begun()
            if runtime.fleet.is_leader and loop.time() - swept_at > _SWEEP_EVERY:
                swept_at = loop.time()
                if count := await end_interrupted(runtime.replies):
                    log.warning("%d background responses of replicas that are gone failed", count)
            await _cancel_requested(runtime, responses)
        except Exception:  # the next round tries again
            log.exception("background responses could not be looked after")


async def _cancel_requested(runtime: Runtime, responses: BackgroundResponses) -> None:
    running = {(each.token_id, each.id): each for each in responses}
    if running:
        for key in await runtime.fleet.requested_cancellations(list(running)):
            responses.stop(running[key])
