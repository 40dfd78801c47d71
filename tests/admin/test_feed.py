"""The feed: each ended request comes once and in order, however slow the reader is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import delete

from gateway.admin.errors import TooManySubscribers
from gateway.admin.feed import Feed, FeedBatch
from gateway.admin.operations import AdminOperations
from gateway.store.database import Database
from gateway.store.log.pages import NO_FILTER, LogFilter
from gateway.store.log.recorder import Recorder
from gateway.store.records import ExchangeState
from gateway.store.schema import requests
from tests.admin.conftest import AdminFixture
from tests.store.sample_rows import intent, request_id, settlement
from tests.support.timing import SLACK

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
async def recorder(admin: AdminFixture) -> AsyncIterator[Recorder]:
    recorder = Recorder(admin.database)
    await recorder.start()
    yield recorder
    await recorder.close()


def feed_of(admin: AdminFixture, recorder: Recorder, **bounds: int) -> Feed:
    feed = Feed(admin.operations, **bounds)
    recorder.on_commit.append(feed.publish)
    return feed


async def record(recorder: Recorder, *numbers: int) -> None:
    """These begin and end."""
    for number in numbers:
        recorder.record_settlement(settlement(number))
    await committed(recorder)


async def committed(recorder: Recorder) -> None:
    async with asyncio.timeout(10):
        while recorder.backlog:
            await asyncio.sleep(0.005)


async def numbers(subscription: AsyncIterator[FeedBatch], count: int) -> list[int]:
    """Of the next rows, at least so many."""
    ids: list[int] = []
    async with asyncio.timeout(10):
        while len(ids) < count:
            batch = await anext(subscription)
            assert not batch.skipped
            ids += [int(row.id.removeprefix("req_")) for row in batch.rows]
    return ids


async def test_ended_requests_arrive_in_order(admin: AdminFixture, recorder: Recorder) -> None:
    feed = feed_of(admin, recorder)
    await record(recorder, 1)
    async with feed.subscribe(NO_FILTER) as subscription:
        for number in (2, 3, 4):
            await recorder.record_intent(intent(number))
        recorder.record_settlement(settlement(4))
        recorder.record_settlement(settlement(2))
        await committed(recorder)
        assert await numbers(subscription, 2) == [4, 2]
        recorder.record_settlement(settlement(3))
        await committed(recorder)
        assert await numbers(subscription, 1) == [3]


async def test_more_than_one_batch_is_delivered(admin: AdminFixture, recorder: Recorder) -> None:
    feed = feed_of(admin, recorder)
    async with feed.subscribe(NO_FILTER) as subscription:
        await record(recorder, *range(700))
        assert await numbers(subscription, 700) == list(range(700))


async def test_starts_are_delivered_on_demand(admin: AdminFixture, recorder: Recorder) -> None:
    feed = feed_of(admin, recorder)
    async with (
        feed.subscribe(NO_FILTER) as ends,
        feed.subscribe(NO_FILTER, opened=True) as both,
    ):
        await recorder.record_intent(intent(1))
        batch = await anext(both)
        assert [(row.id, row.state) for row in batch.rows] == [
            (request_id(1), ExchangeState.RUNNING)
        ]
        recorder.record_settlement(settlement(1))
        await record(recorder, 2)
        # The second one has ended before its beginning was read: it comes once.
        assert await numbers(both, 2) == [1, 2]
        assert await numbers(ends, 2) == [1, 2]


async def test_filtered_requests_are_not_delivered(admin: AdminFixture, recorder: Recorder) -> None:
    feed = feed_of(admin, recorder)
    async with feed.subscribe(LogFilter(token_id="tok_b")) as subscription:
        await record(recorder, 1)
        recorder.record_settlement(settlement(2, "tok_b"))
        await committed(recorder)
        assert await numbers(subscription, 1) == [2]


async def test_idle_feeds_report_nothing_new(admin: AdminFixture, recorder: Recorder) -> None:
    feed = feed_of(admin, recorder)
    async with feed.subscribe(NO_FILTER) as subscription, asyncio.timeout(5):
        batch = await anext(subscription)
        assert not batch.rows and not batch.skipped


async def test_the_feed_resumes_after_a_position(admin: AdminFixture, recorder: Recorder) -> None:
    feed = feed_of(admin, recorder)
    await record(recorder, 1, 2, 3, 4)
    async with feed.subscribe(NO_FILTER, after=request_id(2)) as subscription:
        assert await numbers(subscription, 2) == [3, 4]
    async with feed.subscribe(NO_FILTER, after=request_id(4)) as subscription:
        await record(recorder, 5)
        assert await numbers(subscription, 1) == [5]


async def test_a_slow_subscriber_learns_of_missed_rows(
    admin: AdminFixture, recorder: Recorder
) -> None:
    feed = feed_of(admin, recorder, capacity=4)
    async with feed.subscribe(NO_FILTER) as subscription:
        await record(recorder, 1)
        assert await numbers(subscription, 1) == [1]
        await record(recorder, *range(2, 12))
        assert feed.end - feed.start == 4
        batch = await anext(subscription)
        assert (batch.skipped, batch.after) == (True, request_id(1))
        assert [row.id for row in batch.rows] == [request_id(number) for number in range(8, 12)]
        await record(recorder, 12)
        assert await numbers(subscription, 1) == [12]
    async with feed.subscribe(NO_FILTER, after=request_id(1)) as subscription:
        assert (await anext(subscription)).skipped


async def test_the_feed_resumes_after_a_restart(admin: AdminFixture, recorder: Recorder) -> None:
    """Rows of the run before come in the order of their ends; what was cut off ends with it."""
    await recorder.record_intent(intent(1))
    recorder.record_settlement(settlement(2, total_us=9_000_000))
    await record(recorder, 3, 4)
    await recorder.close()

    after_it = Recorder(admin.database)
    feed = Feed(
        AdminOperations(admin.database, admin.registry, admin.clock, boot_id=after_it.boot_id)
    )
    after_it.on_commit.append(feed.publish)
    await after_it.start()
    try:
        await record(after_it, 5)
        async with feed.subscribe(NO_FILTER, after=request_id(3)) as subscription:
            assert await numbers(subscription, 4) == [4, 2, 1, 5]
        async with feed.subscribe(NO_FILTER, after="req_unknown") as subscription:
            batch = await anext(subscription)
            assert (batch.skipped, batch.after) == (True, "req_unknown")
    finally:
        await after_it.close()


async def test_subscribers_are_limited(admin: AdminFixture, recorder: Recorder) -> None:
    feed = feed_of(admin, recorder, max_subscribers=1)
    async with feed.subscribe(NO_FILTER):
        with pytest.raises(TooManySubscribers, match="1 subscribers"):
            async with feed.subscribe(NO_FILTER):
                pass
        assert feed.subscribers == 1
    async with feed.subscribe(NO_FILTER):
        pass
    assert feed.subscribers == 0


async def test_remaining_rows_are_delivered_at_the_end(
    admin: AdminFixture, recorder: Recorder
) -> None:
    feed = feed_of(admin, recorder)
    async with feed.subscribe(NO_FILTER) as subscription:
        await record(recorder, 1)
        feed.close()
        async with asyncio.timeout(5):
            assert [row.id async for batch in subscription for row in batch.rows] == [request_id(1)]
    async with feed.subscribe(NO_FILTER) as late, asyncio.timeout(1):
        assert [batch async for batch in late] == []


async def test_the_end_wakes_waiting_subscribers(admin: AdminFixture, recorder: Recorder) -> None:
    feed = feed_of(admin, recorder)
    async with feed.subscribe(NO_FILTER) as subscription:
        waiting = asyncio.ensure_future(anext(subscription, None))
        await asyncio.sleep(0)
        feed.close()
        async with asyncio.timeout(SLACK):
            assert await waiting is None


async def test_a_row_that_was_deleted_is_left_out(admin: AdminFixture, recorder: Recorder) -> None:
    feed = feed_of(admin, recorder)
    async with feed.subscribe(NO_FILTER) as subscription:
        await record(recorder, 1, 2)
        await _delete(admin.database, request_id(1))
        assert await numbers(subscription, 1) == [2]


async def _delete(database: Database, id_: str) -> None:
    statement = delete(requests).where(requests.c.id == id_)
    await database.write(lambda connection: connection.execute(statement))
