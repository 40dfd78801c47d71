"""What shares a commit on a database server, where a reply waits for its own intent alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.store import recorder as module
from gateway.store.recorder import Recorder
from gateway.store.server_database import ServerDatabase
from tests.store.sample_rows import attempt, intent, settlement
from tests.store.server_ledger import assert_exact, server_ledger
from tests.support.databases import all_written

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def database() -> AsyncIterator[ServerDatabase]:
    async with server_ledger() as database:
        yield database


async def started(database: ServerDatabase, commits: list[list[str]]) -> Recorder:
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
    database: ServerDatabase, monkeypatch: pytest.MonkeyPatch
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
    database: ServerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many intents arrive meanwhile."""
    monkeypatch.setattr(module, "_BATCH_DELAY", 30)
    commits: list[list[str]] = []
    recorder = await started(database, commits)
    for number in range(40):
        await recorder.record_intent(intent(number))
        recorder.record_settlement(settlement(number), (attempt(),))
    assert recorder.backlog <= 8
    assert max(map(len, commits)) <= 10
    await recorder.close()
    await assert_exact(database, 40)


async def test_many_intents_share_the_commit_of_settlements(database: ServerDatabase) -> None:
    commits: list[list[str]] = []
    recorder = await started(database, commits)
    await recorder.record_intent(intent(0))
    recorder.record_settlement(settlement(0), (attempt(),))
    await asyncio.gather(*(recorder.record_intent(intent(number)) for number in range(1, 6)))
    assert commits == [["intent 000"], ["end 000", *(f"intent 00{n}" for n in range(1, 6))]]
    await recorder.close()
    await assert_exact(database, 6, running=5)
