"""Reading rows: pages by id in both directions, filters, single rows with every column."""

from __future__ import annotations

from gateway.store import logs
from gateway.store.database import Database
from gateway.store.recorder import Recorder
from gateway.store.records import ExchangeState, RequestRow
from tests.store.ledger import attempted, failed, intent, request_id, settlement


def numbers(rows: list[RequestRow]) -> list[int]:
    return [int(row.id.removeprefix("req_")) for row in rows]


async def test_a_settled_row_holds_every_column(database: Database, recorder: Recorder) -> None:
    opening = intent(1)
    ending = settlement(
        1,
        state=ExchangeState.ERROR,
        error_code="upstream_timeout",
        dropped="top_k",
        upstream_format="messages",
        affinity="session header",
        affinity_kept="no: cooling",
        config_hash="0123abcd",
        channel="spare",
        account="b2",
        upstream_model="alpha-4.6",
        lane="translated",
        attempts=(failed(), attempted()),
    )
    await recorder.intend(opening)
    recorder.settle(ending)
    recorder.refuse(intent(2), ending._replace(id=request_id(2)))
    await recorder.intend(intent(3))
    for number in (1, 2):
        row = await logs.get(database, request_id(number))
        both = intent(number)._asdict() | ending._asdict()
        both |= {"id": request_id(number), "boot_id": recorder.boot_id, "attempts": 2}
        assert row == RequestRow(**both)
        assert row.stream is True
        assert isinstance(row.state, ExchangeState)
        assert await logs.attempts(database, request_id(number)) == [failed(), attempted()]
    assert await logs.get(database, "req_nothing") is None


async def test_who_was_intended_stays_where_the_end_names_nobody(
    database: Database, recorder: Recorder
) -> None:
    await recorder.intend(intent(1))
    recorder.settle(settlement(1))
    await recorder.intend(intent(2))
    row = await logs.get(database, request_id(1))
    assert row is not None
    assert (row.channel, row.account, row.lane) == ("main", "a1", "native")
    assert row.attempts == 0
    assert await logs.attempts(database, request_id(1)) == []


async def test_pages_go_back_and_forth_without_gaps(database: Database, recorder: Recorder) -> None:
    for number in range(10):
        await recorder.intend(intent(number))
    first = await logs.page(database, limit=4)
    assert numbers(first) == [9, 8, 7, 6]
    second = await logs.page(database, limit=4, before=first[-1].id)
    assert numbers(second) == [5, 4, 3, 2]
    assert numbers(await logs.page(database, limit=4, before=request_id(2))) == [1, 0]
    assert numbers(await logs.page(database, limit=3, after=second[0].id)) == [8, 7, 6]
    between = await logs.page(database, after=request_id(3), before=request_id(6))
    assert numbers(between) == [5, 4]
    assert await logs.page(database, after=request_id(9)) == []
    assert len(await logs.page(database, limit=0)) == 1


async def test_filters_join(database: Database, recorder: Recorder) -> None:
    recorder.refuse(
        intent(1, model="beta-5.5", channel=None),
        settlement(1, state=ExchangeState.REJECTED, status=503, error_code="model_not_found"),
    )
    recorder.intend(intent(2, token_id="tok_1", model="beta-5.5", group_name="other"))
    await recorder.intend(intent(3, model="' OR 1=1 --"))
    assert numbers(await logs.page(database, model="beta-5.5")) == [2, 1]
    assert numbers(await logs.page(database, model="beta-5.5", token_id="tok_1")) == [2]
    assert numbers(await logs.page(database, state=ExchangeState.REJECTED)) == [1]
    assert numbers(await logs.page(database, status=503, group_name="default")) == [1]
    assert numbers(await logs.page(database, channel="main")) == [3, 2]
    assert numbers(await logs.page(database, model="' OR 1=1 --")) == [3]
