"""What a batch writes, case by case and against a plain model of the same rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.store.log.batch import Batch, build_batch, sanitize_entry, settlements_without_intent
from gateway.store.records import (
    HOUR_US,
    ExchangeState,
    HourDelta,
    LogEntry,
    RequestRow,
    TokenDelta,
)
from tests.store.sample_rows import START, attempt, failed_attempt, intent, request_id, settlement
from tests.support.hypothesis_profiles import examples

RUNNING, SETTLED = "running", "ok"


def build(rows: Sequence[RequestRow], states: Mapping[str, str] | None = None) -> Batch:
    return build_batch([LogEntry(row) for row in rows], states or {})


def test_both_halves_in_one_batch_become_one_complete_row() -> None:
    batch = build([intent(1), settlement(1)])
    assert batch.complete_rows == [settlement(1)]
    assert not batch.intents
    assert not batch.settled_rows
    assert batch.token_deltas == [TokenDelta("tok_0", 1, 100, 7, 0, 0, START + 1 + 1_200_000)]
    assert build([settlement(1)]) == batch


def test_only_the_first_settlement_of_a_running_row_counts() -> None:
    first, second = settlement(1), settlement(1, output_tokens=999)
    batch = build([first, second], {request_id(1): RUNNING})
    assert batch.settled_rows == [first]
    assert [delta.output_tokens for delta in batch.token_deltas] == [7]


def test_attempts_are_written_with_their_settlement() -> None:
    two = LogEntry(settlement(1), (failed_attempt(), attempt()))
    rows = [(request_id(1), 1, *failed_attempt()), (request_id(1), 2, *attempt())]
    for batch in (
        build_batch([LogEntry(intent(1)), two, two], {}),
        build_batch([two, two], {request_id(1): RUNNING}),
        build_batch([two, two], {}, {request_id(1)}),
    ):
        assert batch.attempts == rows
        assert [*batch.complete_rows, *batch.settled_rows] == [two.row]
    assert not any(build_batch([two], {request_id(1): SETTLED}))


def test_an_existing_intent_is_not_rewritten() -> None:
    batch = build([intent(1), settlement(1)], {request_id(1): RUNNING})
    assert not batch.intents
    assert not batch.complete_rows
    assert batch.settled_rows == [settlement(1)]


def test_there_is_one_delta_per_token() -> None:
    rows: list[RequestRow] = []
    for number, token_id in enumerate(("a", "b", "a")):
        rows += [
            intent(number, token_id),
            settlement(number, token_id, cost_micro=15, usd_micro=20),
        ]
    assert build(rows).token_deltas == [
        TokenDelta("a", 2, 200, 14, 30, 40, START + 2 + 1_200_000),
        TokenDelta("b", 1, 100, 7, 15, 20, START + 1 + 1_200_000),
    ]


def test_hours_are_by_token_group_and_model() -> None:
    """The hour is that of the start, and '' is for no model. Exchanges without a first event have
    no part in the times."""
    late: dict[str, Any] = {
        "started_at": 2 * HOUR_US - 1,
        "group_name": "team",
        "catalog_model": "m",
    }
    rows = [
        intent(1, started_at=2 * HOUR_US),
        settlement(1, started_at=2 * HOUR_US, cost_micro=5, cache_write_1h_tokens=2),
        settlement(2, **late, state=ExchangeState.ERROR, usage_source="estimated"),
        settlement(3, "tok_1", **late, first_event_us=None),
        settlement(4, **late, cost_micro=9),
        settlement(4, **late, cost_micro=9),
    ]
    states = {request_id(number): RUNNING for number in (2, 3, 4)}
    assert build(rows, states).hour_deltas == [
        HourDelta(
            2, "tok_0", "default", "", 1, 0, 0, 100, 40, 10, 2, 7, 3, 0, 5, 0, 1, 350_000, 1_200_000
        ),
        HourDelta(
            1, "tok_0", "team", "m", 2, 1, 1, 200, 80, 20, 0, 14, 6, 0, 9, 0, 2, 700_000, 2_400_000
        ),
        HourDelta(1, "tok_1", "team", "m", 1, 0, 0, 100, 40, 10, 0, 7, 3, 0),
    ]


def test_a_token_was_last_used_when_the_last_of_its_exchanges_ended() -> None:
    rows: list[RequestRow] = []
    for number, total_us in ((1, 500), (2, 2000), (3, 10)):
        rows += [intent(number), settlement(number, total_us=total_us)]
    (delta,) = build(rows).token_deltas
    assert delta.used_at == START + 2 + 2000


def test_only_earlier_batches_are_queried() -> None:
    rows = [settlement(1), intent(2), settlement(2), settlement(3)]
    assert settlements_without_intent([LogEntry(row) for row in rows], {request_id(3)}) == [
        request_id(1)
    ]


def test_sanitising_removes_only_invalid_characters() -> None:
    sent = LogEntry(intent(1, user_agent="a\udcff\0b", bytes_in=2**80))
    assert sanitize_entry(sent) == LogEntry(intent(1, user_agent="a?\ufffdb", bytes_in=2**53))
    clean = sanitize_entry(LogEntry(intent(1)))
    assert clean == LogEntry(intent(1))
    assert clean.is_intent
    assert clean.row.stream is True
    attempts = (failed_attempt(), failed_attempt(error="a\udcff\0b", status=2**80))
    assert sanitize_entry(LogEntry(settlement(1), attempts)) == LogEntry(
        settlement(1), (failed_attempt(), failed_attempt(error="a?\ufffdb", status=2**53))
    )


steps = st.lists(st.tuples(st.sampled_from(["intend", "settle"]), st.integers(0, 4)), max_size=40)


@examples(2)
@given(steps, st.lists(st.integers(1, 5), min_size=1, max_size=40), st.data())
def test_any_batching_settles_each_row_once(
    order: list[tuple[str, int]], sizes: list[int], data: st.DataObject
) -> None:
    """A row is settled once whatever is sent twice, wherever batches end, even if one is
    written again because its commit was not heard of."""
    entries: list[LogEntry] = []
    intended: set[int] = set()
    settled: set[int] = set()
    for kind, number in order:
        if kind == "settle":
            settled.add(number)
            entries.append(LogEntry(settlement(number), (attempt(),) * number))
        elif number not in intended | settled:
            intended.add(number)
            entries.append(LogEntry(intent(number)))
    rows: dict[str, str] = {}
    requests = attempts = 0
    rest = list(entries)
    for size in [*sizes, len(entries)]:
        chunk, rest = rest[:size], rest[size:]
        again = data.draw(st.booleans())
        for ids in ([*settlements_without_intent(chunk, ())], [entry.row.id for entry in chunk])[
            : 1 + again
        ]:
            batch = build_batch(chunk, {key: rows[key] for key in ids if key in rows})
            for row in (*batch.intents, *batch.complete_rows):
                assert row.id not in rows
                rows[row.id] = row.state
            for row in batch.settled_rows:
                assert rows[row.id] == RUNNING
                rows[row.id] = row.state
            attempts += len(batch.attempts)
            requests += sum(delta.requests for delta in batch.token_deltas)
            assert sum(hour.requests for hour in batch.hour_deltas) == len(
                [*batch.complete_rows, *batch.settled_rows]
            )
    assert rows == {
        request_id(number): SETTLED if number in settled else RUNNING
        for number in intended | settled
    }
    assert requests == len(settled)
    assert attempts == sum(settled)
