"""What follows a failed attempt: the same account again, another account, or the error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.core.value import FastStrEnum
from gateway.routing.failure_policy import MODEL_NOT_FOUND, AccountPenalty, Blame, Failover, Verdict
from gateway.routing.health import AccountRef
from gateway.routing.ordering import RankedCandidate, RankReason
from gateway.routing.retry_budget import RetryBudget

MAX_ATTEMPTS: Final = 3
MAX_ACCOUNTS: Final = 3
"""Accounts of one request."""

MAX_TOTAL_WAIT: Final = 20.0
"""Seconds that one request waits between its attempts, all together."""

_BASE_DELAY: Final = 0.2
_MAX_DELAY: Final = 2.0


class Action(FastStrEnum):
    """The values are those of the request log."""

    RETRY = "same account"
    FAILOVER = "other account"
    GIVE_UP = "told the client"


class NextStep(NamedTuple):
    """`wait` is the delay before it, in seconds."""

    action: Action
    wait: float = 0.0


GIVE_UP: Final = NextStep(Action.GIVE_UP)


@dataclass(slots=True, eq=False)
class RetryState:
    """The attempts of one request so far. `random_float` gives numbers in [0, 1), `total_wait` is
    in seconds."""

    budget: RetryBudget
    random_float: Callable[[], float]
    attempts: int = 0
    total_wait: float = 0.0
    accounts: set[AccountRef] = field(default_factory=set)
    _free: int = 0
    _current: AccountRef | None = None
    _retried: AccountRef | None = None
    _is_last_account: bool = False

    def start_attempt(self, account: AccountRef) -> None:
        self.attempts += 1
        self.accounts.add(account)
        self._current = account


def next_step(
    state: RetryState,
    verdict: Verdict,
    left: Sequence[RankedCandidate],
    now: float,
    *,
    is_news: bool = False,
) -> NextStep:
    """The step after an attempt that failed with `verdict`; `left` are the candidates that were not
    tried yet, `now` is monotonic, in seconds; `is_news` as of `Health`. A step other than `GIVE_UP`
    takes one retry of the budget, unless it is free. An account is retried once at most."""
    if _is_free(state, verdict, left, is_news=is_news):
        state._free += 1
        return NextStep(Action.FAILOVER)
    same = verdict.same_account_retry
    if same is not None and state._retried != state._current and not (same.last_resort and left):
        wait = same.wait(state.random_float())
        if _acquire(state, wait, now):
            state._retried = state._current
            return NextStep(Action.RETRY, wait)
    if not _may_fail_over(state, verdict, left):
        return GIVE_UP
    state._is_last_account = verdict.failover is Failover.ONCE
    wait = backoff(state.attempts, state.random_float())
    return NextStep(Action.FAILOVER, wait) if _acquire(state, wait, now) else GIVE_UP


def order_after_failure(
    left: Sequence[RankedCandidate], verdict: Verdict, channel: str
) -> list[RankedCandidate]:
    """The candidates that are left, in the order in which they are tried after a failure of
    `channel`: accounts of one channel share its network path and its models, so after a network
    error and where it lacks the model those of other channels come first."""
    is_shared = verdict.blame is Blame.TRANSPORT and verdict.penalty is not AccountPenalty.NONE
    if not is_shared and verdict.reason != MODEL_NOT_FOUND:
        return list(left)
    return sorted(left, key=lambda ranked: ranked.candidate.channel == channel)


def backoff(attempt: int, random_value: float) -> float:
    """Seconds to wait before the attempt of that number, the first retry being 1: full jitter by
    `random_value`, which is in [0, 1)."""
    return random_value * min(_MAX_DELAY, _BASE_DELAY * 2.0 ** (attempt - 1))


def _is_free(
    state: RetryState, verdict: Verdict, left: Sequence[RankedCandidate], *, is_news: bool
) -> bool:
    """Tells whether the next attempt takes no retry of the budget and the last one counts towards
    no limit: it was refused at no cost, by an account that is skipped from now on, or by an
    upstream without the model, of which each channel is asked once so."""
    if verdict.failover is not Failover.YES or not (is_news or verdict.reason == MODEL_NOT_FOUND):
        return False
    tried = () if is_news else {channel for channel, _ in state.accounts}
    return any(
        ranked.reason is not RankReason.UNAVAILABLE and ranked.candidate.channel not in tried
        for ranked in left
    )


def _may_fail_over(state: RetryState, verdict: Verdict, left: Sequence[RankedCandidate]) -> bool:
    return (
        verdict.failover is not Failover.NEVER
        and not state._is_last_account
        and len(state.accounts) - state._free < MAX_ACCOUNTS
        and any(ranked.reason is not RankReason.UNAVAILABLE for ranked in left)
    )


def _acquire(state: RetryState, wait: float, now: float) -> bool:
    """Takes a retry of the budget where the limits of the request allow one more attempt."""
    if state.attempts - state._free >= MAX_ATTEMPTS or state.total_wait + wait > MAX_TOTAL_WAIT:
        return False
    if not state.budget.try_acquire(now):
        return False
    state.total_wait += wait
    return True
