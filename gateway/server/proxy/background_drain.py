"""Reads an upstream's reply to its end although the client has disconnected.

A channel with `on_disconnect: drain` does that: only the end of a reply tells its usage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from gateway.config.channel import Channel
from gateway.errors import GatewayError
from gateway.server.record.exchange import Exchange
from gateway.upstream.response import AttemptFailed

MAX_DRAINS: Final = 8
"""Replies at a time; of further ones the usage is estimated."""

DRAIN_TIMEOUT: Final = 30.0
"""Seconds; what was received until then is billed."""

T = TypeVar("T")

log = logging.getLogger(__name__)


def can_drain(exchange: Exchange, channel: Channel) -> bool:
    """Tells whether the reply can be read to its end now."""
    runtime = exchange.runtime
    is_free = len(runtime.background_drains) < MAX_DRAINS and not runtime.aborting
    return exchange.may_drain and channel.on_disconnect == "drain" and is_free


def drain(exchange: Exchange, reading: Coroutine[Any, Any, None]) -> None:
    """Starts `reading`, which records the usage; the exchange ends after it."""
    drains = exchange.runtime.background_drains
    exchange.drain = task = asyncio.ensure_future(_read(exchange, reading))
    exchange.hold(task)
    drains.add(task)
    task.add_done_callback(drains.discard)


async def detachable(
    exchange: Exchange,
    channel: Channel,
    work: Coroutine[Any, Any, T],
    record: Callable[[T], Awaitable[None]],
) -> T:
    """The result of `work`. Where the client disconnects before, the work goes on, and `record`
    gets the result."""
    if not exchange.may_drain:
        return await work
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if can_drain(exchange, channel) or (task.done() and not exchange.runtime.aborting):
            drain(exchange, _finish(task, record))
        else:
            task.cancel()
            await asyncio.wait({task})  # it records what it has received
        raise


async def _finish(task: asyncio.Task[T], record: Callable[[T], Awaitable[None]]) -> None:
    await record(await task)


async def _read(exchange: Exchange, reading: Coroutine[Any, Any, None]) -> None:
    try:
        with suppress(GatewayError, TimeoutError):
            async with asyncio.timeout(DRAIN_TIMEOUT):
                await reading
    except AttemptFailed:
        if not exchange.committed:
            exchange.meter.start_attempt()  # a failure before the reply is free
    except Exception:  # nobody awaits it
        log.exception("%s: draining failed", exchange.id)
