"""What an earlier run left open is interrupted and billed its prompt, once."""

from __future__ import annotations

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.log import pages
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.log.usage import Dimension, usage
from gateway.store.records import HOUR_US, ExchangeState
from tests.store.sample_rows import START, intent, request_id, settlement, token
from tests.support.databases import on_server


async def test_the_prompt_is_billed_to_the_key_and_to_the_hour_of_its_start(
    database: Database, recorder: Recorder
) -> None:
    await tokens.add_token(database, token(1))
    known = {"catalog_model": "m", "expected_input_tokens": 90, "expected_micro": 135_000_001}
    recorder.record_intent(intent(0, **known))
    recorder.record_intent(intent(1, **known, started_at=START + HOUR_US))
    recorder.record_intent(intent(2, **known, started_at=START + HOUR_US, group_name="team"))
    recorder.record_intent(intent(3, expected_micro=0))
    await recorder.record_intent(intent(4, "tok_1", expected_input_tokens=1, expected_micro=2))
    await recorder.close()
    following = Recorder(database)
    await following.start()
    rows = {row.id: row for row in await pages.page(database)}
    assert {row.state for row in rows.values()} == {ExchangeState.INTERRUPTED}
    billed = rows[request_id(0)]
    assert (billed.input_tokens, billed.cost_micro) == (90, 135_000_001)
    assert (billed.usage_source, billed.output_tokens, billed.total_us) == ("estimated", 0, None)
    unbilled = rows[request_id(3)]
    assert (unbilled.input_tokens, unbilled.cost_micro) == (0, 0)
    assert unbilled.usage_source == "none"
    first, second = await tokens.all_tokens(database)
    assert (first.requests, first.input_tokens, first.output_tokens) == (4, 270, 0)
    assert (first.cost_micro, first.last_used_at) == (405_000_003, START + HOUR_US)
    assert (second.requests, second.cost_micro, second.last_used_at) == (1, 2, START + 4)
    hours = await usage(database, [Dimension.HOUR], token_id="tok_0")
    assert [(row.hour, row.requests, row.errors, row.estimated) for row in hours] == [
        (START // HOUR_US, 2, 2, 1),
        (START // HOUR_US + 1, 2, 2, 2),
    ]
    assert (await check(database, boot_id=following.boot_id)).ok
    following.record_settlement(settlement(0, **known, cost_micro=7))
    await following.close()
    (first_later, second_later) = await tokens.all_tokens(database)
    # On a server what is known later replaces it.
    cost = 7 - 135_000_001 if on_server() else 0
    assert (first_later.requests, first_later.cost_micro - first.cost_micro) == (4, cost)
    assert second_later == second
    assert (await check(database, boot_id=following.boot_id)).ok
    assert (await check(database)).ok
