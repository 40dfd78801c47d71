"""Notices a connection that ended in the middle of an answer without anybody saying so.

The client library's parser gives a connection up whose body makes no sense, and leaves whoever
reads it waiting. It must not know what is read.
"""

from __future__ import annotations

import asyncio
from typing import Final

import aiohttp

_GLANCE: Final = 0.5
"""Seconds between two looks."""


class watched:  # noqa: N801  # read as a word: `with watched(answer):`
    """Inside the block readers of a body that cannot go on get a `ClientPayloadError`."""

    # No closures: two that know each other, and the answer, would be garbage that only the
    # collector finds, one lot of it for every request.
    __slots__ = ("_answer", "_loop", "_timer")

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    def __enter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_GLANCE, self._look)

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if _is_gone(self._answer):
            error = aiohttp.ClientPayloadError("the connection ended in the middle of the body")
            self._answer.content.set_exception(error)
        else:
            self._timer = self._loop.call_later(_GLANCE, self._look)


def _is_gone(answer: aiohttp.ClientResponse) -> bool:
    if answer.content.is_eof() or answer.content.exception() is not None:
        return False
    connection = answer.connection
    transport = connection.transport if connection is not None else None
    return transport is None or transport.is_closing()
