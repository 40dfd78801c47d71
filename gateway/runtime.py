"""The one typed object behind the application's one key: everything a request needs.

It must not know HTTP messages; it only holds what was built at the start.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.config import Config
from gateway.routing.catalog import Catalog
from gateway.routing.estimates import Estimates
from gateway.routing.router import Reach, Router
from gateway.store.recorder import Recorder
from gateway.store.registry import Registry
from gateway.upstream.client import Line
from gateway.upstream.redaction import Redactor
from gateway.wire.estimate import estimate


def unix_microseconds() -> int:
    return time.time_ns() // 1000


def new_request_id(now: int) -> str:
    """`req_` and 24 hex digits that sort by time; `now` is in unix microseconds."""
    return f"req_{now:014x}{random.getrandbits(40):010x}"  # a name, not a secret


@dataclass(slots=True)
class Runtime:
    """One running gateway. `now` gives unix microseconds."""

    config: Config
    catalog: Catalog
    router: Router
    line: Line
    redactor: Redactor
    registry: Registry
    recorder: Recorder
    estimates: Estimates = field(default_factory=lambda: Estimates(estimate))
    now: Callable[[], int] = unix_microseconds
    draining: bool = False
    """New requests are refused, running ones may end."""
    hurried: bool = False
    """Running ones are ended too."""
    running: int = 0
    """Requests in progress."""
    bytes_in_flight: int = 0
    """Bytes of their bodies."""
    patience: set[asyncio.Timeout] = field(default_factory=set)
    """The waits that a shutdown may cut short."""
    _reaches: dict[str, Reach] = field(default_factory=dict)
    _reaches_version: int = -1

    def reach(self, group: str) -> Reach:
        """What the group may use, from memory."""
        if self._reaches_version != self.registry.version:
            self._reaches.clear()
            self._reaches_version = self.registry.version
        reach = self._reaches.get(group)
        if reach is None:
            record = self.registry.group(group)
            reach = self.router.reach(record.patterns if record else ())
            self._reaches[group] = reach
        return reach
