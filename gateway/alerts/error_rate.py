"""The share of requests that failed, over a sliding time."""

from __future__ import annotations

from collections import deque
from typing import Final

from gateway.store.records import ExchangeState
from gateway.telemetry.observed_request import ObservedRequest, is_client_mistake

_SLICES: Final = 60
"""The window consists of so many counts."""

_ENDPOINTS: Final = frozenset({"/v1/chat/completions", "/v1/messages", "/v1/responses"})
_FAILED: Final = frozenset(
    {ExchangeState.ERROR, ExchangeState.UPSTREAM_CUT, ExchangeState.REJECTED}
)


class ErrorCounter:
    """Counts exchanges as they end."""

    def __init__(self) -> None:
        self._slices: deque[tuple[float, int, int]] = deque()
        self._requests = self._failed = 0

    def observe(self, ended: ObservedRequest) -> None:
        """An observer of the runtime; the rule GatewayErrorRate of Prometheus means the same. What
        a client did wrong does not count; an error in a stream has status 200."""
        row = ended.row
        if row.endpoint not in _ENDPOINTS or is_client_mistake(row):
            return
        self._requests += 1
        if row.state in _FAILED:
            self._failed += 1

    def rate(self, window: float, now: float) -> tuple[int, int]:
        """Requests and failures of the last `window` seconds; call it every few seconds."""
        slices = self._slices
        if self._requests and slices and now - slices[-1][0] < window / _SLICES:
            at, requests, failed = slices.pop()
            slices.append((at, requests + self._requests, failed + self._failed))
        elif self._requests:
            slices.append((now, self._requests, self._failed))
        self._requests = self._failed = 0
        while slices and now - slices[0][0] > window:
            slices.popleft()
        return sum(each[1] for each in slices), sum(each[2] for each in slices)
