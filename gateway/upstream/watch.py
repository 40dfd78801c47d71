"""Notices a connection that ended in the middle of an answer without anybody saying so.

The client library's parser gives a connection up whose body makes no sense, and leaves whoever
reads it waiting. It must not know what is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import aiohttp

_GLANCE: Final = 0.5
"""Seconds between two looks."""


@contextmanager
def watched(answer: aiohttp.ClientResponse) -> Iterator[None]:
    """Inside the block readers of a body that cannot go on get a `ClientPayloadError`."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def look() -> asyncio.TimerHandle:
        return loop.call_later(_GLANCE, look_again)

    def look_again() -> None:
        nonlocal timer
        if _is_gone(answer):
            error = aiohttp.ClientPayloadError("the connection ended in the middle of the body")
            answer.content.set_exception(error)
        else:
            timer = look()

    timer = look()
    try:
        yield
    finally:
        timer.cancel()


def _is_gone(answer: aiohttp.ClientResponse) -> bool:
    if answer.content.is_eof() or answer.content.exception() is not None:
        return False
    connection = answer.connection
    transport = connection.transport if connection is not None else None
    return transport is None or transport.is_closing()
