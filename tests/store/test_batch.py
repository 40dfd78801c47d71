"""What a batch writes, case by case and against a plain model of the same rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.store.batch import RowState, build_batch, sanitize_entry, settlements_without_intent
from gateway.store.records import (
    HOUR_US,
    Entry,
    ExchangeState,
    HourDelta,
    Intent,
    Settlement,
    TokenDelta,
)
from tests.store.sample_rows import START, attempt, failed_attempt, intent, request_id, settlement
from tests.support.hypothesis_profiles import examples

RUNNING = RowState("running", START, "default", None)
SETTLED = RUNNING._replace(state="ok")


def ended(settlement: Settlement) -> tuple[object, ...]:
    """A settlement as it is written: of its attempts their number."""
    return (*settlement[:-1], len(settlement.attempts))


def test_both_halves_in_one_batch_become_one_whole_row() -> None:
    batch = build_batch([intent(1), settlement(1)], {})
    assert batch.complete_rows == [(*intent(1), *settlement(1)[2:-5], 0)]
    assert not batch.intents
    assert not batch.settlements
    assert batch.token_deltas == [TokenDelta("tok_0", 1, 100, 7, 0, START + 1 + 1_200_000)]


def test_only_the_first_settlement_of_an_open_row_counts() -> None:
    first, second = settlement(1), settlement(1, output_tokens=999)
    batch = build_batch([first, second], {request_id(1): RUNNING})
    assert batch.settlements == [ended(first)]
    assert [credit.output_tokens for credit in batch.token_deltas] == [7]


def test_a_whole_row_says_who_was_asked_last() -> None:
    last = {"channel": "spare", "account": "b2", "upstream_model": "m", "lane": "translated"}
    (row,) = build_batch([intent(1), settlement(1, **last)], {}).complete_rows
    assert row[: len(Intent._fields)] == intent(1, **last)
    refused = intent(1, channel=None, account=None, upstream_model=None, lane=None)
    (row,) = build_batch([refused, settlement(1)], {}).complete_rows
    assert row[: len(Intent._fields)] == refused


def test_attempts_are_numbered_and_written_with_what_really_settles() -> None:
    two = settlement(1, attempts=(failed_attempt(), attempt()))
    rows = [(request_id(1), 1, *failed_attempt()), (request_id(1), 2, *attempt())]
    for batch in (
        build_batch([intent(1), two, two], {}),
        build_batch([two, two], {request_id(1): RUNNING}),
    ):
        assert batch.attempts == rows
        assert [row[-1] for row in (*batch.complete_rows, *batch.settlements)] == [2]
    assert not any(build_batch([two], {request_id(1): SETTLED}))


def test_settled_and_unknown_rows_are_left_alone() -> None:
    batch = build_batch([settlement(1), settlement(2)], {request_id(1): SETTLED})
    assert not any(batch)


def test_an_intent_that_is_there_already_is_not_written_again() -> None:
    batch = build_batch([intent(1), settlement(1)], {request_id(1): RUNNING})
    assert not batch.intents
    assert not batch.complete_rows
    assert batch.settlements == [ended(settlement(1))]


def test_credits_are_one_to_a_token() -> None:
    entries: list[Entry] = []
    for number, token_id in enumerate(("a", "b", "a")):
        entries += [intent(number, token_id), settlement(number, token_id, cost_micro=15)]
    assert build_batch(entries, {}).token_deltas == [
        TokenDelta("a", 2, 200, 14, 30, START + 2 + 1_200_000),
        TokenDelta("b", 1, 100, 7, 15, START + 1 + 1_200_000),
    ]


def test_hours_are_of_token_group_and_model_of_the_catalog() -> None:
    """The hour is that of the start, and '' stands for no model. What had no first event has no
    part in the times."""
    late = RUNNING._replace(started_at=2 * HOUR_US - 1, group_name="team", catalog_model="m")
    entries: list[Entry] = [
        intent(1, started_at=2 * HOUR_US),
        settlement(1, cost_micro=5, cache_write_1h_tokens=2),
        settlement(2, state=ExchangeState.ERROR, usage_source="estimated"),
        settlement(3, "tok_1", first_event_us=None),
        settlement(4, cost_micro=9),
        settlement(4, cost_micro=9),
    ]
    standing = {request_id(number): late for number in (2, 3, 4)}
    assert build_batch(entries, standing).hour_deltas == [
        HourDelta(
            2, "tok_0", "default", "", 1, 0, 0, 100, 40, 10, 2, 7, 3, 5, 1, 350_000, 1_200_000
        ),
        HourDelta(
            1, "tok_0", "team", "m", 2, 1, 1, 200, 80, 20, 0, 14, 6, 9, 2, 700_000, 2_400_000
        ),
        HourDelta(1, "tok_1", "team", "m", 1, 0, 0, 100, 40, 10, 0, 7, 3, 0),
    ]


def test_a_token_was_last_used_when_the_last_of_its_exchanges_ended() -> None:
    entries: list[Entry] = []
    for number, total_us in ((1, 500), (2, 2000), (3, 10)):
        entries += [intent(number), settlement(number, total_us=total_us)]
    (credit,) = build_batch(entries, {}).token_deltas
    assert credit.used_at == START + 2 + 2000


def test_only_settlements_of_earlier_batches_are_looked_up() -> None:
    assert settlements_without_intent(
        [settlement(1), intent(2), settlement(2), settlement(3)], {request_id(3)}
    ) == [request_id(1)]


def test_mending_removes_what_no_database_holds_and_nothing_else() -> None:
    sent = intent(1, user_agent="a\udcff\0b", bytes_in=2**80)
    assert sanitize_entry(sent) == intent(1, user_agent="a?�b", bytes_in=2**53)
    assert sanitize_entry(intent(1)) == intent(1)
    assert sanitize_entry(intent(1)).stream is True
    torn = settlement(
        1, attempts=(failed_attempt(), failed_attempt(error="a\udcff\0b", status=2**80))
    )
    assert sanitize_entry(torn) == torn._replace(
        attempts=(failed_attempt(), failed_attempt(error="a?\ufffdb", status=2**53))
    )


steps = st.lists(st.tuples(st.sampled_from(["intend", "settle"]), st.integers(0, 4)), max_size=40)


@examples(2)
@given(steps, st.lists(st.integers(1, 5), min_size=1, max_size=40), st.data())
def test_any_cut_into_batches_settles_each_row_once(
    order: list[tuple[str, int]], sizes: list[int], data: st.DataObject
) -> None:
    """A row is settled once whatever is sent twice, wherever batches end, even if one is
    written again because its commit was not heard of."""
    entries: list[Entry] = []
    intended: set[int] = set()
    for kind, number in order:
        if kind == "settle":
            entries.append(settlement(number, attempts=(attempt(),) * number))
        elif number not in intended:
            intended.add(number)
            entries.append(intent(number))
    rows: dict[str, RowState] = {}
    credited = attempts = 0
    rest = list(entries)
    for size in [*sizes, len(entries)]:
        chunk, rest = rest[:size], rest[size:]
        again = data.draw(st.booleans())
        for asked in ([*settlements_without_intent(chunk, ())], [entry.id for entry in chunk])[
            : 1 + again
        ]:
            batch = build_batch(chunk, {key: rows[key] for key in asked if key in rows})
            for opened in batch.intents:
                assert opened.id not in rows
                rows[opened.id] = RUNNING
            for whole in batch.complete_rows:
                assert whole[0] not in rows
                rows[whole[0]] = SETTLED
            for settled in batch.settlements:
                assert rows[settled[0]].state == "running"
                rows[settled[0]] = SETTLED
            attempts += len(batch.attempts)
            credited += sum(credit.requests for credit in batch.token_deltas)
            assert sum(hour.requests for hour in batch.hour_deltas) == len(
                [*batch.complete_rows, *batch.settlements]
            )
    assert rows.keys() == {request_id(number) for number in intended}
    settled_rows = [number for number in intended if rows[request_id(number)].state == "ok"]
    assert credited == len(settled_rows)
    assert attempts == sum(settled_rows)
