"""How much of the limits is left, in the headers that the clients of each format know.

It must not know who counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from gateway.core.formats import Format
from gateway.quota.limits import Gauge, Gauges

_COUNTED: Final = ("requests", "tokens")
_FIGURES: Final = ("limit", "remaining", "reset")

RATE_NAMES: Final = tuple(
    name
    for counted in _COUNTED
    for figure in _FIGURES
    for name in (f"x-ratelimit-{figure}-{counted}", f"anthropic-ratelimit-{counted}-{figure}")
)
"""Of both dialects."""


def rate_headers(dialect: Format | None, gauges: Gauges, at: int) -> Iterator[tuple[str, str]]:
    """Names and values, of the tightest limit of each kind; `at` is now, in Unix µs.

    Messages clients read times (RFC 3339), the others durations (`2s`, `6m0s`).
    """
    for counted, gauge in zip(_COUNTED, (gauges.requests, gauges.tokens), strict=True):
        if gauge is None:
            continue
        if dialect is Format.MESSAGES:
            yield from _of_messages(counted, gauge, at)
        else:
            yield f"x-ratelimit-limit-{counted}", str(gauge.limit)
            yield f"x-ratelimit-remaining-{counted}", str(gauge.remaining)
            yield f"x-ratelimit-reset-{counted}", lasting(gauge.reset)


def _of_messages(counted: str, gauge: Gauge, at: int) -> Iterator[tuple[str, str]]:
    reset = datetime.fromtimestamp(math.ceil(at / 1e6 + gauge.reset), UTC)
    name = f"anthropic-ratelimit-{counted}"
    yield f"{name}-limit", str(gauge.limit)
    yield f"{name}-remaining", str(gauge.remaining)
    yield f"{name}-reset", f"{reset:%Y-%m-%dT%H:%M:%SZ}"


def lasting(seconds: float) -> str:
    """A duration as the clients read it: `120ms`, `2s`, `6m0s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
