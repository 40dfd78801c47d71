"""How many connections clients may have: all together, and each address; which one has to leave for
a newer one, and what is logged of those that no request comes of."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable
from itertools import islice
from math import inf
from typing import Final, Protocol

from gateway.admission.client_address import client_network, in_networks
from gateway.config.schema import Server
from gateway.errors import GatewayError, ServiceUnavailable, TooManyRequests
from gateway.runtime import ConnectionCounts

RESERVED_FILES: Final = 128
"""Open files that are not for clients and the requests that they cause."""

MAX_DEFAULT: Final = 4096
"""Connections without a limit in the configuration, however many files may be open: an idle one
takes about 20 KB."""

_MAX_COMPARED: Final = 64
"""Strangers of the older half that are compared: the first idle one leaves for a newcomer, else the
very oldest."""

_RETRY: Final = 5.0
_LOG_INTERVAL: Final = 60.0
_MALFORMED_INTERVAL: Final = 1.0
"""Seconds."""

log = logging.getLogger(__name__)


def default_limit() -> int:
    """Derives the limit from the number of files that may be open: each connection may need another
    one upstream."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_DEFAULT
    return max(16, min(MAX_DEFAULT, (files - RESERVED_FILES) // 2))


class LineLimit:
    """A limit of one log line in `seconds`, which stands for all events since the last one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._logged_at = -inf
        self._events = 0

    def count(self) -> int:
        """Counts an event: for how many a line is due now, 0 for none."""
        self._events += 1
        now = time.monotonic()
        if now - self._logged_at < self._seconds:
            return 0
        events, self._events, self._logged_at = self._events, 0, now
        return events


class Connection(Protocol):
    """One of a client."""

    @property
    def is_idle(self) -> bool: ...

    def abort(self) -> None:
        """Closes it at once."""


class Connections:
    """The connections of one listener; `server` gives the current options, `counts` is kept up to
    date. Trusted proxies have no limit of their own, as many clients share their connections.

    Where all together are too many, one that never showed a valid key leaves for a newcomer: nobody
    without a key can keep others out.
    """

    def __init__(self, server: Callable[[], Server], counts: ConnectionCounts) -> None:
        self._server = server
        self._default = default_limit()
        self._networks: dict[Connection, str] = {}
        self._by_network: dict[str, int] = {}
        self._refused_lines = LineLimit(_LOG_INTERVAL)
        self._malformed_lines = LineLimit(_MALFORMED_INTERVAL)
        self.counts = counts

    def add(self, connection: Connection, address: str) -> GatewayError | None:
        """Counts a new connection, unless it is one too many: then its error."""
        server, network = self._server(), client_network(address)
        count = self._by_network.get(network, 0)
        limit = server.max_connections or self._default
        share = server.max_connections_per_address or max(1, limit // 2)
        error: GatewayError | None = None
        if count >= share and not in_networks(address, server.trusted_proxies):
            reason = f"this address: {count:,} of {share:,} connections are open"
            error = TooManyRequests(reason=reason, retry_after=_RETRY)
        elif self.counts.open >= limit and not self._close_stranger():
            error = ServiceUnavailable()
        if error is not None:
            self._log_refused(address, error.message)
            return error
        self.counts.open += 1
        self.counts.strangers[connection] = None
        self._networks[connection] = network
        self._by_network[network] = self._by_network.get(network, 0) + 1
        return None

    def remove(self, connection: Connection) -> None:
        """Removes a connection, if that has not been done already."""
        if (network := self._networks.pop(connection, None)) is None:
            return
        self.counts.open -= 1
        self.counts.strangers.pop(connection, None)
        if count := self._by_network.pop(network) - 1:
            self._by_network[network] = count

    def _close_stranger(self) -> bool:
        strangers = self.counts.strangers
        oldest = [*islice(strangers, min(_MAX_COMPARED, -(-len(strangers) // 2)))]
        if not oldest:
            return False
        stranger = next((each for each in oldest if each.is_idle), oldest[0])
        self._log_refused(self._networks[stranger], "without a valid key, closed for a newer one")
        self.remove(stranger)
        stranger.abort()
        return True

    def log_malformed(self, address: str | None, text: str) -> None:
        """A request that no endpoint gets. Anybody can send many, without a key."""
        self.counts.malformed += 1
        if count := self._malformed_lines.count():
            others = f" (and {count - 1} others since the last such line)" if count > 1 else ""
            log.info("%s: %s%s", address, text, others)

    def _log_refused(self, address: str, reason: str) -> None:
        self.counts.refused += 1
        if count := self._refused_lines.count():
            log.warning(
                "%d connections refused, the last one of %s: %s (%d are open)",
                *(count, address, reason, self.counts.open),
            )
