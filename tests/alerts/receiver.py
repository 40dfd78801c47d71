"""A receiver of webhooks: a real HTTP server that answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.support.upstream import ReceivedRequest, Response, ScriptedUpstream, scripted_upstream

OK = Response(status=200, chunks=(b"ok",))
LOOPBACK = ["127.0.0.0/8"]


class Receiver:
    """`messages` are those that it took, oldest first."""

    def __init__(self, server: ScriptedUpstream) -> None:
        self.server = server
        self.url = f"{server.address}/hook"
        server.respond_with(OK)

    @property
    def requests(self) -> list[ReceivedRequest]:
        return self.server.requests

    @property
    def messages(self) -> list[Any]:
        return [request.json for request in self.requests]

    def of(self, alert: str) -> list[tuple[str, str]]:
        """Status and subject of each message of one alert."""
        found = [each for each in self.messages if each["alert"] == alert]
        return [(each["status"], each["subject"]) for each in found]

    def webhook(self, **options: Any) -> dict[str, Any]:
        """Its entry in the configuration."""
        return {"name": "receiver", "url": self.url, "allowed_networks": LOOPBACK} | options

    def alerts(self, **options: Any) -> dict[str, Any]:
        """A section that checks often and has this webhook alone."""
        return {
            "webhooks": [self.webhook()],
            "check_every": 0.05,
            "clear_after": 0.2,
            "disk_free": None,
            "error_rate": None,
        } | options

    async def until(self, so: Callable[[], object], seconds: float = 10) -> None:
        async with asyncio.timeout(seconds):
            while not so():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def run_receiver() -> AsyncIterator[Receiver]:
    async with scripted_upstream() as server:
        yield Receiver(server)
