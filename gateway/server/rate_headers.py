"""How much of the limits is left, in the headers that the clients of each format know.

It must not know who counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from gateway.core.formats import Format
from gateway.quota.limits import LimitStatus, LimitStatuses

_LIMITED: Final = ("requests", "tokens")
_FIELDS: Final = ("limit", "remaining", "reset")

RATE_LIMIT_HEADERS: Final = tuple(
    name
    for counted in _LIMITED
    for figure in _FIELDS
    for name in (f"x-ratelimit-{figure}-{counted}", f"anthropic-ratelimit-{counted}-{figure}")
)
"""Of both dialects."""


def rate_limit_headers(client_format: Format | None, statuses: LimitStatuses, now: int) -> Iterator[tuple[str, str]]:
    """Names and values, of the tightest limit of each kind; `at` is now, in Unix µs.

    Messages clients read times (RFC 3339), the others durations (`2s`, `6m0s`).
    """
    for counted, gauge in zip(_LIMITED, (statuses.requests, statuses.tokens), strict=True):
        if gauge is None:
            continue
        if client_format is Format.MESSAGES:
            yield from _messages_headers(counted, gauge, now)
        else:
            yield f"x-ratelimit-limit-{counted}", str(gauge.limit)
            yield f"x-ratelimit-remaining-{counted}", str(gauge.remaining)
            yield f"x-ratelimit-reset-{counted}", format_duration(gauge.reset)


def _messages_headers(name: str, status: LimitStatus, now: int) -> Iterator[tuple[str, str]]:
    reset = datetime.fromtimestamp(math.ceil(now / 1e6 + status.reset), UTC)
    name = f"anthropic-ratelimit-{name}"
    yield f"{name}-limit", str(status.limit)
    yield f"{name}-remaining", str(status.remaining)
    yield f"{name}-reset", f"{reset:%Y-%m-%dT%H:%M:%SZ}"


def format_duration(seconds: float) -> str:
    """A duration as the clients read it: `120ms`, `2s`, `6m0s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
