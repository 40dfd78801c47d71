"""A gateway for one command: the same configuration on a free loopback port, in a thread.

Its database and admin socket are in a directory that is deleted at the end. Nothing of it runs
beside requests: no alerts, no limits, no list of allowed user agents.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gateway.config.schema import Config
from gateway.core.value import value
from gateway.daemon import run_daemon

_START_TIMEOUT: Final = 20.0
_STOP_TIMEOUT: Final = 10.0
"""Seconds."""

_OF_REQUESTS: Final = (
    *("models", "channels", "families", "rules", "affinity", "images", "search", "money"),
)
"""Options of the file that decide what happens to a request."""


@value
class TemporaryGateway:
    address: str
    state_dir: Path


@contextmanager
def temporary_gateway(config: Config, channel: str | None = None) -> Iterator[TemporaryGateway]:
    """`config` has its secrets; with `channel` the gateway has no other one. Raises what its start
    raises."""
    with tempfile.TemporaryDirectory(prefix="gateway-doctor-") as folder:
        state_dir = Path(folder, "state")
        started: Future[str] = Future()
        stop = threading.Event()
        thread = threading.Thread(
            target=_run, args=(_reduced(config, channel, state_dir), started, stop), daemon=True
        )
        thread.start()
        try:
            yield TemporaryGateway(started.result(_START_TIMEOUT), state_dir)
        finally:
            stop.set()
            thread.join(_STOP_TIMEOUT)


def _reduced(config: Config, channel: str | None, state_dir: Path) -> Config:
    options = {name: getattr(config, name) for name in _OF_REQUESTS}
    if channel is not None:
        options["channels"] = tuple(each for each in config.channels if each.name == channel)
    changes = {"host": "127.0.0.1", "port": 0, "drain_timeout": 0.5, "show_channel": True}
    kept = ("max_response", "require_version_header", "version_headers", "beta_headers")
    changes |= {name: getattr(config.server, name) for name in kept}
    server = Config().server.model_copy(update=changes)
    return Config().model_copy(update={**options, "server": server, "state_dir": state_dir})


def _run(config: Config, started: Future[str], stop: threading.Event) -> None:
    try:
        asyncio.run(_serve(config, started, stop))
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)


async def _serve(config: Config, started: Future[str], stop: threading.Event) -> None:
    async with run_daemon(config) as daemon:
        started.set_result(daemon.address)
        await asyncio.to_thread(stop.wait)
