"""Which step follows a failed attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

import pytest

from gateway.core.formats import Format, Lane
from gateway.core.target import Target
from gateway.routing.failure_policy import (
    MODEL_NOT_FOUND,
    AccountPenalty,
    Blame,
    Failover,
    SameAccountRetry,
    Verdict,
)
from gateway.routing.ordering import RankedCandidate, RankReason
from gateway.routing.retry import (
    GIVE_UP,
    MAX_TOTAL_WAIT,
    Action,
    NextStep,
    RetryState,
    backoff,
    next_step,
    order_after_failure,
)
from gateway.routing.retry_budget import MIN_RETRIES, RetryBudget
from gateway.routing.router import Candidate

HALF = 0.5
SERVER_ERROR = Verdict("server error", Blame.UPSTREAM, Failover.YES, AccountPenalty.FAILURE)
OVERLOADED = Verdict(
    "overloaded",
    Blame.CAPACITY,
    Failover.YES,
    AccountPenalty.FAILURE,
    SameAccountRetry(1.0, jitter=0.5),
)
NO_MODEL = replace(SERVER_ERROR, reason=MODEL_NOT_FOUND)
LIMITED = Verdict("rate limited", Blame.CAPACITY, Failover.YES, AccountPenalty.RATE_LIMITED)
FINAL = Verdict("refused", Blame.CLIENT, Failover.NEVER, AccountPenalty.NONE)


def ranked(
    channel: str, account: str = "a", reason: RankReason = RankReason.NEXT
) -> RankedCandidate:
    target = Target(model="upstream-model")
    candidate = Candidate(channel, account, Format.CHAT, Lane.NATIVE, "model", target)
    return RankedCandidate(candidate, reason)


LEFT = [ranked("one", "b"), ranked("two"), ranked("three")]


@pytest.fixture
def state() -> RetryState:
    budget = RetryBudget()
    for _ in repeat(None, 100):
        budget.record_request(0.0)
    state = RetryState(budget, lambda: HALF)
    state.start_attempt(("one", "a"))
    return state


def step(
    state: RetryState, verdict: Verdict = SERVER_ERROR, left: Sequence[RankedCandidate] = LEFT
) -> NextStep:
    return next_step(state, verdict, left, 0.0)


def test_another_account_is_next(state: RetryState) -> None:
    assert step(state) == (Action.FAILOVER, backoff(1, HALF))


def test_the_backoff_grows_with_each_attempt(state: RetryState) -> None:
    step(state)
    state.start_attempt(("one", "b"))
    assert step(state, left=LEFT[1:]) == (Action.FAILOVER, backoff(2, HALF))
    assert state.total_wait == backoff(1, HALF) + backoff(2, HALF)


def test_a_final_verdict_ends_the_request(state: RetryState) -> None:
    assert step(state, FINAL) is GIVE_UP


@pytest.mark.parametrize("left", [[], [ranked("two", reason=RankReason.UNAVAILABLE)]])
def test_without_an_available_candidate_there_is_no_failover(
    state: RetryState, left: list[RankedCandidate]
) -> None:
    assert step(state, left=left) is GIVE_UP


def test_at_most_three_attempts(state: RetryState) -> None:
    for account in ("b", "c"):
        assert step(state).action is Action.FAILOVER
        state.start_attempt(("one", account))
    assert step(state) is GIVE_UP


def test_a_verdict_may_allow_one_more_account_only(state: RetryState) -> None:
    once = replace(SERVER_ERROR, failover=Failover.ONCE)
    assert step(state, once).action is Action.FAILOVER
    state.start_attempt(("two", "a"))
    assert step(state) is GIVE_UP


def test_the_same_account_is_retried_once(state: RetryState) -> None:
    assert step(state, OVERLOADED) == (Action.RETRY, 1.0)
    state.start_attempt(("one", "a"))
    assert step(state, OVERLOADED).action is Action.FAILOVER
    assert len(state.accounts) == 1


def test_the_next_account_has_its_own_retry(state: RetryState) -> None:
    step(state)
    state.start_attempt(("two", "a"))
    assert step(state, OVERLOADED, []) == (Action.RETRY, 1.0)


def test_an_attempt_in_another_form_is_no_retry(state: RetryState) -> None:
    """A request that is repeated as a stream counts as an attempt, not as the account's retry."""
    state.start_attempt(("one", "a"))
    assert step(state, OVERLOADED).action is Action.RETRY


def test_a_last_resort_is_for_the_only_account(state: RetryState) -> None:
    limited = replace(OVERLOADED, same_account_retry=SameAccountRetry(2.0, last_resort=True))
    assert step(state, limited).action is Action.FAILOVER
    state.start_attempt(("two", "a"))
    assert step(state, limited, []) == (Action.RETRY, 2.0)


def test_the_total_wait_of_a_request_is_limited(state: RetryState) -> None:
    long = replace(OVERLOADED, same_account_retry=SameAccountRetry(MAX_TOTAL_WAIT + 1))
    assert step(state, long).action is Action.FAILOVER
    state.total_wait = MAX_TOTAL_WAIT
    assert step(state) is GIVE_UP


def test_retries_share_a_budget() -> None:
    budget = RetryBudget()
    for _ in range(MIN_RETRIES):
        state = RetryState(budget, lambda: HALF)
        state.start_attempt(("one", "a"))
        assert step(state).action is Action.FAILOVER
    state = RetryState(budget, lambda: HALF)
    state.start_attempt(("one", "a"))
    assert step(state, OVERLOADED) is GIVE_UP


def test_the_next_channel_is_free_where_one_lacks_the_model() -> None:
    """It takes nothing of the budget and counts towards no limit of the request."""
    budget = RetryBudget()
    while budget.try_acquire(0.0):
        pass
    state = RetryState(budget, lambda: HALF)
    for number in range(10):
        state.start_attempt((f"c{number}", "a"))
        assert step(state, NO_MODEL, [ranked("c0", "b"), ranked("last")]) == (Action.FAILOVER, 0.0)
    state.start_attempt(("last", "a"))
    assert step(state, left=LEFT) is GIVE_UP, "another failure takes a retry"


def test_an_account_that_is_skipped_from_now_on_costs_no_retry() -> None:
    """It takes nothing of the budget, counts towards no limit of the request, and is not waited
    for."""
    budget = RetryBudget()
    while budget.try_acquire(0.0):
        pass
    state = RetryState(budget, lambda: HALF)
    for account in "abcde":
        state.start_attempt(("one", account))
        left = [ranked("one", "last")]
        assert next_step(state, LIMITED, left, 0.0, is_news=True) == (Action.FAILOVER, 0.0)
    state.start_attempt(("one", "last"))
    assert step(state, LIMITED, LEFT) is GIVE_UP, "known before: it takes a retry"
    assert next_step(state, LIMITED, [], 0.0, is_news=True) is GIVE_UP


def test_another_account_of_a_channel_without_the_model_is_a_retry(state: RetryState) -> None:
    unavailable = ranked("two", reason=RankReason.UNAVAILABLE)
    for account in ("b", "c"):
        assert step(state, NO_MODEL, [LEFT[0], unavailable]) == (
            Action.FAILOVER,
            backoff(state.attempts, HALF),
        )
        state.start_attempt(("one", account))
    assert step(state, NO_MODEL, [LEFT[0], unavailable]) is GIVE_UP


def test_a_free_attempt_leaves_all_retries_of_the_request(state: RetryState) -> None:
    step(state, NO_MODEL)
    for channel in ("two", "three"):
        state.start_attempt((channel, "a"))
        assert step(state, left=[ranked("four")]).action is Action.FAILOVER
    state.start_attempt(("four", "a"))
    assert step(state, left=[ranked("five")]) is GIVE_UP


def test_a_network_error_moves_its_channel_behind_the_others() -> None:
    network = replace(SERVER_ERROR, blame=Blame.TRANSPORT)
    assert order_after_failure(LEFT, network, "one") == [*LEFT[1:], LEFT[0]]
    assert order_after_failure(LEFT, SERVER_ERROR, "one") == LEFT
    no_penalty = replace(network, penalty=AccountPenalty.NONE)
    assert order_after_failure(LEFT, no_penalty, "one") == LEFT
