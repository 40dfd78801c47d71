"""The replicas of a gateway, as the rest of it sees them: one process alone, or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.routing.health import AccountRef, HealthTicket
from gateway.telemetry.metrics import Families

BackgroundKey = tuple[str, str]
"""The id of a token and of its background response."""


class Fleet:
    """`is_replica`: this process is one of several on a database server. `has_shared`: they share
    more through a Valkey server. What is here is true of one process; a `Cluster` replaces it."""

    is_replica = has_shared = False

    @property
    def is_leader(self) -> bool:
        """Whether this process does what only one of the replicas may do."""
        return True

    @property
    def epoch(self) -> int:
        """The number of this replica's registration; 0 if it has none."""
        return 0

    @property
    def absent(self) -> Sequence[str]:
        """The names of replicas that serve, but share no limits with this one."""
        return ()

    @property
    def is_confirmed(self) -> bool:
        """Whether changes that others have made to keys are known here."""
        return True

    async def confirm(self) -> None:
        """Wait until they are. Raises ReplicaOutOfContact."""

    async def refresh(self) -> None:
        """Apply what has been changed until now, if that is soon."""

    async def confirm_test(
        self, ticket: HealthTicket, model: str, pool: Sequence[AccountRef]
    ) -> HealthTicket | None:
        """Return a ticket for the test of a half-open account that no other replica does, or None
        if the account cannot be used."""
        return ticket

    async def look_up_reply(self, digest: bytes) -> None:
        """Let the affinity index know a reply of another replica."""

    async def request_cancellation(self, key: BackgroundKey) -> None:
        """Ask the replica that runs a background response to cancel it. Raises
        ServiceUnavailable."""

    async def requested_cancellations(self, keys: Sequence[BackgroundKey]) -> list[BackgroundKey]:
        """Return those of the background responses here that others want to cancel."""
        return []

    async def exchange_reports(
        self, kind: str, report: dict[str, Any], at: int, max_age: float
    ) -> Mapping[str, dict[str, Any]]:
        """Send this replica's report and return the others' by replica name, without those older
        than `max_age` seconds at `at` (Unix us)."""
        return {}

    def status(self) -> dict[str, Any]:
        """Return what readiness shows of replica and servers, without reasons of failures: they
        name addresses."""
        return {}

    def gauges(self) -> Families:
        """Return the metrics of replicas and their servers."""
        return {}
