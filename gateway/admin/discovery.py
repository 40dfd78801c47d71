"""Keeps the models of channels with `discover` as their upstreams list them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, NoReturn

import orjson

from gateway.config.channel import Channel
from gateway.config.discovered import FILE_NAME, read_discovered, select_models
from gateway.config.schema import Config
from gateway.core.text import list_names
from gateway.scheduler import running

INTERVAL: Final = 600.0
"""Seconds between two readings of a list."""

RETRY_INTERVAL: Final = 30.0
"""Seconds, after one that failed."""

_CHECK_INTERVAL: Final = 2.0
"""Seconds in which a channel of a new configuration is noticed."""

_MAX_LOGGED: Final = 10
"""Names in one line of the log."""

Fetch = Callable[[Channel], Awaitable[list[dict[str, Any]] | None]]
"""Returns the models that a channel's upstream lists; None: they are not known."""

log = logging.getLogger(__name__)


def run_discovery(
    config: Callable[[], Config], state_dir: Path, fetch: Fetch, changed: Callable[[], None]
) -> AbstractAsyncContextManager[None]:
    """Reads the lists of the channels of the active configuration for the time of the block;
    `changed` is called when the file in the state directory has other models."""
    return running(_run(config, state_dir, fetch, changed))


async def _run(
    config: Callable[[], Config], state_dir: Path, fetch: Fetch, changed: Callable[[], None]
) -> NoReturn:
    loop = asyncio.get_running_loop()
    due: dict[tuple[str, str, tuple[str, ...]], float] = {}
    while True:
        channels = {
            (channel.name, channel.base_url, channel.discover): channel
            for channel in config().channels
            if channel.discover
        }
        due = {key: due.get(key, 0.0) for key in channels}
        now = loop.time()
        ready = [key for key in channels if due[key] <= now]
        if ready:
            try:
                fetched = await asyncio.gather(*(fetch(channels[key]) for key in ready))
                for key, models in zip(ready, fetched, strict=True):
                    due[key] = now + (RETRY_INTERVAL if models is None else INTERVAL)
                found = {
                    channels[key].name: models for key, models in zip(ready, fetched, strict=True)
                }
                if await asyncio.to_thread(_save, state_dir, list(channels.values()), found):
                    changed()
            except Exception:  # such as a full disk: the next round tries again
                log.exception("the models of upstreams could not be read")
                due |= dict.fromkeys(ready, now + RETRY_INTERVAL)
        await asyncio.sleep(_CHECK_INTERVAL)


def _save(
    state_dir: Path, channels: Iterable[Channel], found: dict[str, list[dict[str, Any]] | None]
) -> bool:
    """Writes what was found to the file; returns whether that is a change."""
    before = read_discovered(state_dir)
    after: dict[str, Any] = {}
    for channel in channels:
        known = before.get(channel.name)
        if known is not None and known.get("base_url") != channel.base_url:
            known = None
        models = found.get(channel.name)
        if models is not None:
            _log_changes(channel, known, models)
            known = {"base_url": channel.base_url, "models": models}
        if known is not None:
            after[channel.name] = known
    if after == before:
        return False
    file = state_dir / FILE_NAME
    temporary = file.with_suffix(".json.new")
    temporary.write_bytes(orjson.dumps(after))
    os.replace(temporary, file)
    return True


def _log_changes(
    channel: Channel, known: Mapping[str, Any] | None, models: list[dict[str, Any]]
) -> None:
    old = select_models(channel.discover, known["models"]) if known is not None else []
    new = select_models(channel.discover, models)
    for verb, ids in (
        ("appeared", [id for id in new if id not in {*old}]),
        ("disappeared", [id for id in old if id not in {*new}]),
    ):
        if ids:
            names = list_names(ids, _MAX_LOGGED)
            log.info("channel %s: %d models %s: %s", channel.name, len(ids), verb, names)
