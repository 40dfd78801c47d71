"""How many connections clients may have: all together, and each address; what is logged of those
that no request comes of."""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable
from typing import Final

from gateway.admission.client_address import in_networks
from gateway.config.schema import Server
from gateway.errors import GatewayError, ServiceUnavailable, TooManyRequests
from gateway.runtime import ConnectionCounts
from gateway.server.line_limit import LineLimit

RESERVED_FILES: Final = 128
"""Open files that are not for clients and the requests that they cause."""

MAX_DEFAULT: Final = 4096
"""Connections without a limit in the configuration, however many files may be open: an idle one
takes about 20 KB."""

_RETRY: Final = 5.0
_LOG_INTERVAL: Final = 60.0
_MALFORMED_INTERVAL: Final = 1.0
"""Seconds."""

log = logging.getLogger(__name__)


def default_limit() -> int:
    """By the number of files that may be open: each connection may need another one upstream."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_DEFAULT
    return max(16, min(MAX_DEFAULT, (files - RESERVED_FILES) // 2))


class Connections:
    """Those of one listener; `server` gives the current options, `counts` is kept up to date.
    Trusted proxies have no limit of their own, as their connections are those of many clients."""

    def __init__(self, server: Callable[[], Server], counts: ConnectionCounts) -> None:
        self._server = server
        self._default = default_limit()
        self._by_address: dict[str, int] = {}
        self._refused_lines = LineLimit(_LOG_INTERVAL)
        self._malformed_lines = LineLimit(_MALFORMED_INTERVAL)
        self.counts = counts

    def add(self, address: str) -> GatewayError | None:
        """Counts a new connection, unless it is one too many: then its error."""
        server, count = self._server(), self._by_address.get(address, 0)
        limit = server.max_connections or self._default
        error: GatewayError | None = None
        if self.counts.open >= limit:
            error = ServiceUnavailable()
        else:
            share = server.max_connections_per_address or max(1, limit // 2)
            if count >= share and not in_networks(address, server.trusted_proxies):
                error = TooManyRequests(
                    reason=f"this address: {count:,} of {share:,} connections are open",
                    retry_after=_RETRY,
                )
        if error is not None:
            self._log_refused(address, error)
            return error
        self.counts.open += 1
        self._by_address[address] = count + 1
        return None

    def remove(self, address: str) -> None:
        self.counts.open -= 1
        if count := self._by_address.pop(address) - 1:
            self._by_address[address] = count

    def log_malformed(self, address: str | None, text: str) -> None:
        """A request that no endpoint gets. Anybody can send many, without a key."""
        self.counts.malformed += 1
        if count := self._malformed_lines.count():
            others = f" (and {count - 1} others since the last such line)" if count > 1 else ""
            log.info("%s: %s%s", address, text, others)

    def _log_refused(self, address: str, error: GatewayError) -> None:
        self.counts.refused += 1
        if count := self._refused_lines.count():
            log.warning(
                "%d connections refused, the last one of %s: %s (%d are open)",
                *(count, address, error.message, self.counts.open),
            )
