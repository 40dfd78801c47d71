"""Pages and lists with many keys: what one costs does not grow with keys that it does not show."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import pytest

from gateway.console.pages.tokens import PAGE_SIZE
from gateway.core.limits import Limits
from gateway.store import tokens as store_tokens
from gateway.store.records import TokenState
from gateway.store.registry import Registry
from gateway.store.tokens import add_tokens
from tests.console.access_api import mounted
from tests.console.visitor import Visitor, signed_in_visitor
from tests.store.sample_rows import token
from tests.support.gateway import RunningGateway

MANY: Final = 5_000
BATCH: Final = 500
MAX_GROWTH: Final = 0.06
"""Seconds of a processor that a page may take longer than with a few keys."""
MAX_READ: Final = 210
"""Keys that a page may read: suggestions are 200."""
WHOLE_LISTS: Final = {"/admin/api/budgets", "/admin/api/keys"}
"""They show all: the work is done in steps, between which others run."""
MAX_STALL: Final = 0.06
"""Seconds for which a whole list may keep the loop."""
PLACES: Final = {
    "/console/groups/{name}": "/console/groups/many",
    "/console/groups/{name}/edit": "/console/groups/many/edit",
    "/console/groups/{name}/remove": "/console/groups/many/remove",
    "/admin/api/groups/{name}": "/admin/api/groups/many",
    "/admin/api/overview": "/admin/api/overview?since=0",
    "/admin/api/requests/events": "/admin/api/requests/events?status=wrong",
    "/admin/api/usage": "/admin/api/usage?by=key",
    "/admin/api/traffic": "/admin/api/traffic?since=0&by=model",
}
"""Of paths with names; in others it is a key's id."""
QUERIES: Final = (
    "/console?since=30d&by=key",
    "/console/usage?since=30d&by=group",
    "/console/logs?key=name+7",
    "/console/logs/tail?key=name+7",
    "/console/tokens?q=name+7",
    "/console/tokens?page=2&revoked=",
)


@pytest.mark.slow("adds thousands of keys, and loads every page of the console several times")
async def test_every_page_and_list(gateway: RunningGateway) -> None:
    await gateway.operations.create_group("many", ("*",))
    await add_keys(gateway, range(10))
    paths = [PLACES.get(path, path.replace("{id}", "tok_1")) for path in read_paths(gateway)]
    async with signed_in_visitor(gateway) as visitor:
        few = {path: await cost(visitor, path) for path in (*paths, *QUERIES)}
        await add_keys(gateway, range(10, MANY))
        growing = await costs_more(visitor, few)
        growing = await costs_more(visitor, growing)  # others may have had the processor
        stalls = {path: await stall(visitor, path) for path in WHOLE_LISTS}
    assert growing.keys() <= WHOLE_LISTS, growing
    assert max(stalls.values()) < MAX_STALL, stalls


def read_paths(gateway: RunningGateway) -> set[str]:
    return {
        route.resource.canonical
        for route in mounted(gateway)
        if route.method == "GET" and route.resource is not None
    }


@pytest.mark.slow("adds many keys")
async def test_a_page_reads_the_keys_that_it_shows(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No page reads all keys, not from the database and not from memory, whatever it is asked."""
    await gateway.operations.create_group("many", ("*",))
    await add_keys(gateway, range(10, 1000), name="name 7")
    await add_keys(gateway, range(10))
    read: list[object] = []
    from_row, tokens = store_tokens._from_row, Registry.tokens

    def counted_row(record: Any, row: Any) -> Any:
        read.append(row)
        return from_row(record, row)

    def counted_tokens(registry: Registry, limit: int | None = None) -> Any:
        found = tokens(registry, limit)
        read.extend(found)
        return found

    monkeypatch.setattr(store_tokens, "_from_row", counted_row)
    monkeypatch.setattr(Registry, "tokens", counted_tokens)
    paths = [PLACES.get(path, path.replace("{id}", "tok_1")) for path in read_paths(gateway)]
    counts = {}
    async with signed_in_visitor(gateway) as visitor:
        for path in (*paths, *QUERIES):
            read.clear()
            assert (await visitor.get(path)).status < 500, path
            counts[path] = len(read)
    assert {path for path, count in counts.items() if count > MAX_READ} == WHOLE_LISTS, counts
    assert counts["/console/tokens?page=2&revoked="] == PAGE_SIZE


async def add_keys(gateway: RunningGateway, numbers: range, **changes: Any) -> None:
    """Of each ten one is revoked; the others have a budget."""
    added = [
        token(
            number,
            group="many",
            limits=Limits(budget_day=1_000_000),
            state=TokenState.ACTIVE if number % 10 else TokenState.REVOKED,
            **changes,
        )
        for number in numbers
    ]
    for start in range(0, len(added), BATCH):
        await add_tokens(gateway.operations.database, added[start : start + BATCH])
    for each in added:
        gateway.daemon.runtime.registry.put_token(each)


async def cost(visitor: Visitor, path: str) -> float:
    """Seconds of the loop's thread, which serves and asks; the least of some tries."""
    tries = []
    for _ in range(2):
        started = time.thread_time()
        page = await visitor.get(path)
        tries.append(time.thread_time() - started)
        assert page.status < 500, path
    return min(tries)


async def costs_more(visitor: Visitor, before: dict[str, float]) -> dict[str, float]:
    """What pages cost before, of those that cost more now."""
    limits = {path: seconds + MAX_GROWTH for path, seconds in before.items()}
    return {path: before[path] for path in before if await cost(visitor, path) > limits[path]}


async def stall(visitor: Visitor, path: str) -> float:
    """The most processor time, in seconds, between two steps of another task; the least of some
    tries."""
    tries = []
    for _ in range(3):
        loading = asyncio.ensure_future(visitor.get(path))
        longest, last = 0.0, time.thread_time()
        while not loading.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
        assert (await loading).status == 200
        tries.append(longest)
    return min(tries)
