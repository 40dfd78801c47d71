"""What the replicas of a cluster share, as one object for the rest of the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from gateway.config.schema import Config
from gateway.core.histogram import Histogram
from gateway.fleet.admission import SharedAdmission
from gateway.fleet.budget_leases import BudgetLeases
from gateway.fleet.shared_state import SharedState
from gateway.fleet.start import Member
from gateway.quota.limits import Holder, Quota
from gateway.replicas import BackgroundKey, Fleet
from gateway.routing.affinity import AffinityIndex
from gateway.routing.health import AccountRef, Health, HealthTicket
from gateway.routing.refusals import Refusals
from gateway.store.log.recorder import Recorder
from gateway.telemetry.metrics import Families

STALE: Final = 2.0
"""Seconds without an answer, after which a server is shown as out of contact."""
MAX_AGE: Final = 86400.0
"""Seconds: before the first contact it is unlimited."""


class Cluster(Fleet):
    """Several replicas on a database server. Requests are admitted by `admission` while it runs."""

    is_replica = True

    def __init__(
        self,
        member: Member,
        config: Config,
        quota: Quota,
        holders: Callable[[], Iterable[Holder]],
        health: Health,
        affinity_index: AffinityIndex,
        refusals: Refusals,
        current: Callable[[], Config],
    ) -> None:
        """`quota` has leased trackers; `holders` are all that have budgets; `current` returns the
        configuration in force."""
        self._membership, self._changes = member.membership, member.changes
        self._own = own = member.membership.own
        now, share = member.membership.clock.now, config.replica.lease_share
        self._leases = BudgetLeases(member.server, quota, own, now, holders, share)
        self._shared = None
        if config.shared is not None:
            self._shared = SharedState(
                config.shared, own, health, affinity_index, refusals, current
            )
        self.has_shared = self._shared is not None
        limits = None if self._shared is None else self._shared.limits
        shares = None if self._shared is None else self._shared.shares
        self.admission = SharedAdmission(quota, limits, shares, self._leases)

    @asynccontextmanager
    async def run(self, recorder: Recorder) -> AsyncIterator[None]:
        """Works for the time of the block. Raises `SharedError` if Valkey cannot be used."""
        async with AsyncExitStack() as stack:
            if self._shared is not None:
                await stack.enter_async_context(self._shared.run())
            await stack.enter_async_context(self._leases.run())
            recorder.on_commit.append(self._leases.committed)
            self._membership.on_epoch.append(self._leases.reset)
            yield

    @property
    def is_leader(self) -> bool:
        return self._own.is_leader

    @property
    def epoch(self) -> int:
        return self._own.epoch

    @property
    def absent(self) -> Sequence[str]:
        return () if self._shared is None else self._shared.absent_replicas.names

    @property
    def is_confirmed(self) -> bool:
        return self._changes.is_confirmed

    async def confirm(self) -> None:
        await self._changes.confirm()

    async def refresh(self) -> None:
        await self._changes.refresh()

    async def confirm_test(
        self, ticket: HealthTicket, model: str, pool: Sequence[AccountRef]
    ) -> HealthTicket | None:
        if self._shared is None:
            return ticket
        return await self._shared.health.confirm(ticket, model, pool)

    async def look_up_reply(self, digest: bytes) -> None:
        if self._shared is not None:
            await self._shared.affinity.look_up(digest)

    async def request_cancellation(self, key: BackgroundKey) -> None:
        if self._shared is not None:
            await self._shared.cancellations.request(key)

    async def requested_cancellations(self, keys: Sequence[BackgroundKey]) -> list[BackgroundKey]:
        return [] if self._shared is None else await self._shared.cancellations.requested(keys)

    async def exchange_reports(
        self, kind: str, report: dict[str, Any], at: int, max_age: float
    ) -> dict[str, dict[str, Any]]:
        if self._shared is None:
            return {}
        return await self._shared.reports.exchange(kind, report, at, max_age)

    def status(self) -> dict[str, Any]:
        has_contact = self._changes.contact_age <= STALE
        status = {
            "replica": {"name": self._own.name, "registered": self._own.epoch > 0},
            "database": "ok" if has_contact else "out of contact",
        }
        if self._shared is not None:
            status["shared"] = self._shared_status(self._shared)
        return status

    def _shared_status(self, shared: SharedState) -> str:
        """A full or read-only server answers questions, but decides about no limit."""
        if self._changes.shared_age > STALE:
            return "out of contact"
        return "ok" if shared.limits.is_in_force else "limits are not shared"

    def gauges(self) -> Families:
        own, changes = self._own, self._changes
        single = {
            "gateway_replica_is_leader": own.is_leader,
            "gateway_database_up": changes.contact_age <= STALE,
            "gateway_database_contact_age_seconds": min(changes.contact_age, MAX_AGE),
            "gateway_key_changes_confirmed": changes.is_confirmed,
            "gateway_key_changes_apply_seconds": changes.lag,
            "gateway_clock_offset_seconds": changes.clock_offset,
        }
        states = {"living": own.position[1], "lost": own.lost, "absent": len(self.absent)}
        families: Families = {name: {(): float(value)} for name, value in single.items()}
        families["gateway_replicas"] = {(state,): float(number) for state, number in states.items()}
        if (shared := self._shared) is not None:
            limits = shared.limits
            times = Histogram(limits.answers.bounds)  # a copy: a thread writes it out
            times.add(limits.answers)
            families["gateway_shared_up"] = {(): float(self._shared_status(shared) == "ok")}
            families["gateway_shared_lost_seconds_total"] = {(): limits.lost_seconds}
            families["gateway_shared_answer_seconds"] = {(): times}
        return families
