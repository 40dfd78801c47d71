"""A client of the feed: server-sent events, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

EVENT_TIMEOUT = 10.0
"""Seconds for one event."""


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    id: str | None
    data: Any


@dataclass(slots=True)
class FeedReader:
    response: aiohttp.ClientResponse
    comments: list[str] = field(default_factory=list)

    async def next(self) -> Event | None:
        """None at the proper end of the answer."""
        async with asyncio.timeout(EVENT_TIMEOUT):
            while True:
                block = await self._block()
                if block is None:
                    return None
                fields = dict(line.split(": ", 1) for line in block if not line.startswith(":"))
                if not fields:
                    self.comments += block
                    continue
                return Event(
                    fields.get("event", "message"), fields.get("id"), orjson.loads(fields["data"])
                )

    async def take(self, count: int) -> list[Event]:
        events = [await self.next() for _ in range(count)]
        return [event for event in events if event is not None]

    async def comment(self) -> str:
        """The next one, where nothing else comes."""
        async with asyncio.timeout(EVENT_TIMEOUT):
            block = await self._block()
        assert block is not None
        return block[0]

    async def _block(self) -> list[str] | None:
        lines: list[str] = []
        while line := (await self.response.content.readline()).decode():
            if text := line.removesuffix("\r\n"):
                lines.append(text)
            elif lines:
                return lines
        return None


@asynccontextmanager
async def follow_feed(
    client: aiohttp.ClientSession, path: str, after: str | None = None, **query: str
) -> AsyncIterator[FeedReader]:
    """For the length of the block; `after` is what was seen last."""
    headers = {} if after is None else {"Last-Event-ID": after}
    async with client.get(path, params=query, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"
        yield FeedReader(answer)
