"""A network that breaks exactly where a database's client would like it least."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from gateway.config.cluster import DatabaseServer
from tests.support.proxy import Direction, FaultProxy, fault_proxy
from tests.support.toxics import Broken, Onward, Timeout, Toxic, Traffic


class Fault(StrEnum):
    """What becomes of one message of the client, once."""

    UNSENT = "the connection is lost before the server gets it"
    UNANSWERED = "the server does it, and its answer is lost"
    LATE = "the server gets it when the client has given up"


@dataclass(slots=True)
class _Plan:
    """The next message that contains `text`."""

    text: bytes = b""
    fault: Fault = Fault.UNSENT
    is_answer_lost: bool = False


@dataclass(frozen=True, slots=True)
class _Sent(Toxic):
    plan: _Plan
    seconds: float

    async def pass_on(self, data: bytes, traffic: Traffic, onward: Onward) -> None:
        plan = self.plan
        if plan.text and plan.text in data:
            plan.text = b""
            if plan.fault is Fault.UNSENT:
                raise Broken(reset=True)
            if plan.fault is Fault.LATE:
                await asyncio.sleep(self.seconds)
            else:
                plan.is_answer_lost = True
        await onward(data)


@dataclass(frozen=True, slots=True)
class _Answered(Toxic):
    plan: _Plan

    async def pass_on(self, data: bytes, traffic: Traffic, onward: Onward) -> None:
        if self.plan.is_answer_lost:
            self.plan.is_answer_lost = False
            raise Broken(reset=True)
        await onward(data)


class BreakableServer:
    """A database server behind a proxy; `address` is its address there. `broken_at`: when
    a fault was last planned, or it was found to hang, by the loop's time."""

    def __init__(self, proxy: FaultProxy, address: DatabaseServer, late: float) -> None:
        self.address = address
        self.broken_at, self._is_hanging = -math.inf, False
        self._proxy, self._late = proxy, late
        self.mend()

    @property
    def seconds_sound(self) -> float:
        """For how long nothing was held back."""
        if self._is_hanging:
            return 0.0
        return asyncio.get_running_loop().time() - self.broken_at

    def plan(self, text: bytes, fault: Fault) -> None:
        """For the next message of a client with this text."""
        self.broken_at = asyncio.get_running_loop().time()
        self._plan.text, self._plan.fault = text, fault

    def hang(self) -> None:
        """Nothing passes until `mend`."""
        self._is_hanging = True
        for direction in Direction:
            self._proxy.add(Timeout(), direction)

    def reset(self) -> None:
        """All connections are lost, with what is under way."""
        self._proxy.reset()

    def mend(self) -> None:
        if self._is_hanging:
            self.broken_at = asyncio.get_running_loop().time()
        self._is_hanging = False
        self._proxy.clear()
        self._plan = _Plan()
        self._proxy.add(_Sent(self._plan, self._late), Direction.UP)
        self._proxy.add(_Answered(self._plan), Direction.DOWN)


@asynccontextmanager
async def breakable(url: str, timeout: float, late: float = 0.6) -> AsyncIterator[BreakableServer]:
    """`timeout`: seconds that its clients wait; `late`: those by which a message can be late."""
    async with fault_proxy(url) as proxy:
        there = url.replace(f":{urlsplit(url).port}/", f":{urlsplit(proxy.address).port}/")
        address = DatabaseServer.model_validate({"url": there, "timeout": timeout})
        yield BreakableServer(proxy, address, late)
