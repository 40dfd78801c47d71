"""What a replica may use of a limit while nobody can say what the others use: an exact share.

The shares of all replicas add up to the limit. Whole numbers: the first replicas by name have one
more where it does not divide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from gateway.core.limits import Limits
from gateway.core.value import replace
from gateway.quota.limits import Holder, ResourceRequest
from gateway.shared.limits import is_shared

Place = tuple[int, int]
"""The rank of this replica by name, from 0, and how many there are."""

_SHARED: Final = ("requests_per_minute", "tokens_per_minute", "concurrent")
_KEPT: Final = 20_000


class Shares:
    """`place` is where this replica is now."""

    def __init__(self, place: Callable[[], Place]) -> None:
        self._place = place
        self._holders: dict[int, tuple[Place, Holder, Holder]] = {}

    def of(self, request: ResourceRequest) -> ResourceRequest:
        """The same request of this replica's shares."""
        place = self._place()
        holders = tuple(self._holder(place, holder) for holder in request.holders)
        return replace(request, holders=holders)

    def _holder(self, place: Place, holder: Holder) -> Holder:
        if not is_shared(holder.limits):
            return holder
        kept = self._holders.get(id(holder))
        if kept is None or kept[0] != place or kept[1] is not holder:
            if len(self._holders) > _KEPT:
                self._holders.clear()
            limits = limits_share(holder.limits, place)
            share = Holder(holder.kind, holder.id, holder.name, limits)
            kept = self._holders[id(holder)] = place, holder, share
        return kept[2]


def limits_share(limits: Limits, place: Place) -> Limits:
    """Budgets stay as they are: they have leases of their own."""
    return _each(limits, lambda limit: share_of(limit, place))


def limits_rest(limits: Limits, absent: Collection[Place]) -> Limits:
    """What is left without the shares of others."""
    return _each(limits, lambda limit: limit - sum(share_of(limit, place) for place in absent))


def _each(limits: Limits, change: Callable[[int], int]) -> Limits:
    whole = {name: getattr(limits, name) for name in _SHARED}
    return replace(limits, **{name: change(n) for name, n in whole.items() if n is not None})


def share_of(limit: int, place: Place) -> int:
    rank, replicas = place
    return limit // replicas + (rank < limit % replicas)
