"""A gateway that watches its configuration file, and the file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiohttp import ClientSession

from gateway.admin.reload import ConfigSource, Reloader, ReloadResult
from gateway.config.load import load_config
from gateway.config.schema import Config
from gateway.core.formats import Format
from gateway.daemon import run_daemon
from gateway.runtime import Runtime
from tests.resilience.faults.upstream import FaultUpstream
from tests.support.gateway import RunningGateway, channel

NAME = "messages-main"


def messages_channel(
    upstream: FaultUpstream, *accounts: str, plan: str = "ok", **fields: Any
) -> dict[str, Any]:
    """A messages channel whose accounts are called like their keys."""
    named = [{"name": account, "key": account} for account in accounts]
    format = Format.MESSAGES
    return channel(format, "", base_url=upstream.base_url(format, plan), accounts=named) | fields


@dataclass(frozen=True, slots=True)
class ConfigFollower:
    """`write` replaces the file in one step, as careful editors do."""

    gateway: RunningGateway
    file: Path

    @property
    def runtime(self) -> Runtime:
        return self.gateway.daemon.runtime

    @property
    def reloader(self) -> Reloader:
        assert self.gateway.daemon.reloader is not None
        return self.gateway.daemon.reloader

    def write(self, text: str | bytes) -> None:
        write(self.file, text)

    def configure(self, *channels: dict[str, Any], **config: Any) -> None:
        self.write(orjson.dumps(self._with_channels(channels, config)))

    async def reload(self, *channels: dict[str, Any], **config: Any) -> ReloadResult:
        self.configure(*channels, **config)
        return await self.reloader.reload()

    async def until(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not so():
                await asyncio.sleep(0.01)

    async def ready(self) -> tuple[int, dict[str, Any]]:
        async with self.gateway.http.get("/readyz") as answer:
            return answer.status, (await answer.json())["config"]

    def _with_channels(self, channels: tuple[dict[str, Any], ...], config: dict[str, Any]) -> Any:
        return full_config(self.file.parent / "state", list(channels), config)


def full_config(state_dir: Path, channels: list[dict[str, Any]], config: dict[str, Any]) -> Any:
    server = {"port": 0, "drain_timeout": 1} | config.pop("server", {})
    return {"state_dir": str(state_dir), "channels": channels, "server": server} | config


def write(file: Path, text: str | bytes) -> None:
    new = file.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.replace(new, file)


@asynccontextmanager
async def follow_config(
    folder: Path, *channels: dict[str, Any], period: float = 60, **config: Any
) -> AsyncIterator[ConfigFollower]:
    """`period` as in `Source`; so long that the file is read when asked alone."""
    file = folder / "channels.yaml"
    write(file, orjson.dumps(full_config(folder / "state", list(channels), config)))

    def load(content: bytes | None = None) -> Config:
        return load_config(file, content=content)

    source = ConfigSource(file, load, period, load)
    async with run_daemon(source.read(), source) as daemon:
        token, key = await daemon.operations.create_key("tests", "default")
        async with ClientSession(daemon.address) as http:
            yield ConfigFollower(RunningGateway(daemon, token, key, http), file)
