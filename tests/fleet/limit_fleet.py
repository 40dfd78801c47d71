"""Replicas of one process that share limits, whose connections, sessions and processes fail when a
test says so; and what they have admitted together, kept in the simplest way.

Times are the server's, in microseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from secrets import token_hex
from types import SimpleNamespace
from typing import cast

import pytest
from pydantic import SecretStr

from gateway.admission.access import Permit
from gateway.config.cluster import SharedServer
from gateway.config.limits import SharedLimits as LimitOptions
from gateway.core.limits import FREE
from gateway.errors import GatewayError, TooManyRequests
from gateway.fleet import limits
from gateway.fleet.admission import SharedAdmission
from gateway.fleet.limits import SharedLimits, SharedReservation
from gateway.fleet.valkey import session
from gateway.fleet.valkey.connection import Connection, Script, load_script
from gateway.quota.limits import Holder, Quota, Reservation, ResourceRequest
from gateway.quota.sliding_window import SlidingCounter, SlidingWindow
from gateway.store.records import OnSharedLoss
from tests.support.proxy import Direction, FaultProxy, fault_proxy
from tests.support.toxics import Timeout

WINDOW = 2_000_000
LIFE = 2.0
REFUSE = cast(Permit, SimpleNamespace(on_shared_loss=OnSharedLoss.REFUSE, has_budget=False))
"""Nothing is admitted while the server is lost."""


def shorten(patch: pytest.MonkeyPatch) -> None:
    """A minute lasts two seconds, in the scripts and here, and so does a session's life."""
    for module, name in (
        (limits, "ACQUIRE"),
        (limits, "LEAVE"),
        (session, "JOIN"),
        (session, "RENEW"),
        (session, "SETTLE"),
    ):
        text = load_script(name.lower(), library="functions").text
        assert "MINUTE = 60000000" in text
        text = text.replace("MINUTE = 60000000", f"MINUTE = {WINDOW}")
        patch.setattr(module, name, Script(text.replace("= 61000", "= 3000")))
    patch.setattr(session, "WINDOW", WINDOW)
    patch.setattr(session, "SESSION_TTL", LIFE)
    patch.setattr(session, "RENEW_INTERVAL", 0.2)
    for kind in (SlidingWindow, SlidingCounter):
        patch.setattr(kind.__init__, "__defaults__", (WINDOW / 1e6,))


@dataclass(slots=True, eq=False)
class Member:
    """A replica. `is_sound`: nothing has failed since it was last seen to share its limits, so the
    server knows all of its requests."""

    name: str
    proxy: FaultProxy
    admission: SharedAdmission
    limits: SharedLimits
    stack: AsyncExitStack
    is_sound: bool = True
    is_known: bool = True
    """Whether what it has admitted in the last minute is on the server."""
    is_killed: bool = False


@dataclass(slots=True, eq=False)
class Admitted:
    """`tokens` is the least that the server may count, until all have been `LimitFleet.seen`."""

    member: Member
    reservation: Reservation
    at: int
    tokens: int
    latest: int
    is_running: bool = True
    is_withdrawn: bool = False


@dataclass(slots=True)
class LimitFleet:
    url: str
    prefix: str
    members: dict[str, Member] = field(default_factory=dict)
    admitted: list[Admitted] = field(default_factory=list)
    waiting: set[asyncio.Future[None]] = field(default_factory=set)

    async def start(self, name: str) -> Member:
        stack = AsyncExitStack()
        proxy = await stack.enter_async_context(fault_proxy(self.url))
        server = SharedServer(url=SecretStr(proxy.address), prefix=self.prefix, timeout=1.0)
        connection = Connection(server)
        await connection.open()
        shared = SharedLimits(connection, name)
        await shared.open()
        member = Member(name, proxy, SharedAdmission(Quota(), shared, None), shared, stack)
        self.members[name] = member
        return member

    def living(self) -> list[Member]:
        return [each for each in self.members.values() if not each.is_killed]

    async def acquire(self, member: Member, holders: tuple[Holder, ...], tokens: int) -> bool:
        with suppress(GatewayError):
            request = ResourceRequest(holders, 0, tokens, FREE)
            self._begun(member, await member.admission.acquire(REFUSE, request), tokens)
            return True
        return False

    def wait(self, member: Member, holders: tuple[Holder, ...], tokens: int) -> None:
        """It waits for as long as it may, and ends as soon as it was admitted."""

        async def queued() -> None:
            request = ResourceRequest(holders, 0, tokens, FREE)
            try:
                reservation = await member.admission.acquire(REFUSE, request)
            except TooManyRequests as error:
                options = LimitOptions(max_wait=20.0)
                reservation = await member.admission.wait(REFUSE, request, options, error)
            one = self._begun(member, reservation, tokens)
            await asyncio.sleep(0.01)
            self.end(one, tokens)

        task = asyncio.ensure_future(queued())
        self.waiting.add(task)

    def _begun(self, member: Member, reservation: Reservation, tokens: int) -> Admitted:
        assert isinstance(reservation.shared, SharedReservation)
        one = Admitted(member, reservation, reservation.shared._entry.time, tokens, tokens)
        self.admitted.append(one)
        self._check(one)
        return one

    def _check(self, one: Admitted) -> None:
        """The limits of its holders were kept when it was admitted."""
        for holder in one.reservation.request.holders:
            of_holder = [
                each
                for each in self.admitted
                if holder in each.reservation.request.holders and not each.is_withdrawn
            ]
            recent = [
                each
                for each in of_holder
                if one.at - WINDOW < each.at <= one.at and (each.member.is_known or each is one)
            ]
            running = [
                each
                for each in of_holder
                if each.is_running and (each.member.is_sound or each is one)
            ]
            tokens = sum(each.tokens for each in recent) if one.tokens else 0
            for what, limit, used in (
                ("requests", holder.limits.requests_per_minute, len(recent)),
                ("tokens", holder.limits.tokens_per_minute, tokens),
                ("running", holder.limits.concurrent, len(running)),
            ):
                assert limit is None or used <= limit, f"{holder}: {used} of {limit} {what}"

    def grow(self, one: Admitted, tokens: int) -> None:
        one.reservation.extend(tokens, FREE)
        one.latest, one.tokens = tokens, min(one.tokens, tokens)

    def end(self, one: Admitted, tokens: int, *, is_withdrawn: bool = False) -> None:
        if not one.is_running or one.member.is_killed:
            return
        one.reservation.is_provisional = is_withdrawn
        one.member.admission.settle(one.reservation, 0 if is_withdrawn else tokens, FREE)
        one.latest, one.tokens = tokens, min(one.tokens, tokens)
        one.is_running, one.is_withdrawn = False, is_withdrawn

    # Failures

    async def flush(self) -> None:
        """The server loses everything. What those know that do not reach it is not known."""
        connection = self.members["a"].limits._connection
        for each in {*self.members.values(), *(one.member for one in self.admitted)}:
            each.is_known = each.is_known and each.is_sound
        with suppress(Exception):
            await connection.call("FLUSHALL")

    def reset(self, member: Member) -> None:
        """It connects again at once, and what it has stays known."""
        member.is_sound = False
        member.proxy.reset()

    def hang(self, member: Member) -> None:
        member.is_sound = False
        for direction in Direction:
            member.proxy.add(Timeout(), direction)

    async def expire(self, member: Member) -> None:
        """As if it had not renewed its session for its life."""
        member.is_sound = False
        keys = member.limits.session.keys
        with suppress(Exception):
            await self.members["a"].limits._connection.call(
                "ZADD", keys[0], "XX", 1, member.limits.session.id
            )

    def pause(self, member: Member) -> None:
        """Its process stands still, but for what it sends."""
        member.is_sound = False
        if (task := member.limits.session._renewing) is not None:
            task.cancel()

    async def kill(self, member: Member) -> None:
        member.is_killed, member.is_sound = True, False
        shared = member.limits
        for task in (shared.session._renewing, shared.session._joining):
            if task is not None:
                task.cancel()
        member.proxy.reset()
        await shared._connection.close()
        await member.stack.aclose()

    # Rest

    async def seen(self) -> None:
        """All that live are connected, and the server knows all that they have sent."""
        for each in self.living():
            each.proxy.clear()
            session = each.limits.session
            if session._renewing is None or session._renewing.done():
                session._renewing = asyncio.ensure_future(session._renew_forever())
        async with asyncio.timeout(20):
            for each in self.living():
                while not each.is_sound:
                    with suppress(Exception):
                        await each.limits.session.join()
                        each.is_sound = each.is_known = True
                    await asyncio.sleep(0.02)
            for each in self.living():
                await each.limits._connection.call("PING")
        for one in self.admitted:
            if not one.member.is_killed:
                one.tokens = one.latest


@asynccontextmanager
async def limit_fleet(url: str, number: int) -> AsyncIterator[LimitFleet]:
    fleet = LimitFleet(url, f"t{token_hex(6)}")
    try:
        for name in _names(number):
            await fleet.start(name)
        yield fleet
    finally:
        for task in fleet.waiting:
            task.cancel()
        await asyncio.gather(*fleet.waiting, return_exceptions=True)
        for each in fleet.living():
            await fleet.kill(each)


def _names(number: int) -> Iterator[str]:
    return iter("abcd"[:number])
