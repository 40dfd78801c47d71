"""The limits of one replica while Valkey is lost, and the replicas that do not share them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from gateway.core.limits import Limits
from gateway.core.text import list_names
from gateway.core.value import replace
from gateway.fleet.limits import SharedLimits, is_shared
from gateway.quota.limits import Holder, ResourceRequest
from gateway.store.postgresql.replicas import OwnReplica

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
        """Returns the request with holders that have this replica's shares as limits."""
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
    """Returns what is left without the shares of absent replicas."""
    return _each(
        limits, lambda limit: limit - sum(share_of(limit, position) for position in absent)
    )


def _each(limits: Limits, change: Callable[[int], int]) -> Limits:
    whole = {name: getattr(limits, name) for name in _SHARED}
    return replace(limits, **{name: change(n) for name, n in whole.items() if n is not None})


def share_of(limit: int, position: Position) -> int:
    rank, replicas = position
    return limit // replicas + (rank < limit % replicas)


_SHOWN: Final = 5

log = logging.getLogger(__name__)


class AbsentReplicas:
    """Divides `limits` while there are such replicas. `own` knows who serves."""

    def __init__(self, own: OwnReplica, limits: SharedLimits) -> None:
        self.names: list[str] = []
        self._own, self._limits = own, limits
        self._positions: list[Position] = []
        limits.session.on_replicas.append(self.look)

    def look(self) -> None:
        own, session = self._own, self._limits.session
        absent = [
            (name, (rank, len(own.names)))
            for rank, name in enumerate(own.names)
            if name in own.serving and session.is_absent(name)
        ]
        names, positions = [name for name, _ in absent], [position for _, position in absent]
        if positions != self._positions:
            self._positions = positions
            self._limits.divide(partial(limits_rest, absent=positions) if positions else None)
        if names != self.names:
            self._say(names)
            self.names = names

    def _say(self, names: list[str]) -> None:
        if not names:
            log.warning("all replicas share their limits with this one again")
            return
        log.warning(
            "limits are divided: of %d replicas, %d do not share theirs with this one (%s). They"
            " cannot reach the server of `shared`, or name another server, database or prefix",
            len(self._own.names),
            len(names),
            list_names(names, _SHOWN),
        )
