"""Stored responses: read at once, written later, walked as chains, deleted and evicted whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from os import urandom
from pathlib import Path

import orjson
import pytest

from gateway.config.limits import StoredReplies
from gateway.store import responses as replies_module
from gateway.store.database import Database
from gateway.store.errors import ChainTooLarge
from gateway.store.records import StoredResponse
from gateway.store.response_rows import MAX_CHAIN, ROW_SIZE
from gateway.store.responses import ResponseStore
from tests.support.databases import locked, raw_connection

KEY = "token-0"
MIB = 2**20
NO_LIMIT = 64 * MIB


class Clock:
    """Unix microseconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1_790_000_000_000_000

    def __call__(self) -> int:
        self.now += 1
        return self.now


def item_ids(reply: StoredResponse) -> Iterator[str]:
    if reply.reply is not None:
        yield from (item["id"] for item in orjson.loads(reply.reply)["output"])


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def open_store(database: Database, clock: Clock, **settings: object) -> ResponseStore:
    options = StoredReplies.model_validate(settings)
    store = ResponseStore(database, lambda: options, clock, item_ids)
    await store.start()
    return store


@pytest.fixture
async def store(database: Database, clock: Clock) -> AsyncIterator[ResponseStore]:
    store = await open_store(database, clock)
    yield store
    await store.close()


def reply(
    store: ResponseStore,
    clock: Clock,
    id: str,
    previous: StoredResponse | None = None,
    *,
    text: bytes = b"Hello",
    token_id: str = KEY,
    status: str = "completed",
    background: bool = False,
) -> StoredResponse:
    return StoredResponse(
        token_id=token_id,
        id=id,
        format="responses",
        previous_id=previous.id if previous else None,
        root_id=previous.root_id if previous else id,
        request_id=f"req_{id}",
        model="beta-5.4",
        status=status,
        created_at=clock(),
        expires_at=store.expiry(),
        background=background,
        request=b'{"input":"%b"}' % text,
        reply=b'{"output":[{"id":"msg_%b"}]}' % id.encode(),
    )


def put_chain(store: ResponseStore, clock: Clock, name: str, length: int) -> list[StoredResponse]:
    chain: list[StoredResponse] = []
    for number in range(length):
        chain.append(reply(store, clock, f"{name}{number}", chain[-1] if chain else None))
        assert store.put(chain[-1])
    return chain


def ids(chain: list[StoredResponse] | None) -> list[str] | None:
    return None if chain is None else [each.id for each in chain]


async def test_a_reply_is_found_before_and_after_it_is_written(
    store: ResponseStore, clock: Clock
) -> None:
    put = reply(store, clock, "a")
    store.put(put)
    assert await store.find(KEY, "a") is put
    await store.flush()
    found = await store.find(KEY, "a")
    assert found is not None
    assert (found.request, found.reply) == (put.request, put.reply)
    assert found.request_size == len(put.request)
    assert found.stored_size > ROW_SIZE


async def test_a_chain_is_walked_through_memory_and_the_database(
    store: ResponseStore, clock: Clock
) -> None:
    written = put_chain(store, clock, "r", 3)
    await store.flush()
    last = reply(store, clock, "last", written[-1])
    store.put(last)
    expected = ["r0", "r1", "r2", "last"]
    assert ids(await store.chain(KEY, "last", NO_LIMIT)) == expected
    await store.flush()
    chain = await store.chain(KEY, "last", NO_LIMIT)
    assert ids(chain) == expected
    assert chain is not None
    assert all(each.request == b'{"input":"Hello"}' for each in chain)


async def test_two_replies_can_continue_one(store: ResponseStore, clock: Clock) -> None:
    root, *_ = put_chain(store, clock, "r", 1)
    for name in ("left", "right"):
        store.put(reply(store, clock, name, root))
    await store.flush()
    assert ids(await store.chain(KEY, "left", NO_LIMIT)) == ["r0", "left"]
    assert ids(await store.chain(KEY, "right", NO_LIMIT)) == ["r0", "right"]


async def test_a_key_finds_only_its_own(store: ResponseStore, clock: Clock) -> None:
    put_chain(store, clock, "r", 2)
    for _ in range(2):
        assert await store.find("token-1", "r1") is None
        assert await store.chain("token-1", "r1", NO_LIMIT) is None
        assert await store.find_item("token-1", "msg_r1") is None
        assert not await store.delete("token-1", "r1")
        await store.flush()


@pytest.mark.parametrize("status", ["failed", "cancelled", "queued", "in_progress"])
async def test_only_replies_that_ended_well_are_continued(
    store: ResponseStore, clock: Clock, status: str
) -> None:
    store.put(reply(store, clock, "a", status=status))
    for _ in range(2):
        assert await store.chain(KEY, "a", NO_LIMIT) is None
        assert await store.find(KEY, "a") is not None
        await store.flush()


async def test_an_expired_reply_is_gone_but_what_continues_it_goes_on(
    database: Database, clock: Clock
) -> None:
    store = await open_store(database, clock, ttl=3600)
    root = reply(store, clock, "root")
    store.put(root)
    clock.now += 3_000_000_000
    store.put(reply(store, clock, "next", root))
    clock.now += 3_000_000_000
    for _ in range(2):
        assert await store.find(KEY, "root") is None
        assert await store.chain(KEY, "root", NO_LIMIT) is None
        assert ids(await store.chain(KEY, "next", NO_LIMIT)) == ["root", "next"]
        await store.flush()
    assert await store.delete_expired() == 0
    clock.now += 3_000_000_000
    assert await store.delete_expired() == 2
    assert await store.delete_expired() == 0
    await store.close()


async def test_a_deleted_reply_goes_when_nothing_continues_it(
    store: ResponseStore, clock: Clock, database: Database
) -> None:
    put_chain(store, clock, "r", 3)
    assert await store.delete(KEY, "r1")
    assert await store.find(KEY, "r1") is None
    assert await store.chain(KEY, "r1", NO_LIMIT) is None
    assert not await store.delete(KEY, "r1")
    assert ids(await store.chain(KEY, "r2", NO_LIMIT)) == ["r0", "r1", "r2"]
    assert await store.delete(KEY, "r2")
    assert ids(await store.chain(KEY, "r0", NO_LIMIT)) == ["r0"]
    left = await replies_module.rows.page(database)
    assert ids(left) == ["r0"]


async def test_an_item_names_its_reply(store: ResponseStore, clock: Clock) -> None:
    put_chain(store, clock, "r", 2)
    assert await store.find_item(KEY, "msg_r1") == "r1"
    assert await store.find_item(KEY, "msg_r2") is None
    await store.delete(KEY, "r1")
    assert await store.find_item(KEY, "msg_r1") is None


async def test_an_id_that_an_upstream_uses_again_names_the_newest_item(
    store: ResponseStore, clock: Clock
) -> None:
    for id in ("a", "b"):
        store.put(reply(store, clock, id)._replace(reply=b'{"output":[{"id":"msg_1"}]}'))
        await store.flush()
    assert await store.find_item(KEY, "msg_1") == "b"


async def test_a_chain_has_a_limit_of_bytes(store: ResponseStore, clock: Clock) -> None:
    root = reply(store, clock, "a", text=b"x" * 1000)
    store.put(root)
    store.put(reply(store, clock, "b", root, text=b"x" * 1000))
    for _ in range(2):
        assert ids(await store.chain(KEY, "b", 3000)) == ["a", "b"]
        with pytest.raises(ChainTooLarge):
            await store.chain(KEY, "b", 1500)
        with pytest.raises(ChainTooLarge):
            await store.chain(KEY, "b", 500)
        await store.flush()


async def test_a_chain_has_a_limit_of_replies(store: ResponseStore, clock: Clock) -> None:
    chain = put_chain(store, clock, "r", MAX_CHAIN)
    await store.flush()
    found = await store.chain(KEY, chain[-1].id, NO_LIMIT)
    assert found is not None
    assert len(found) == MAX_CHAIN
    store.put(reply(store, clock, "more", chain[-1]))
    await store.flush()
    with pytest.raises(ChainTooLarge):
        await store.chain(KEY, "more", NO_LIMIT)


async def test_rows_that_name_each_other_end_the_walk(store: ResponseStore, clock: Clock) -> None:
    first = reply(store, clock, "a")._replace(previous_id="b")
    store.put(first)
    store.put(reply(store, clock, "b", first))
    await store.flush()
    async with asyncio.timeout(5):
        with pytest.raises(ChainTooLarge):
            await store.chain(KEY, "b", NO_LIMIT)


async def test_a_missing_reply_breaks_its_chain(store: ResponseStore, clock: Clock) -> None:
    gone = reply(store, clock, "gone")
    store.put(reply(store, clock, "b", gone))
    for _ in range(2):
        assert await store.chain(KEY, "b", NO_LIMIT) is None
        await store.flush()


async def test_whole_chains_are_evicted_least_recently_continued_first(
    database: Database, clock: Clock
) -> None:
    store = await open_store(database, clock, max_per_key=20 * ROW_SIZE)
    old = put_chain(store, clock, "old", 3)
    await store.flush()
    put_chain(store, clock, "mid", 4)
    await store.flush()
    store.put(reply(store, clock, "again", old[-1]))
    await store.flush()
    put_chain(store, clock, "new", 10)
    put_chain(store, clock, "more", 4)
    await store.flush()
    assert await store.find(KEY, "mid0") is None
    assert await store.find(KEY, "mid3") is None
    assert await store.find(KEY, "more3") is not None
    sizes = await replies_module.rows.sizes(database)
    assert sizes[KEY] <= 20 * ROW_SIZE
    await store.close()


@pytest.mark.slow("stores ten thousand replies")
@pytest.mark.large
async def test_ten_thousand_tiny_chains_stay_within_the_size(
    database: Database, clock: Clock
) -> None:
    store = await open_store(database, clock, max_per_key=MIB)
    for number in range(10_000):
        assert store.put(reply(store, clock, f"tiny{number}"))
        if number % 1000 == 999:
            await store.flush()
    rows = await replies_module.rows.page(database, limit=10_000)
    assert len(rows) <= MIB // ROW_SIZE
    assert await store.find(KEY, "tiny9999") is not None
    assert await store.find(KEY, "tiny0") is None
    await store.close()


async def test_a_row_beyond_the_size_is_left_out(database: Database, clock: Clock) -> None:
    store = await open_store(database, clock, max_per_key=100_000)
    store.put(reply(store, clock, "small"))
    store.put(reply(store, clock, "large", text=urandom(200_000).hex().encode()))
    await store.flush()
    assert await store.find(KEY, "small") is not None
    assert await store.find(KEY, "large") is None
    await store.close()


async def test_what_waits_is_bounded(
    store: ResponseStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.pending_responses.MAX_PENDING", 100_000)
    assert store.put(reply(store, clock, "a", text=b"x" * 90_000))
    assert not store.put(reply(store, clock, "b", text=b"x" * 90_000))
    await store.flush()
    assert store.put(reply(store, clock, "c", text=b"x" * 90_000))


async def test_a_key_is_written_although_another_has_much(
    store: ResponseStore, clock: Clock, database: Database
) -> None:
    for number in range(15):
        assert store.put(reply(store, clock, f"much{number}", text=b"x" * MIB))
    assert store.put(reply(store, clock, "one", token_id="token-1"))
    await store.flush_key("token-1")
    sizes = await replies_module.rows.sizes(database)
    assert sizes["token-1"]
    written = [row.id for row in await replies_module.rows.page(database)]
    assert len(written) < 10
    await store.flush()
    assert len(await replies_module.rows.page(database)) == 16


async def test_a_key_has_a_share_of_what_waits(
    store: ResponseStore, clock: Clock, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.pending_responses.MAX_PENDING", 100_000)
    monkeypatch.setattr(replies_module, "_RETRY_DELAY", 0.05)
    with locked(path):
        for number in range(4):
            token_id = f"token-{number}"
            text = b"x" * 10_000
            assert store.put(reply(store, clock, f"a{number}", token_id=token_id, text=text))
            assert store.put(reply(store, clock, f"b{number}", token_id=token_id, text=text))
            assert not store.put(reply(store, clock, f"c{number}", token_id=token_id, text=text))
        small = reply(store, clock, "small", token_id="token-9", text=b"x" * 20_000)
        assert store.put(small)  # a key of which nothing waits
    await store.flush()
    assert store.put(reply(store, clock, "c0"))


async def test_a_row_can_be_withdrawn(
    store: ResponseStore,
    clock: Clock,
    path: Path,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replies_module, "_RETRY_DELAY", 0.05)
    with locked(path):
        early, late = reply(store, clock, "early"), reply(store, clock, "late")
        store.put(early)
        await asyncio.sleep(0.2)  # it is being written
        store.put(late)
        assert store.withdraw(early)
        assert store.withdraw(late)
        assert await store.find(KEY, "early") is None
    store.put(reply(store, clock, "next"))
    await store.flush()
    assert ids(await replies_module.rows.page(database)) == ["next"]
    assert not store.withdraw(reply(store, clock, "next"))


async def test_the_key_that_has_most_makes_room_for_all(database: Database, clock: Clock) -> None:
    store = await open_store(database, clock, max_total=20 * ROW_SIZE)
    for number in range(4):
        store.put(reply(store, clock, f"few{number}", token_id="token-1"))
    for number in range(30):
        store.put(reply(store, clock, f"many{number}"))
    await store.flush()
    sizes = await replies_module.rows.sizes(database)
    assert sum(sizes.values()) <= 20 * ROW_SIZE
    assert await store.find("token-1", "few0") is not None
    assert await store.find(KEY, "many0") is None
    assert await store.find(KEY, "many29") is not None
    await store.close()


async def test_a_chain_that_is_named_again_is_not_read_again(
    store: ResponseStore, clock: Clock, path: Path
) -> None:
    chain = put_chain(store, clock, "r", 3)
    await store.flush()
    assert ids(await store.chain(KEY, "r2", NO_LIMIT)) == ["r0", "r1", "r2"]
    store.put(last := reply(store, clock, "last", chain[-1]))
    await store.flush()
    with raw_connection(path) as other:  # nobody else changes texts
        other.execute("UPDATE stored_replies SET request = reply")
    found = await store.chain(KEY, "last", NO_LIMIT)
    assert found is not None
    assert [each.request for each in found] == [each.request for each in [*chain, last]]
    with pytest.raises(ChainTooLarge):
        await store.chain(KEY, "last", 100)
    await store.delete(KEY, "last")
    assert await store.chain(KEY, "last", NO_LIMIT) is None
    with raw_connection(path) as other:
        other.execute("DELETE FROM stored_replies")
    assert await store.chain(KEY, "r2", NO_LIMIT) is None


async def test_a_reply_is_replaced_whether_it_is_written_or_not(
    store: ResponseStore, clock: Clock
) -> None:
    begun = reply(store, clock, "a", status="in_progress", background=True)
    for pause in (False, True):
        store.put(begun)
        if pause:
            await store.flush()
        done = begun._replace(status="completed", reply=b'{"output":[]}', events=b"data: 1\n\n")
        store.put(done)
        await store.flush()
        found = await store.find(KEY, "a")
        assert found is not None
        assert (found.status, found.reply, found.events) == ("completed", b'{"output":[]}', None)
        found = await store.find(KEY, "a", events=True)
        assert found is not None
        assert found.events == b"data: 1\n\n"


async def test_what_was_running_is_found_after_a_restart(database: Database, clock: Clock) -> None:
    store = await open_store(database, clock)
    store.put(reply(store, clock, "a", status="in_progress", background=True))
    store.put(reply(store, clock, "b", status="completed", background=True))
    await store.close()
    clock.now += 86_400_000_000  # with a server, the log's row of the request would say so earlier
    store = await open_store(database, clock)
    (found,) = await store.running()
    assert found.id == "a"
    assert await store.end_running(found._replace(status="failed"))
    assert not await store.end_running(found)
    assert await store.running() == []
    await store.close()


@pytest.mark.parametrize("id", ["", "a\0b", "a\ud800b", "ä", "x" * 1000, "a\nb"])
async def test_ids_with_odd_characters_are_unknown(store: ResponseStore, id: str) -> None:
    assert await store.find(KEY, id) is None
    assert await store.chain(KEY, id, NO_LIMIT) is None
    assert await store.find_item(KEY, id) is None
    assert not await store.delete(KEY, id)


async def test_odd_characters_of_a_model_are_replaced(store: ResponseStore, clock: Clock) -> None:
    store.put(reply(store, clock, "a")._replace(model="m\0\ud800"))
    await store.flush()
    found = await store.find(KEY, "a")
    assert found is not None
    assert found.model == "m\ufffd?"


async def test_a_locked_database_is_waited_for(
    store: ResponseStore, clock: Clock, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies_module, "_SETTLE_TIMEOUT", 0.1)
    monkeypatch.setattr(replies_module, "_RETRY_DELAY", 0.05)
    with locked(path):
        put_chain(store, clock, "r", 2)
        await asyncio.sleep(0.2)
        assert ids(await store.chain(KEY, "r1", NO_LIMIT)) == ["r0", "r1"]
        async with asyncio.timeout(5):
            assert await store.find_item(KEY, "msg_r1") is None
    async with asyncio.timeout(20):
        await store.flush()
    assert await store.find_item(KEY, "msg_r1") == "r1"
