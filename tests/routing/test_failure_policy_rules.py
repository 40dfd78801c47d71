"""Configured rules precede the failure table."""

from __future__ import annotations

import pytest

from gateway.config.load import parse_config
from gateway.core.events import Failure, FailureKind
from gateway.routing.failure_policy import (
    AccountPenalty,
    Blame,
    Failover,
    FailurePolicy,
)

RULES = """\
rules:
  - {blame: capacity, status: [400, 503], text: "(?i)no capacity", for: 5s}
  - {blame: client, type: "safety_.*"}
  - {blame: account, code: key_asleep, for: 2m}
  - {blame: upstream, status: [404]}
"""


def policy() -> FailurePolicy:
    return FailurePolicy(parse_config(RULES).rules)


def response(status: int, message: str = "no", **fields: str) -> Failure:
    return Failure(kind=FailureKind.RESPONSE, status=status, message=message, **fields)


@pytest.mark.parametrize(
    ("failure", "reason", "blame", "others", "effect", "seconds"),
    [
        (
            response(400, "NO CAPACITY"),
            "rule 1",
            Blame.CAPACITY,
            Failover.YES,
            AccountPenalty.RATE_LIMITED,
            5,
        ),
        (
            response(503, "sorry: no capacity"),
            "rule 1",
            Blame.CAPACITY,
            Failover.YES,
            AccountPenalty.RATE_LIMITED,
            5,
        ),
        (
            response(500, type="safety_x"),
            "rule 2",
            Blame.CLIENT,
            Failover.NEVER,
            AccountPenalty.NONE,
            None,
        ),
        (
            response(200, code="key_asleep"),
            "rule 3",
            Blame.ACCOUNT,
            Failover.YES,
            AccountPenalty.AUTH_FAILED,
            120,
        ),
        (response(404), "rule 4", Blame.UPSTREAM, Failover.YES, AccountPenalty.FAILURE, None),
        (
            response(500, "no capacity"),
            "server error",
            Blame.UPSTREAM,
            Failover.YES,
            *(AccountPenalty.FAILURE, None),
        ),
        (
            response(400, type="a_safety_x"),
            "refused",
            Blame.CLIENT,
            Failover.NEVER,
            AccountPenalty.NONE,
            None,
        ),
    ],
)
def test_configured_rules(
    failure: Failure,
    reason: str,
    blame: Blame,
    others: Failover,
    effect: AccountPenalty,
    seconds: float | None,
) -> None:
    verdict = policy().classify(failure)
    assert (verdict.reason, verdict.blame) == (reason, blame)
    assert (verdict.failover, verdict.penalty, verdict.penalty_seconds) == (others, effect, seconds)
