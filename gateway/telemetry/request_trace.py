"""The trace of one request, as the server sees it. It needs no OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aiohttp import web


class RequestTrace(Protocol):
    """`header` are the header lines for the upstream of the attempt that began last, with their
    line ends."""

    header: bytes

    @property
    def trace_id(self) -> str:
        """32 hex digits."""
        ...

    def start_attempt(self, model: str, base_url: str) -> None:
        """The upstream's name of the model, and its channel's address."""
        ...


BeginTrace = Callable[[web.Request, int, float], RequestTrace | None]
"""The trace of a request that began at a time in unix microseconds, and of `perf_counter`; None
where it has none."""
