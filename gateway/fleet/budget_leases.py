"""This replica's leases of budgets: asks for them, tops them up, and gives back what is not used.

A request with budgets is admitted where this replica's leases cover it. Only where they do not, it
waits for the database server, which grants all that was asked for meanwhile in one transaction.
Near a budget's limit a lease is as small as what is asked for, so that its last part can be used
anywhere; elsewhere it lasts for minutes, in which the server may be away.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from operator import add
from typing import Final, cast

from gateway.admission.budgets import load_spent
from gateway.config.cluster import DatabaseServer
from gateway.core.limits import FREE, Cost, Currency
from gateway.errors import AccountingUnavailable
from gateway.quota.budgets import BudgetTracker, day_of
from gateway.quota.leased_budgets import LeasedTracker
from gateway.quota.limits import Holder, HolderKind, Quota, Reservation, ResourceRequest
from gateway.scheduler import running
from gateway.store.errors import ReplicaRemoved, error_reason
from gateway.store.postgresql.budget_leases import MAX_HOLDERS, Figures, HolderKey, LeaseTable
from gateway.store.postgresql.replicas import OwnReplica
from gateway.store.records import BUDGET_DIMENSIONS, LogEntry, dimension_holders

TICK: Final = 0.5
"""Seconds between rounds in which unused leases are given back."""
_AHEAD: Final = 180.0
"""Seconds of spending that a lease covers in advance, beside the reservations of such a time."""
_HOLD: Final = 300.0
"""Seconds without a request at any replica after which a lease is given back."""
_FADE: Final = 0.5 ** (TICK / 60)
"""The factor, from round to round, of the rate of spending and the reservations at once: half in a
minute of use."""
_LEAST_PART: Final = 0.75
"""The part of what is to be leased in advance: below it more is asked for before a request needs
it."""
_NEAR: Final = 20
"""The last twentieth of a budget is near its limit: nothing of it is leased in advance."""
_CONTENDED: Final = 1.0
"""Seconds for which nothing is leased in advance after another replica has found no room."""
_REFRESH: Final = 2.0
"""Seconds between readings of the figures of holders in use."""
_IN_USE: Final = 10.0
"""Seconds after a holder's last request."""
_FORGET: Final = 600.0
_OUTLINES_AT_ONCE: Final = 200
"""Holders of which each round looks whether others have used them."""
_PAUSES: Final = (0.0, 0.01, 0.03, 0.06, 0.1, 0.1)
"""Seconds before each try of a request: others give back what they do not need meanwhile."""
_TAKEN_WITHIN: Final = 0.02
"""Seconds after a grant in which it is not returned, so that the waiting requests can use it."""
_MAX_OUTAGE: Final = 120.0
_NEVER: Final = 2**63
"""Later than any request (Unix us)."""
_SKEW: Final = 2_000_000
"""Microseconds by which replicas' clocks may be ahead of the server's: a request may be charged to
a day that begins within them."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Asked:
    """The amounts that requests wait for of one holder: in all, the least of them, and with long
    replies. `since` is the start of the earliest (Unix us)."""

    needed: list[int] = field(default_factory=lambda: [0, 0])
    least: list[int] = field(default_factory=lambda: [0, 0])
    longest: list[int] = field(default_factory=lambda: [0, 0])
    since: int = 0

    def add(self, needed: Cost, longest: Cost, at: int) -> None:
        for number in range(len(needed)):
            self.needed[number] += needed[number]
            self.longest[number] += longest[number]
            least = self.least[number]
            self.least[number] = min(least or needed[number], needed[number])
        self.since = min(self.since or at, at)


@dataclass(slots=True, eq=False)
class _HolderLease:
    """A holder, its trackers by currency, and how it is used: `rate` is what is spent in a second,
    `peak` what is reserved at once, `kept` what it may have beside, `no_room_at` when the
    server last had less than was asked for. `is_outdated`: others have spent or leased some since
    its figures were read."""

    holder: Holder
    trackers: tuple[LeasedTracker, LeasedTracker]
    asked: _Asked | None = None
    no_room_at: float = -1e9
    used_at: float = 0.0
    used_elsewhere_at: float = -1e9
    is_outdated: bool = False
    read_at: float = 0.0
    granted_at: float = 0.0
    contended_until: float = 0.0
    rate: list[float] = field(default_factory=lambda: [0.0, 0.0])
    used: list[int] = field(default_factory=lambda: [0, 0])
    peak: list[float] = field(default_factory=lambda: [0.0, 0.0])
    kept: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def used_anywhere_at(self) -> float:
        return max(self.used_at, self.used_elsewhere_at)


class BudgetLeases:
    """The leases that the running loop uses, for the time of `run`. `quota` has leased trackers."""

    def __init__(
        self,
        server: DatabaseServer,
        quota: Quota,
        own: OwnReplica,
        now: Callable[[], int],
        holders: Callable[[], Iterable[Holder]] = tuple,
        share: float = 0.8,
    ) -> None:
        """`now` is the server's clock in Unix us; `holders` are all that have budgets; `share` is
        that of `replica.lease_share`."""
        self._table = LeaseTable(server, self._needed_elsewhere)
        self._quota, self._own, self._now = quota, own, now
        self._leases: dict[HolderKey, _HolderLease] = {}
        self._granted: asyncio.Future[None] | None = None
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._failure: str | None = None
        self._given_up: dict[HolderKey, Cost] = {}
        """Amounts that are not used any more, and not given back yet."""
        self._is_contended = False
        self._timeout = server.timeout
        self._holders, self._share = holders, share
        self._unread = deque[Holder]()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Works for the time of the block; leases end with the replica's registration."""
        try:
            async with running(self._work()):
                yield
        finally:
            self._table.disconnect()

    async def cover(self, request: ResourceRequest) -> None:
        """Waits until the leases cover the request, or the server has no room for it: then its
        acquisition raises why. Raises `AccountingUnavailable` if the server cannot be asked."""
        if request.cost == FREE:
            return
        longest = Cost(*map(max, request.cost, request.max_cost))
        await self._cover(request, request.cost, longest)

    async def cover_more(self, reservation: Reservation, cost: Cost, soon: Cost) -> None:
        """Waits until the leases cover this `cost` of a running request in all, and what it costs
        `soon` if that can be had, or the server has no room for it. A server that is away is waited
        for, for two minutes at most: a reply that has begun is worth it. Raises
        `AccountingUnavailable`."""
        needed, wanted = (
            Cost(*(max(0, new - old) for new, old in zip(each, reservation.cost, strict=True)))
            for each in (cost, soon)
        )
        deadline = self._loop.time() + _MAX_OUTAGE
        while True:
            try:
                await self._cover(reservation.request, needed, wanted, is_running=True)
                return
            except AccountingUnavailable:
                if self._loop.time() > deadline:
                    raise
            await asyncio.sleep(TICK)

    def committed(self, entries: Sequence[LogEntry]) -> None:
        """The recorder has committed these entries: their cost is spent, and no longer leased."""
        for entry in entries:
            row = entry.row
            if entry.is_intent or not (row.cost_micro or row.usd_micro):
                continue
            for key in (("key", row.token_id), ("group", row.group_name)):
                units, usd = self._trackers(key)
                units.committed(row.cost_micro)
                usd.committed(row.usd_micro)
            for key in dimension_holders(row):
                if (lease := self._leases.get(key)) is not None:
                    for tracker, spent in zip(
                        lease.trackers, (row.cost_micro, row.usd_micro), strict=True
                    ):
                        # A request that began before the budget was set is not among them yet.
                        tracker.unsettled = max(tracker.unsettled, spent)
                        tracker.committed(spent)

    def reset(self, _epoch: int = 0) -> None:
        """Forgets the leases, as this replica is registered again: nothing is leased to it."""
        self._table.forget_unclear()
        self._given_up.clear()
        for lease in self._leases.values():
            for tracker in lease.trackers:
                tracker.leased = 0

    async def _cover(
        self, request: ResourceRequest, needed: Cost, longest: Cost, *, is_running: bool = False
    ) -> None:
        required = needed if is_running else longest
        wanting = list(self._wanting(request, needed, required, is_first=not is_running))
        for pause in _PAUSES:
            if not wanting:
                return
            if pause:
                await asyncio.sleep(pause)
            if self._own.lease_seconds <= 0:
                raise AccountingUnavailable
            for lease in wanting:
                lease.asked = lease.asked or _Asked()
                lease.asked.add(needed, longest, request.started_at)
            self._granted = granted = self._granted or self._loop.create_future()
            self._wake.set()
            try:
                await self._wait_for(granted)
            except AccountingUnavailable:
                if any(self._wanting(request, needed, required, is_first=False)):
                    raise
                return  # its longest reply may exceed the lease, but it runs alone
            if any(_is_spent(lease, request, needed) for lease in wanting):
                return
            wanting = list(self._wanting(request, needed, required, is_first=False))

    async def _wait_for(self, granted: asyncio.Future[None]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.shield(granted)
        except TimeoutError:
            raise AccountingUnavailable from None
        if self._failure is not None:
            raise AccountingUnavailable

    def _wanting(
        self, request: ResourceRequest, needed: Cost, longest: Cost, *, is_first: bool
    ) -> Iterator[_HolderLease]:
        """The holders whose lease does not cover the request: with its expected cost, or where it
        competes with others (see `Quota.acquire`), or for the first time, with its longest reply.
        """
        now, at = self._loop.time(), request.started_at
        for holder in request.holders:
            if not holder.limits.has_budget:
                continue
            # Those that wait may have begun with earlier limits than others.
            known = None if is_first else self._leases.get(_key_of(holder))
            lease = known or self._lease(holder)
            lease.used_at = now
            asks_more = is_first and now - lease.no_room_at > _CONTENDED
            for number, budgets in enumerate(holder.budgets):
                tracker = lease.trackers[number]
                if is_first:
                    reserved = tracker.reserved + longest[number]
                    lease.peak[number] = max(lease.peak[number], reserved)
                amounts = longest if asks_more or tracker.reserved else needed
                if budgets and not tracker.covers(amounts[number], at):
                    yield lease
                    break

    def _lease(self, holder: Holder) -> _HolderLease:
        key = _key_of(holder)
        lease = self._leases.get(key)
        if lease is None:
            lease = self._leases[key] = _HolderLease(holder, self._trackers(key))
            for tracker in lease.trackers:
                tracker.is_over = lambda: self._own.lease_seconds <= 0
        elif lease.holder is not holder:
            if lease.holder.budgets != holder.budgets:  # the lease was granted for others
                for tracker in lease.trackers:
                    tracker.checked_from = _NEVER
            lease.holder = holder
        return lease

    def _trackers(self, key: HolderKey) -> tuple[LeasedTracker, LeasedTracker]:
        kind = HolderKind(key[0])
        units, usd = (self._quota.budget(kind, key[1], each) for each in Currency)
        return cast(LeasedTracker, units), cast(LeasedTracker, usd)

    async def _work(self) -> None:
        """Asks at once, and gives back what is unused from time to time."""
        due = self._loop.time() + TICK
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            await asyncio.sleep(0)  # those that were just woken take what was leased for them
            self._wake.clear()
            granted, self._granted = self._granted, None
            if is_tick := self._loop.time() >= due:
                due = self._loop.time() + TICK
            try:
                await self._round(is_tick=is_tick)
                self._failure = None
            except ReplicaRemoved:
                self.reset()  # the next heartbeat registers it again
            except Exception as error:  # whatever it is, those that wait must be woken
                self._note_failure(error)
            finally:
                if granted is not None and not granted.done():
                    granted.set_result(None)

    async def _round(self, *, is_tick: bool) -> None:
        # First, as those that asked do not wait any longer where the round fails.
        asked = self._take_asked()
        if self._own.lease_seconds <= 0:
            for lease in self._leases.values():
                for number, tracker in enumerate(lease.trackers):
                    self._give_up(lease, number, tracker.available)
            return
        for key, added in (await self._table.settle_unclear()).items():
            self._add(key, added)
        if asked:
            await self._ask(asked)
        if is_tick:
            self._measure_rates()
        if is_tick or self._is_contended:
            self._is_contended = False
            await self._give_back()
        if is_tick:
            await self._find_outdated()
            await self._refresh()

    def _take_asked(self) -> dict[HolderKey, _Asked]:
        asked: dict[HolderKey, _Asked] = {}
        for key, lease in self._leases.items():
            if lease.asked is not None and len(asked) < MAX_HOLDERS:
                asked[key], lease.asked = lease.asked, None
        return asked

    async def _ask(self, asked: Mapping[HolderKey, _Asked]) -> None:
        since = min(each.since for each in asked.values())
        in_rows = {key: _in_rows(self._leases[key]) for key in asked}
        crowded: list[HolderKey] = []

        def decide(key: HolderKey, figures: Figures, now: int) -> Cost:
            lease = self._leases[key]
            self._load(lease, figures, in_rows[key])
            amounts, has_room = self._decide(lease, asked[key], figures, min(since, now), now)
            if not has_room and figures.elsewhere != FREE:
                crowded.append(key)
            return amounts

        amounts = await self._table.grant(self._own.epoch, list(asked), since, decide)
        for key, amount in amounts.items():
            if amount != FREE:
                self._leases[key].granted_at = self._loop.time()
                self._add(key, amount)
        if crowded:
            await self._table.ask_others(crowded)

    def _decide(
        self, lease: _HolderLease, asked: _Asked, figures: Figures, since: int, now: int
    ) -> tuple[Cost, bool]:
        """Returns what the lease grows by, and whether there was room for all that was asked for.
        One below 0 can grow by that too, as it counts as none."""
        granted, has_room = [0, 0], True
        day = day_of(since).start
        for number, budgets in enumerate(lease.holder.budgets):
            if not budgets:
                continue
            tracker = lease.trackers[number]
            fleet = BudgetTracker(reserved=figures.leased[number])
            load_spent(fleet, figures.spend, number)
            rooms = [fleet.room(budgets, at) or 0 for at in (since, now, now + _SKEW)]
            beyond = max(0, -(figures.own or FREE)[number])
            room, room_now = min(rooms) + beyond, min(rooms[1:]) + beyond
            tracker.checked_from = day if room >= 0 else max(day, day_of(now).start)
            if room_now < 0:  # the budget was lowered: nothing is leased of it until this is back
                tracker.checked_from = _NEVER
                self._give_up(lease, number, -room_now)
            missing = max(0, asked.needed[number] - tracker.available)
            least = max(0, asked.least[number] - tracker.available)
            longest = max(0, asked.longest[number] - tracker.available)
            if room < missing:
                lease.no_room_at = self._loop.time()
            # Beside others a request has to have its longest reply.
            has_room &= room >= (longest if tracker.reserved else missing)
            if room >= least:
                target = self._set_target(lease, number, fleet, now)
                wanted = max(missing, asked.longest[number] + target - tracker.available)
                granted[number] = max(0, min(room, wanted))
        return Cost(*granted), has_room

    def _set_target(self, lease: _HolderLease, number: int, figures: BudgetTracker, at: int) -> int:
        """Returns what the lease is to have beside what is reserved, by what is spent of its
        budgets. Of a holder that is used only at other replicas it is as much as each of them has.
        """
        target, kept, budgets = 0, 0, lease.holder.budgets[number]
        if budgets and self._loop.time() >= lease.contended_until:
            lefts = [each.limit - figures.spent(each.kind.window, at) for each in budgets]
            if all(left * _NEAR > each.limit for left, each in zip(lefts, budgets, strict=True)):
                wanted = lease.rate[number] * _AHEAD + lease.peak[number]
                count = self._own.position[1]
                wanted = wanted or lease.trackers[number].elsewhere / max(1, count - 1)
                most = self._share * min(lefts) / count
                target, kept = int(min(wanted, most)), int(min(2 * wanted, most))
        lease.kept[number] = kept
        return target

    def _load(self, lease: _HolderLease, figures: Figures, in_rows: Cost) -> None:
        """The figures of all replicas, and what this one has settled but not committed. `in_rows`
        is what was committed when they were asked for."""
        now = self._now()
        given_up = self._given_up.get(_key_of(lease.holder), FREE)
        for number, tracker in enumerate(lease.trackers):
            load_spent(tracker, figures.spend, number)
            tracker.add_unsettled(now)
            tracker.elsewhere = figures.elsewhere[number]
            # Only where no commit is under way, and none has ended since the figures were asked
            # for: they may be from before it, when its cost was still leased.
            if figures.own is None:
                tracker.leased = 0
            elif not tracker.unsettled and tracker.in_rows == in_rows[number]:
                tracker.leased = figures.own[number] - given_up[number]
        lease.read_at, lease.is_outdated = self._loop.time(), False

    def _add(self, key: HolderKey, amount: Cost) -> None:
        for tracker, added in zip(self._trackers(key), amount, strict=True):
            tracker.leased += added

    def _measure_rates(self) -> None:
        now = self._loop.time()
        for lease in self._leases.values():
            fade = _FADE if now - lease.used_at < _IN_USE else 1.0
            for number, tracker in enumerate(lease.trackers):
                spent = tracker.used - lease.used[number]
                lease.used[number] = tracker.used
                lease.rate[number] = max(spent / TICK, lease.rate[number] * fade)
                lease.peak[number] = max(tracker.reserved, lease.peak[number] * fade)

    async def _give_back(self) -> None:
        """Gives back what will not be used in the next seconds."""
        unused, self._given_up = self._given_up, {}
        for key, lease in self._leases.items():
            amount = Cost(*(self._unused(lease, number) for number in range(len(lease.trackers))))
            if amount != FREE:
                # First here, so that what is given back is used nowhere.
                self._add(key, Cost(-amount.units, -amount.usd))
                unused[key] = Cost(*map(add, unused.get(key, FREE), amount))
            if len(unused) >= MAX_HOLDERS:
                break
        if unused:
            await self._table.give_back(self._own.epoch, unused)
        if len(unused) >= MAX_HOLDERS:
            self._is_contended = True  # others may wait for one that has not had its turn
            self._wake.set()

    def _unused(self, lease: _HolderLease, number: int) -> int:
        now = self._loop.time()
        is_contended = now < lease.contended_until
        is_awaited = lease.asked is not None and not is_contended
        if is_awaited or now - lease.granted_at < _TAKEN_WITHIN:
            return 0
        is_kept = not is_contended and now < lease.used_anywhere_at + _HOLD
        kept = lease.kept[number] if is_kept else 0
        return max(0, lease.trackers[number].available - kept)

    async def _find_outdated(self) -> None:
        """Finds outdated leases among the next of all holders: what only other replicas use is
        shown here too, and alerted of."""
        if not self._unread:
            self._unread.extend(self._holders())
        batch = [self._unread.popleft() for _ in range(min(len(self._unread), _OUTLINES_AT_ONCE))]
        if not batch:
            return
        holders = {_key_of(holder): holder for holder in batch}
        outlines = await self._table.outlines(self._own.epoch, [*holders])
        for key, outline in outlines.items():
            for number, tracker in enumerate(self._trackers(key)):
                known = tracker.total, tracker.elsewhere
                if known != (outline.total[number], outline.elsewhere[number]):
                    lease = self._lease(holders[key])
                    lease.is_outdated = True
                    if tracker.total != outline.total[number]:
                        lease.used_elsewhere_at = self._loop.time()

    async def _refresh(self) -> None:
        now = self._loop.time()
        due = [
            key
            for key, lease in self._leases.items()
            if (lease.is_outdated or now - lease.used_at < _IN_USE)
            and now - lease.read_at > _REFRESH
        ]
        due.sort(key=lambda key: self._leases[key].read_at)
        if due := due[:MAX_HOLDERS]:
            in_rows = {key: _in_rows(self._leases[key]) for key in due}
            read = await self._table.figures(self._own.epoch, due, now=self._now())
            for key, figures in read.items():
                self._load(self._leases[key], figures, in_rows[key])
                self._top_up(self._leases[key])
        for key, lease in tuple(self._leases.items()):
            is_empty = all(
                tracker.leased == tracker.reserved == tracker.unsettled == 0
                for tracker in lease.trackers
            )
            if is_empty and lease.asked is None and now - lease.used_at > _FORGET:
                del self._leases[key]
                if key[0] in BUDGET_DIMENSIONS:
                    self._quota.forget(lease.holder.kind, lease.holder.id)

    def _top_up(self, lease: _HolderLease) -> None:
        """Asks for more before requests have to wait for it, or the server is away."""
        is_used = self._loop.time() - lease.used_anywhere_at < _IN_USE
        for number, tracker in enumerate(lease.trackers):
            target = self._set_target(lease, number, tracker, self._now())
            if is_used and tracker.available < target * _LEAST_PART:
                lease.asked = lease.asked or _Asked(since=self._now())
                self._wake.set()

    def _needed_elsewhere(self, key: HolderKey) -> None:
        if (lease := self._leases.get(key)) is not None:
            lease.contended_until = self._loop.time() + _CONTENDED
            self._is_contended = True
            self._wake.set()

    def _give_up(self, lease: _HolderLease, number: int, most: int) -> None:
        """Gives up so much of what is not used: other replicas may soon use it, or budgets were
        lowered. Nothing is admitted with it from now on."""
        amount = min(most, lease.trackers[number].available)
        if amount > 0:
            key, given_up = _key_of(lease.holder), [0, 0]
            given_up[number] = amount
            lease.trackers[number].leased -= amount
            self._given_up[key] = Cost(*map(add, self._given_up.get(key, FREE), given_up))
            self._is_contended = True

    def _note_failure(self, error: BaseException) -> None:
        self._table.disconnect()
        reason = error_reason(error)
        if reason != self._failure:
            self._failure = reason
            log.warning("budgets cannot be leased: %s", reason)


def _key_of(holder: Holder) -> HolderKey:
    return holder.kind.value, holder.id


def _in_rows(lease: _HolderLease) -> Cost:
    return Cost(*(tracker.in_rows for tracker in lease.trackers))


def _is_spent(lease: _HolderLease, request: ResourceRequest, needed: Cost) -> bool:
    """Whether what is spent leaves no room: others cannot give back as much."""
    return any(
        budgets
        and not lease.trackers[number].covers(needed[number], request.started_at)
        and lease.trackers[number].without_room(budgets, request.started_at, needed[number])
        for number, budgets in enumerate(lease.holder.budgets)
    )
