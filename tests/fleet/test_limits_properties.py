"""Replicas, requests, those that wait, and failures in any order: no limit is exceeded by what the
server knows, no place is lost, and nobody waits for ever.

A plan is drawn as a whole, as what a step finds depends on the time that the server takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, note
from hypothesis import strategies as st

from gateway.core.limits import Limits
from gateway.quota.limits import Holder, HolderKind
from tests.fleet.limit_fleet import WINDOW, Admitted, LimitFleet, Member, limit_fleet, shorten
from tests.support.hypothesis_profiles import examples
from tests.support.valkey import ValkeyServer

pytestmark = pytest.mark.timeout(900)

NUMBER = st.integers(0, 99)
LIMITS = st.builds(
    Limits,
    requests_per_minute=st.none() | st.integers(1, 30),
    tokens_per_minute=st.none() | st.integers(20, 300),
    concurrent=st.none() | st.integers(1, 8),
)
ANY_LIMIT = st.builds(Limits, requests_per_minute=st.integers(1, 60), concurrent=st.integers(2, 12))


class Asked(NamedTuple):
    """`waits`: it waits for its turn."""

    member: int
    key: int
    tokens: int
    waits: bool


ASKED = st.lists(
    st.builds(
        Asked,
        member=NUMBER,
        key=st.integers(0, 1),
        tokens=st.sampled_from([0, 1, 10, 25]),
        waits=st.sampled_from([False, False, False, True]),
    ),
    min_size=4,
    max_size=25,
)
CHOSEN = st.lists(
    st.tuples(NUMBER, st.sampled_from([0, 5, 10, 40]), st.sampled_from("egw")),
    min_size=1,
    max_size=12,
)
"""Requests, their tokens, and whether each ends, grows or is withdrawn."""
STEPS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "requests": {"asked": ASKED},
    "requests_again": {"asked": ASKED},
    "changes": {"chosen": CHOSEN},
    "flush": {"asked": ASKED},
    "fails": {
        "number": NUMBER,
        "how": st.sampled_from(["reset", "hang", "expire", "pause"]),
        "asked": ASKED,
    },
    "is_killed": {"number": NUMBER},
    "seen": {},
    "time": {"seconds": st.sampled_from([0.05, 0.3, 1.2])},
}
PLAN = st.lists(
    st.one_of(
        [
            st.tuples(st.just(name), st.fixed_dictionaries(arguments))
            for name, arguments in STEPS.items()
        ]
    ),
    min_size=6,
    max_size=16,
)


@pytest.fixture(autouse=True, scope="module")
def shorter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        for name in ("gateway.fleet.limits", "gateway.fleet.valkey.session"):
            patch.setattr(logging.getLogger(name), "disabled", True)
        yield


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("valkey")
    server = ValkeyServer(folder)
    yield server.url
    server.stop()


class Steps:
    def __init__(self, fleet: LimitFleet, key: Limits, group: Limits, gateway: Limits) -> None:
        self.fleet = fleet
        self.holders = [
            (
                Holder(HolderKind.KEY, f"key {number}", f"key {number}", key),
                Holder(HolderKind.GROUP, "group", "group", group),
                Holder(HolderKind.GATEWAY, "", "the gateway", gateway),
            )
            for number in range(2)
        ]

    async def requests(self, asked: list[Asked]) -> None:
        acquiring = []
        for each in asked:
            member, holders = self._living(each.member), self.holders[each.key]
            if each.waits:
                self.fleet.wait(member, holders, each.tokens)
            else:
                acquiring.append(self.fleet.acquire(member, holders, each.tokens))
        await asyncio.gather(*acquiring)

    requests_again = requests

    async def changes(self, chosen: list[tuple[int, int, str]]) -> None:
        for number, tokens, what in chosen:
            if running := self._running():
                one = running[number % len(running)]
                if what == "g":
                    self.fleet.grow(one, max(one.latest, tokens))
                else:
                    self.fleet.end(one, tokens, is_withdrawn=what == "w")

    async def flush(self, asked: list[Asked]) -> None:
        await asyncio.gather(self.fleet.flush(), self.requests(asked))

    async def fails(self, number: int, how: str, asked: list[Asked]) -> None:
        failing = getattr(self.fleet, how)(self._living(number))
        if failing is not None:
            await failing
        await self.requests(asked)

    async def is_killed(self, number: int) -> None:
        """Another one of its name begins, not always at once."""
        member = self._living(number)
        await self.fleet.kill(member)
        await self.fleet.start(member.name)

    async def seen(self) -> None:
        """All is as it should be, and so is what the server decides."""
        await self.fleet.seen()

    async def time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def rest(self) -> None:
        fleet = self.fleet
        await fleet.seen()
        for one in self._running():
            self.fleet.end(one, one.latest)
        await self._nobody_waits_for_ever()
        for one in self._running():
            self.fleet.end(one, one.latest)
        await asyncio.sleep(2.1 + WINDOW / 1e6)  # sessions of those that were killed have ended
        await fleet.seen()
        first = fleet.living()[0].limits
        await asyncio.sleep(0.3)
        assert await first._connection.call("HLEN", first.session.keys[1]) == 0
        for each in fleet.living():
            assert not each.limits.session._running
            assert not each.limits._waiters
            assert not each.admission.waiting
        await self._all_places_are_of_use()

    async def _nobody_waits_for_ever(self) -> None:
        """They end as soon as they have begun: so each gets its turn, unless what it waits for is
        less than it needs."""
        if self.fleet.waiting:
            _, late = await asyncio.wait(self.fleet.waiting, timeout=25)
            assert not late
            for task in self.fleet.waiting:
                if isinstance(error := task.exception(), AssertionError):
                    raise error

    async def _all_places_are_of_use(self) -> None:
        holders = self.holders[0]
        counts = [
            limit
            for each in holders
            for limit in (each.limits.requests_per_minute, each.limits.concurrent)
            if limit is not None
        ]
        wanted = min(counts, default=40)
        members = self.fleet.living()
        results = await asyncio.gather(
            *(
                self.fleet.acquire(members[number % len(members)], holders, 0)
                for number in range(wanted + 5)
            )
        )
        assert sum(results) == (wanted if counts else wanted + 5)

    def _living(self, number: int) -> Member:
        living = self.fleet.living()
        return living[number % len(living)]

    def _running(self) -> list[Admitted]:
        return [
            each for each in self.fleet.admitted if each.is_running and not each.member.is_killed
        ]


@pytest.mark.slow("tries plans of several replicas on a real server")
@examples(0.15, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(number=st.integers(2, 3), key=LIMITS, group=LIMITS, gateway=ANY_LIMIT, plan=PLAN)
def test_no_limit_is_exceeded_and_no_place_is_lost(
    url: str,
    number: int,
    key: Limits,
    group: Limits,
    gateway: Limits,
    plan: list[tuple[str, dict[str, Any]]],
) -> None:
    async def live() -> None:
        async with asyncio.timeout(120), limit_fleet(url, number) as fleet:
            steps = Steps(fleet, key, group, gateway)
            for name, arguments in plan:
                note(f"{name} {arguments}")
                await getattr(steps, name)(**arguments)
            await steps.rest()

    asyncio.run(live())
