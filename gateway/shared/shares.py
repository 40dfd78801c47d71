"""The limits of one replica while the Valkey server is lost: its exact share of each limit.

Shares are whole numbers that add up to the limit: of N replicas each has limit // N, and the first
limit % N by name have one more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from gateway.core.limits import Limits
from gateway.core.value import replace
from gateway.quota.limits import Holder, ResourceRequest
from gateway.shared.limits import is_shared

Position = tuple[int, int]
"""The rank of this replica among all by name, from 0, and their number."""

_SHARED: Final = ("requests_per_minute", "tokens_per_minute", "concurrent")
_MAX_CACHED: Final = 20_000


class Shares:
    """`position` returns the current position of this replica."""

    def __init__(self, position: Callable[[], Position]) -> None:
        self._position = position
        self._holders: dict[int, tuple[Position, Holder, Holder]] = {}

    def of(self, request: ResourceRequest) -> ResourceRequest:
        """The same request, whose holders have this replica's shares as limits."""
        position = self._position()
        holders = tuple(self._holder(position, holder) for holder in request.holders)
        return replace(request, holders=holders)

    def _holder(self, position: Position, holder: Holder) -> Holder:
        if not is_shared(holder.limits):
            return holder
        cached = self._holders.get(id(holder))
        if cached is None or cached[0] != position or cached[1] is not holder:
            if len(self._holders) > _MAX_CACHED:
                self._holders.clear()
            limits = limits_share(holder.limits, position)
            share = Holder(holder.kind, holder.id, holder.name, limits)
            cached = self._holders[id(holder)] = position, holder, share
        return cached[2]


def limits_share(limits: Limits, position: Position) -> Limits:
    """Budgets stay as they are: they have leases of their own."""
    return _each(limits, lambda limit: share_of(limit, position))


def limits_rest(limits: Limits, absent: Collection[Position]) -> Limits:
    """What is left without the shares of others."""
    return _each(
        limits, lambda limit: limit - sum(share_of(limit, position) for position in absent)
    )


def _each(limits: Limits, change: Callable[[int], int]) -> Limits:
    whole = {name: getattr(limits, name) for name in _SHARED}
    return replace(limits, **{name: change(n) for name, n in whole.items() if n is not None})


def share_of(limit: int, position: Position) -> int:
    rank, replicas = position
    return limit // replicas + (rank < limit % replicas)
