"""An operator's rules as the file has them decide before the table does."""

from __future__ import annotations

import pytest

from gateway.config import parse_config
from gateway.core.failure import Failure, FailureKind
from gateway.routing.affinity import SESSION_HEADERS
from gateway.routing.judgement import Blame, Effect, Judge, Others
from gateway.routing.rules import rules_of

RULES = """\
rules:
  - {blame: capacity, status: [400, 503], text: "(?i)no capacity", for: 5s}
  - {blame: client, type: "safety_.*"}
  - {blame: account, code: key_asleep, for: 2m}
  - {blame: upstream, status: [404]}
"""


def judge() -> Judge:
    return Judge(rules_of(parse_config(RULES).rules))


def said(status: int, message: str = "no", **fields: str) -> Failure:
    return Failure(kind=FailureKind.SAID, status=status, message=message, **fields)


@pytest.mark.parametrize(
    ("failure", "reason", "blame", "others", "effect", "seconds"),
    [
        (said(400, "NO CAPACITY"), "rule 1", Blame.CAPACITY, Others.YES, Effect.COOL, 5),
        (said(503, "sorry: no capacity"), "rule 1", Blame.CAPACITY, Others.YES, Effect.COOL, 5),
        (said(500, type="safety_x"), "rule 2", Blame.CLIENT, Others.NEVER, Effect.NONE, None),
        (said(200, code="key_asleep"), "rule 3", Blame.ACCOUNT, Others.YES, Effect.BAN, 120),
        (said(404), "rule 4", Blame.UPSTREAM, Others.YES, Effect.FAILURE, None),
        (
            said(500, "no capacity"),
            "server error",
            Blame.UPSTREAM,
            Others.YES,
            *(Effect.FAILURE, None),
        ),
        (said(400, type="a_safety_x"), "refused", Blame.CLIENT, Others.NEVER, Effect.NONE, None),
    ],
)
def test_what_follows_from_a_rule(
    failure: Failure,
    reason: str,
    blame: Blame,
    others: Others,
    effect: Effect,
    seconds: float | None,
) -> None:
    verdict = judge().judge(failure)
    assert (verdict.reason, verdict.blame) == (reason, blame)
    assert (verdict.other_account, verdict.effect, verdict.seconds) == (others, effect, seconds)


def test_no_rules_unless_something_is_said() -> None:
    assert rules_of(parse_config("").rules) == ()


def test_conversations_are_recognised_by_the_same_headers_where_nothing_is_said() -> None:
    assert parse_config("").affinity.headers == SESSION_HEADERS
