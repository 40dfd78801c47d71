"""Replicas that serve, but have no session on this replica's server of shared limits.

They have lost it, or their configuration names another one. Each of them admits its share of every
limit without asking here, so those that are here have the rest together.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from gateway.shared.limits import SharedLimits
from gateway.shared.shares import Position, limits_rest
from gateway.store.replicas import OwnReplica

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
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        log.warning(
            "limits are divided: of %d replicas, %d do not share theirs with this one (%s). They"
            " cannot reach the server of `shared`, or name another server, database or prefix",
            len(self._own.names),
            len(names),
            shown,
        )
