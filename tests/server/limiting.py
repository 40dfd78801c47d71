"""What tests of the door share: keys with terms, what refusals say, and how much is taken.

It must not know which limit is tested.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiohttp import ClientResponse

from gateway.core.formats import Format
from gateway.core.limits import Limits
from gateway.quota.limits import HolderKind
from gateway.runtime import unix_microseconds
from gateway.store.records import Token
from tests.house import PATHS, House, channels, open_house, prompt
from tests.scripted import ScriptedUpstream
from tests.support.timing import SLACK

GROUP = "default"


@dataclass(frozen=True, slots=True)
class Refused:
    """An error as a client of any format reads it; `code` is None on messages, which has none."""

    status: int
    type: str
    message: str
    code: str | None = None


async def refused(answer: ClientResponse) -> Refused:
    body = await answer.json()
    error = body["error"]
    if body.get("type") == "error":
        assert body["request_id"] == answer.headers["request-id"]
        return Refused(answer.status, error["type"], error["message"])
    assert set(body) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    return Refused(answer.status, error["type"], error["message"], error["code"])


def expected(spoken: Format, status: int, types: tuple[str, str], message: str, code: str) -> Any:
    """`types` are that of messages and that of the others."""
    if spoken is Format.MESSAGES:
        return Refused(status, types[0], message)
    return Refused(status, types[1], message, code)


def limit_key(house: House, **limits: int) -> None:
    """The house's key has these limits from the next request on."""
    registry = house.daemon.runtime.registry
    token = registry.token(house.token.id)
    assert token is not None
    registry.put_token(replace(token, limits=Limits(**limits)))


def limit_group(house: House, **limits: int) -> None:
    """The same for the group of the house's key."""
    registry = house.daemon.runtime.registry
    group = registry.group(GROUP)
    assert group is not None
    registry.put_group(replace(group, limits=Limits(**limits)))


def spend(
    house: House, *, ago: float, tokens: int = 0, micro: int = 0, token: Token | None = None
) -> None:
    """The house's key has made a request of so many tokens, `ago` seconds before now."""
    runtime = house.daemon.runtime
    now = asyncio.get_running_loop().time() - ago
    permit = runtime.permit(runtime.registry.token((token or house.token).id) or house.token)
    lease = runtime.quota.take(
        permit.holders, now=now, at=runtime.now(), tokens=tokens, micro=micro
    )
    lease.settle(tokens, micro)


def shift_clock(house: House, seconds: float) -> None:
    """From now on it is so much later than it is."""
    house.daemon.runtime.now = lambda: unix_microseconds() + int(seconds * 1e6)


def in_hand(house: House) -> list[tuple[int, int]]:
    """How many running requests the key, its group and the gateway have, and how much money is
    reserved for them."""
    quota = house.daemon.runtime.quota
    tallies = [
        quota._tallies.get(holder)
        for holder in (
            (HolderKind.KEY, house.token.id),
            (HolderKind.GROUP, GROUP),
            (HolderKind.GATEWAY, ""),
        )
    ]
    return [(tally.running, tally.purse.reserved) if tally else (0, 0) for tally in tallies]


NOBODY = [(0, 0)] * 3


async def all_given_back(house: House) -> None:
    """Waits until nothing is in hand any more."""
    async with asyncio.timeout(SLACK):
        while in_hand(house) != NOBODY:
            await asyncio.sleep(0.005)


def ask_and_wait(house: House, spoken: Format = Format.CHAT, **fields: Any) -> asyncio.Task[Any]:
    """A request of which nothing is read: it runs until its upstream or its client ends it."""
    return asyncio.ensure_future(
        house.http.post(
            PATHS[spoken],
            json=prompt(spoken, **fields),
            headers={"x-api-key": house.key, "anthropic-version": "2023-06-01"},
        )
    )


async def end(asking: asyncio.Task[Any]) -> None:
    asking.cancel()
    await asyncio.wait({asking})


@asynccontextmanager
async def patient(
    upstream: ScriptedUpstream, state: Path, wait: float = 5, **config: Any
) -> AsyncIterator[House]:
    """A house in which requests wait for their turn, for so many seconds at most."""
    limits = {"max_wait": wait} | config.pop("limits", {})
    async with open_house(state, channels(upstream.address), limits=limits, **config) as house:
        yield house


async def waiting(house: House, count: int = 1) -> None:
    """Until so many requests stand in line."""
    async with asyncio.timeout(SLACK):
        while len(house.daemon.runtime.turns._line) != count:
            await asyncio.sleep(0.005)
