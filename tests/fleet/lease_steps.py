"""What may happen to a fleet, as steps of a plan, and what must hold after each and at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from gateway.core.limits import BUDGETS, FREE, UNLIMITED, Cost, Currency, Limits
from gateway.errors import GatewayError
from gateway.fleet import budget_leases
from gateway.store.log.integrity import check
from tests.fleet.broken_connections import Fault
from tests.fleet.lease_bounds import DAY, HOUR, STEP, Bounds, HolderKey, read_ledger
from tests.fleet.lease_fleet import (
    GRANT_TIMEOUT,
    HOLDERS,
    KEYS,
    Fleet,
    Replica,
    Request,
)

SECOND = 1_000_000


class Asked(NamedTuple):
    """A request that asks for admission: `longest` times its cost at most, begun so many
    microseconds `ago`. Which `part` of what it reserves it costs, where it ends at once."""

    replica: int
    key: str
    cost: Cost
    longest: int
    ago: int
    part: float | None


class Steps:
    """Numbers choose among what there is; a step that finds nothing does nothing. `limits` are
    those in force, which replicas learn later."""

    def __init__(self, fleet: Fleet, limits: dict[HolderKey, Limits]) -> None:
        self.fleet, self.limits = fleet, limits
        self._bounds = Bounds()

    # Requests

    async def requests(self, asked: Sequence[Asked], seconds: float = 0.0) -> None:
        """At once; some of them end at once."""

        async def send(each: Asked) -> None:
            longest = Cost(*(each.longest * amount for amount in each.cost))
            replica = self._living(each.replica)
            request = await self.fleet.begin(replica, each.key, each.cost, longest, each.ago)
            if isinstance(request, Request):
                self._reserved(request, request.reservation.cost)
                if each.part is not None:
                    await asyncio.sleep(each.replica % 7 / 1000)
                    self._end(request, each.part)

        await asyncio.gather(*map(send, asked))
        await asyncio.sleep(seconds)

    async def requests_at_one(self, number: int, asked: Sequence[Asked]) -> None:
        await self.requests([each._replace(replica=number) for each in asked])

    async def replies_grow(self, chosen: Sequence[tuple[int, int]]) -> None:
        """Beyond what they have reserved."""

        async def extend(number: int, more: int) -> None:
            if running := self.fleet.running():
                request = running[number % len(running)]
                before = request.reservation.cost
                await self.fleet.extend(request, Cost(before.units + more, before.usd))
                self._reserved(request, Cost(request.reservation.cost.units - before.units, 0))

        await asyncio.gather(*(extend(*each) for each in chosen))

    async def requests_end(self, chosen: Sequence[tuple[int, float]]) -> None:
        for number, part in chosen:
            if running := self.fleet.running():
                self._end(running[number % len(running)], part)

    async def one_costs_more(self, number: int, beyond: int) -> None:
        """Than it has reserved."""
        if running := self.fleet.running():
            self._end(running[number % len(running)], 1.0, beyond)

    async def rounds(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # Operators, and the clock

    async def limits_change(self, holder: HolderKey, limits: Limits, known_to: set[int]) -> None:
        """Some replicas know it at once."""
        await self._no_grant_is_under_way()
        self.limits[holder] = limits
        for number in known_to:
            self._living(number).limits[holder] = limits

    async def all_know_the_limits(self) -> None:
        await self._no_grant_is_under_way()
        for replica in self.fleet.living():
            replica.limits |= self.limits

    async def _no_grant_is_under_way(self) -> None:
        """One that was decided before may be seen after it, where the network is broken. Leases
        ahead are asked for by the limits of the latest request, for a while."""
        await asyncio.sleep(budget_leases._IN_USE + 2 * budget_leases.TICK)
        longest = GRANT_TIMEOUT + 0.3
        if any(each.leasing.seconds_sound < longest for each in self.fleet.living()):
            await asyncio.sleep(longest)
            await self.check()

    async def a_key_moves(self, key: str, group: str) -> None:
        self.fleet.group_of[key] = group

    async def time_passes(self, unit: int, before: bool) -> None:
        """To the next step, hour or day, or to a moment before it."""
        now = self.fleet.now()
        start = now - now % min(unit, DAY) + unit
        await self.fleet.set_clock(max(now, start - (20_000 if before else 0)))

    # Failures

    async def connections_break(
        self,
        breaks: dict[int, tuple[tuple[bool, bytes], Fault]],
        asked: Sequence[Asked],
        ended: Sequence[tuple[int, float]],
    ) -> None:
        """At certain messages of requests."""
        for number, ((of_leases, text), fault) in breaks.items():
            replica = self._living(number)
            (replica.leasing if of_leases else replica.writing).plan(text, fault)
        await self.requests_end(ended)
        await self.requests(asked, 0.1)

    async def network_hangs_or_is_mended(self, number: int, leases: bool, rows: bool) -> None:
        replica = self._living(number)
        replica.mend()
        if leases:
            replica.leasing.hang()
        if rows:
            replica.writing.hang()

    async def a_replica_fails(self, number: int, is_killed: bool, is_removed: bool) -> None:
        """Its process ends, or it is not heard of; others may remove it."""
        replica = self._living(number)
        if is_killed and len(self.fleet.living()) > 1:
            await self.fleet.kill(replica)
        replica.own.contact_at = -1e9
        if is_removed and not replica.is_reaped:
            await self._remove(replica)

    async def a_replica_expires(self, number: int, is_killed: bool) -> None:
        """Others have not heard of it, whatever it does."""
        replica = self._living(number)
        if is_killed and len(self.fleet.living()) > 1:
            await self.fleet.kill(replica)
        if not replica.is_reaped:
            await self.fleet.expire(replica)

    async def a_replica_comes_back(self, number: int, is_removed: bool) -> None:
        failed = [
            each for each in self.fleet.replicas.values() if each.is_killed or not each.has_contact
        ]
        if failed:
            replica = failed[number % len(failed)]
            if is_removed and not replica.is_reaped:
                await self._remove(replica)
            if replica.is_killed:
                await self.fleet.start(replica.own.name, self.limits)
            else:
                await self.fleet.regain_contact(replica)

    async def _remove(self, replica: Replica) -> None:
        """Its leases end: what it has spent of them and not written is charged beyond them."""
        rows = (await read_ledger(self.fleet.connection)).rows
        for each in self.fleet.requests:
            is_written = rows.get(each.row.id, ("",))[0] == "ok"
            if each.replica is replica and each.cost is not None and not is_written:
                for holder in each.holders:
                    for currency, amount in zip(Currency, each.cost, strict=True):
                        self._charge_beyond(each, holder, currency, amount)
        await self.fleet.reap(replica)

    # What must hold

    async def check(self) -> list[str]:
        """Returns what was spent and leased of each limited budget."""
        running = {each.replica for each in self.fleet.running()}
        ended = [
            replica.own.name
            for replica in self.fleet.living()
            if replica not in running and not replica.recorder.backlog
        ]
        ledger = await read_ledger(self.fleet.connection)
        known = {
            holder: [each.limits.get(holder, UNLIMITED) for each in self.fleet.living()]
            for holder in HOLDERS
        }
        lines = self._bounds.check(ledger, known)
        for name in ended:
            self._bounds.all_ended(name)
        return lines

    async def rest(self) -> None:
        """Everything works again and ends: all is written, and all budgets are of use."""
        fleet = self.fleet
        await self._mend_all()
        for request in fleet.running():
            self._end(request, 1.0)
        await fleet.flush()
        await self.check()
        ledger = await read_ledger(fleet.connection)
        for request in fleet.requests:
            if not request.replica.is_killed:
                assert ledger.rows[request.row.id] == ("ok", request.cost)
        for replica in fleet.living():
            for tracker in replica.trackers():
                assert (tracker.reserved, tracker.unsettled) == (0, 0)
        first, *others = KEYS
        await self._use_up(first)  # while others have leased ahead
        await self._all_is_given_back()
        for key in others:
            await self._use_up(key)
        await fleet.flush()
        await self.check()
        assert (await check(fleet.database)).discrepancies == ()

    async def _mend_all(self) -> None:
        fleet = self.fleet
        for replica in fleet.replicas.values():
            if not replica.is_killed:
                replica.mend()
                await fleet.regain_contact(replica)
            elif not replica.is_reaped:
                await fleet.reap(replica)
        await self.all_know_the_limits()
        now = fleet.now()
        await fleet.set_clock(now - now % STEP + STEP + 10 * SECOND)  # no window ends soon

    async def _all_is_given_back(self) -> None:
        """What is not used any more."""
        until = asyncio.get_running_loop().time() + 15
        while any(cost != FREE for cost in (await self._leased()).values()):
            assert asyncio.get_running_loop().time() < until, await self._leased()
            await asyncio.sleep(0.05)

    async def _leased(self) -> dict[HolderKey, Cost]:
        return (await read_ledger(self.fleet.connection)).leased

    async def _use_up(self, key: str) -> None:
        """One replica can spend all that is left, whoever had leased it, and nothing more."""
        fleet, replica = self.fleet, self.fleet.living()[0]
        holders = ("key", key), ("group", fleet.group_of[key])
        rooms = await self._rooms(holders)
        cost = Cost(*(room or 0 for room in rooms))
        request: Request | GatewayError | None = None
        try:
            async with asyncio.timeout(15):
                while not isinstance(
                    request := await fleet.begin(replica, key, cost, FREE), Request
                ):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{key}: {cost} is left, but {request}") from None
        self._end(request, 1.0)
        await fleet.flush()
        for number, room in enumerate(await self._rooms(holders)):
            if room is not None:
                assert room == 0
                one = Cost(*(int(each == number) for each in range(len(Currency))))
                refused = await fleet.begin(replica, key, one, FREE)
                assert isinstance(refused, GatewayError), f"{key}: {one} beyond its budgets"

    async def _rooms(self, holders: Sequence[HolderKey]) -> list[int | None]:
        """What is not spent, by currency; None: unlimited."""
        ledger = await read_ledger(self.fleet.connection)
        ledger.leased.clear()
        rooms: list[int | None] = []
        for currency in Currency:
            left = [
                limit - ledger.used(holder, kind)
                for holder in holders
                for name, kind in BUDGETS.items()
                if kind.currency is currency
                and (limit := getattr(self.limits[holder], name)) is not None
            ]
            rooms.append(max(0, min(left)) if left else None)
        return rooms

    # Bookkeeping

    def _living(self, number: int) -> Replica:
        living = self.fleet.living()
        return living[number % len(living)]

    def _reserved(self, request: Request, amount: Cost) -> None:
        """What is reserved where there is no budget is not leased."""
        for holder in request.reservation.request.holders:
            for currency, budgets, more in zip(Currency, holder.budgets, amount, strict=True):
                if not budgets:
                    self._charge_beyond(request, (holder.kind.value, holder.id), currency, more)

    def _end(self, request: Request, part: float, beyond: int = 0) -> None:
        reserved = request.reservation.cost
        cost = Cost(*(int(part * each) for each in reserved))
        cost = Cost(cost.units + beyond, cost.usd)
        # One whose replica was removed meanwhile is covered by no lease any more.
        is_late = request.epoch != request.replica.own.epoch or request.replica.is_reaped
        self.fleet.end(request, cost)
        for holder in request.holders:
            for number, currency in enumerate(Currency):
                more = cost[number] if is_late else max(0, cost[number] - reserved[number])
                self._charge_beyond(request, holder, currency, more)

    def _charge_beyond(
        self, request: Request, holder: HolderKey, currency: Currency, amount: int
    ) -> None:
        if amount:
            self._bounds.charged_beyond[request.replica.own.name, holder, currency] += amount


__all__ = ["DAY", "HOUR", "SECOND", "STEP", "Asked", "Steps"]
