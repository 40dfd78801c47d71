"""One streaming reply on its way to the client: head, frames, pings, hang-up.

It must not know what the frames say.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp_sse import EventSourceResponse

_NEVER: Final = 10.0**7


class EventStream(EventSourceResponse):
    """The 200 head and whole frames. Pings are the relay's affair, for each format has its own, and
    stalls the connection's. Whoever opens one calls `stop_streaming` however it ends: the task that
    would ping lives until then."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__(
            headers=headers,
            allow_all_methods=True,
            send_timeout=None,
            ping_interval=_NEVER,
        )
        self.headers["content-type"] = "text/event-stream; charset=utf-8"

    async def write_last(self, data: bytes) -> None:
        """Writes what is left and ends the body."""
        if data:
            await self.write(data)
        await self.write_eof()


async def open_stream(request: web.Request, headers: dict[str, str]) -> EventStream:
    """Sends the head; from here on, errors are spoken in-band."""
    stream = EventStream(headers)
    await stream.prepare(request)
    return stream
