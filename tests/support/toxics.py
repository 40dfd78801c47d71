"""What may happen to bytes on their way, under the names that fault proxies have for it.

Times are seconds, sizes bytes. A toxic sees one direction of one connection.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

Onward = Callable[[bytes], Awaitable[None]]
"""Passes bytes to the next toxic, at last to the peer."""


class Broken(Exception):
    """The connection shall end here: with RST, else with FIN."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__("reset" if reset else "closed")
        self.reset = reset


@dataclass(slots=True)
class Traffic:
    """One direction of one connection. `cleared` is set when all toxics are taken away."""

    cleared: asyncio.Event
    arrived_at: float = 0
    """When the chunk in hand came."""
    moved: int = 0
    """Bytes that reached the peer's side."""


class Toxic:
    async def pass_on(self, data: bytes, traffic: Traffic, onward: Onward) -> None:
        """One chunk. Raises `Broken`."""
        await onward(data)

    async def closing(self) -> None:
        """Before the end of the data is passed on."""


@dataclass(frozen=True, slots=True)
class Latency(Toxic):
    """Everything comes later by as much, give or take `jitter`; the order stays."""

    seconds: float
    jitter: float = 0
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    async def pass_on(self, data: bytes, traffic: Traffic, onward: Onward) -> None:
        late = self.seconds + self.chance.uniform(-self.jitter, self.jitter)
        await asyncio.sleep(traffic.arrived_at + late - asyncio.get_running_loop().time())
        await onward(data)


@dataclass(frozen=True, slots=True)
class Bandwidth(Toxic):
    """So many bytes in a second, in twenty pieces."""

    rate: int

    async def pass_on(self, data: bytes, traffic: Traffic, onward: Onward) -> None:
        step = max(1, self.rate // 20)
        for start in range(0, len(data), step):
            piece = data[start : start + step]
            await asyncio.sleep(len(piece) / self.rate)
            await onward(piece)


@dataclass(frozen=True, slots=True)
class Slicer(Toxic):
    """Pieces of `size` bytes, give or take `spread`, so far apart that the peer reads them singly
    if it reads at once."""

    size: int = 1
    spread: int = 0
    pause: float = 0
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    async def pass_on(self, data: bytes, traffic: Traffic, onward: Onward) -> None:
        while data:
            size = max(1, self.size + self.chance.randint(-self.spread, self.spread))
            await onward(data[:size])
            data = data[size:]
            await asyncio.sleep(self.pause)


@dataclass(frozen=True, slots=True)
class Timeout(Toxic):
    """Nothing passes any more, and so long after the first byte that does not the connection is
    closed; 0: it never is. When the toxic is taken away, what was held back passes."""

    seconds: float = 0

    async def pass_on(self, data: bytes, traffic: Traffic, onward: Onward) -> None:
        try:
            async with asyncio.timeout(self.seconds or None):
                await traffic.cleared.wait()
        except TimeoutError:
            raise Broken(reset=False) from None
        await onward(data)


@dataclass(frozen=True, slots=True)
class ResetPeer(Toxic):
    """RST to both sides, so long after `size` bytes have passed."""

    seconds: float = 0
    size: int = 0

    async def pass_on(self, data: bytes, traffic: Traffic, onward: Onward) -> None:
        await _pass_up_to(self.size, data, traffic, onward)
        if traffic.moved >= self.size:
            await asyncio.sleep(self.seconds)
            raise Broken(reset=True)


@dataclass(frozen=True, slots=True)
class SlowClose(Toxic):
    """An end of the data is passed on later by as much."""

    seconds: float

    async def closing(self) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True, slots=True)
class LimitData(Toxic):
    """The connection is closed after so many bytes."""

    size: int

    async def pass_on(self, data: bytes, traffic: Traffic, onward: Onward) -> None:
        await _pass_up_to(self.size, data, traffic, onward)
        if traffic.moved >= self.size:
            raise Broken(reset=False)


async def _pass_up_to(size: int, data: bytes, traffic: Traffic, onward: Onward) -> None:
    if allowed := data[: size - traffic.moved]:
        await onward(allowed)
