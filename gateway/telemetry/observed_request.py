"""What metrics, traces, logs and alerts see of each request. It needs no OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from aiohttp import web

from gateway.errors import FormatNotServed, ModelNotFound
from gateway.store.records import AttemptRow, ExchangeState, RequestRow, SearchRow


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
if it has none."""


_CLIENT_ERRORS: Final = range(400, 500)
_CLIENT_CODES: Final = frozenset({ModelNotFound.code, FormatNotServed.code})
"""Refusals for what the client asked for, whose status is nevertheless 5xx."""


class ObservedRequest(NamedTuple):
    """`row` is that of the request log. Requests without a valid key have one here too, with an
    empty `token_id`, which is not written: health checks, unknown paths, rejected keys, and
    `accounting_unavailable`.

    `queue_seconds` is the time in the admission queue, `upload_seconds` that in which the body
    arrived after its head, `upstream_seconds` that of all attempts. The rest of `row.total_us` is
    the gateway's own time. `trace` is there where traces are on.
    """

    row: RequestRow
    attempts: Sequence[AttemptRow]
    searches: Sequence[SearchRow]
    queue_seconds: float
    upload_seconds: float
    upstream_seconds: float
    trace: RequestTrace | None = None


Observer = Callable[[ObservedRequest], None]
"""Called in the event loop, once for each exchange, after its row was handed to the recorder: it
must neither wait nor raise, and takes some microseconds at most."""


def is_client_mistake(row: RequestRow) -> bool:
    """Whether the request got no reply for a reason of its client: a status of 4xx, or a refusal
    such as that of a model that does not exist."""
    if row.state is ExchangeState.REJECTED and row.error_code in _CLIENT_CODES:
        return True
    return row.status in _CLIENT_ERRORS
