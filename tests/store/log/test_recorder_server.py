"""What shares a commit on a database server, where a reply waits for its own intent alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.store.log import recorder as module
from gateway.store.log.recorder import Recorder
from gateway.store.postgresql.database import PostgresqlDatabase
from tests.store.sample_rows import attempt, intent, settlement
from tests.store.server_ledger import assert_exact, server_ledger
from tests.support.databases import all_written

pytestmark = [pytest.mark.timeout(60), pytest.mark.servers]


@pytest.fixture
async def database() -> AsyncIterator[PostgresqlDatabase]:
    async with server_ledger() as database:
        yield database


async def started(database: PostgresqlDatabase, commits: list[list[str]]) -> Recorder:
    """`commits` get what each wrote, as the numbers of intents and settlements."""
    recorder = Recorder(database)
    recorder.on_commit.append(
        lambda entries: commits.append(
            [("intent " if each.is_intent else "end ") + each.row.id[-3:] for each in entries]
        )
    )
    await recorder.start()
    return recorder


async def test_an_intent_does_not_wait_for_settlements(
    database: PostgresqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_DELAY", 0.5)
    commits: list[list[str]] = []
    recorder = await started(database, commits)
    await recorder.record_intent(intent(1))
    recorder.record_settlement(settlement(1), (attempt(),))
    await recorder.record_intent(intent(2))
    recorder.record_settlement(settlement(2), (attempt(),))
    await recorder.record_intent(intent(3))
    assert commits == [["intent 001"], ["intent 002"], ["intent 003"]]
    assert recorder.backlog == 2
    await all_written(recorder)
    assert commits[3:] == [["end 001", "end 002"]]
    recorder.record_settlement(settlement(3), (attempt(),))
    await recorder.close()
    await assert_exact(database, 3)


async def test_many_settlements_are_not_put_off(
    database: PostgresqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many intents arrive meanwhile."""
    monkeypatch.setattr(module, "_BATCH_DELAY", 30)
    commits: list[list[str]] = []
    recorder = await started(database, commits)
    for number in range(80):
        await recorder.record_intent(intent(number))
        recorder.record_settlement(settlement(number), (attempt(),))
    assert recorder.backlog <= 32
    assert 30 <= max(map(len, commits)) <= 33
    await recorder.close()
    await assert_exact(database, 80)


async def test_settlements_are_written_between_intents(
    database: PostgresqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are due have their turn, however many intents wait, and wait for no pause."""
    monkeypatch.setattr(module, "_MAX_PAUSE", 1.0)
    monkeypatch.setattr(module, "_PAUSE_PER_INTENT", 1.0)
    commits: list[list[str]] = []
    recorder = await started(database, commits)
    await recorder.record_intent(intent(0))
    recorder.record_settlement(settlement(0), (attempt(),))
    first = [recorder.record_intent(intent(number)) for number in (1, 2, 3)]
    recorder.record_settlement(settlement(3), (attempt(),))
    await asyncio.gather(*first)
    waiting = recorder.record_intent(intent(4))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    assert commits[1:] == [["intent 001", "intent 002", "intent 003"], ["end 000", "end 003"]]
    await waiting
    await recorder.close()
    await assert_exact(database, 5, running=3)


async def test_a_settlement_follows_an_intent_that_still_waits(
    database: PostgresqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a pause, in which nothing else is written."""
    monkeypatch.setattr(module, "_MAX_PAUSE", 30.0)
    monkeypatch.setattr(module, "_PAUSE_PER_INTENT", 30.0)
    commits: list[list[str]] = []
    recorder = await started(database, commits)
    await asyncio.gather(*(recorder.record_intent(intent(number)) for number in (0, 1)))
    waiting = recorder.record_intent(intent(2))
    recorder.record_settlement(settlement(2), (attempt(),))
    async with asyncio.timeout(10):
        await waiting
    assert commits[1:] == [["intent 002", "end 002"]]
    await recorder.close()
    await assert_exact(database, 3, running=2)
