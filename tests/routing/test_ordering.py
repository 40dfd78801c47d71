"""The order of candidates and its reasons: affinity, weights, slow and unavailable accounts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from gateway.core.events import Failure, FailureKind
from gateway.core.formats import Format, Lane
from gateway.core.prompt import OutputFormat, OutputKind, Prompt, Tool, ToolKind
from gateway.core.target import Target
from gateway.routing.affinity import Affinity, AffinitySource
from gateway.routing.failure_policy import FailurePolicy
from gateway.routing.health import AccountRef, Health
from gateway.routing.latency import LatencyTracker
from gateway.routing.ordering import RankedCandidate, RankReason, order_candidates
from gateway.routing.router import Candidate

MODEL = "beta-1"
PROMPT = Prompt(format=Format.CHAT, model=MODEL, turns=())
CHANCE = Random(7).random


def candidate(
    name: str, tier: int = 0, weight: float = 1, affine: bool = True, **traits: bool
) -> Candidate:
    target = Target(model=MODEL, **traits)  # type: ignore[arg-type]  # all of them are bool
    return Candidate("c", name, Format.CHAT, Lane.NATIVE, MODEL, target, tier, weight, affine)


POOL = [candidate(name) for name in "abcd"]


def talk(number: int = 0, ref: AccountRef | None = None) -> Affinity:
    return Affinity(number.to_bytes(16, "big"), AffinitySource.CACHE_KEY, ref)


def lined(
    pool: Sequence[Candidate] = POOL,
    affinity: Affinity | None = None,
    *,
    prompt: Prompt = PROMPT,
    closed: Sequence[str] = (),
    slow: Sequence[str] = (),
) -> list[RankedCandidate]:
    """With real health and latency of accounts."""
    health, latency = Health(), LatencyTracker()
    for name in closed:
        admission = health.admit(("c", name), MODEL, 0, [("c", name)])
        assert admission is not None
        failure = Failure(kind=FailureKind.RESPONSE, status=429, message="no", retry_after=60)
        health.record_failure(admission, FailurePolicy().classify(failure), 0, 0.5, "no")
    for each in pool:
        for _ in range(5):
            latency.record(each.account_ref, MODEL, 9 if each.account in slow else 1, 0)
    choices = order_candidates(
        pool,
        prompt,
        affinity,
        lambda refs: health.available(refs, MODEL, 1),
        lambda ref, refs: latency.is_slow(ref, refs, MODEL, 1),
        CHANCE,
    )
    assert {choice.candidate.account for choice in choices} == {each.account for each in pool}
    return choices


def names(choices: Sequence[RankedCandidate]) -> str:
    return "".join(choice.candidate.account for choice in choices)


def reasons(choices: Sequence[RankedCandidate]) -> list[RankReason]:
    return [choice.reason for choice in choices]


def test_a_single_candidate() -> None:
    for closed in ([], ["a"]):
        assert reasons(lined(POOL[:1], talk(), closed=closed)) == [RankReason.ONLY]


def test_a_conversation_has_its_own_order() -> None:
    orders = {number: lined(affinity=talk(number)) for number in range(100)}
    for number, choices in orders.items():
        assert choices == lined(affinity=talk(number))
        assert reasons(choices) == [RankReason.AFFINITY, *[RankReason.NEXT] * 3]
    leaders = Counter(choices[0].candidate.account for choices in orders.values())
    assert all(leaders[name] > 10 for name in "abcd"), leaders


@pytest.mark.parametrize("known", [True, False])
def test_weights(known: bool) -> None:
    pool = [candidate("a", weight=3), candidate("b"), candidate("c", weight=0)]
    leaders = Counter(
        names(lined(pool, talk(number) if known else None))[0] for number in range(600)
    )
    assert 390 < leaders["a"] < 510
    assert leaders["c"] == 0


def test_without_a_conversation_the_order_is_random() -> None:
    assert reasons(lined())[0] is RankReason.WEIGHT
    assert len({names(lined()) for _ in range(50)}) > 5


def test_channels_without_affinity() -> None:
    pool = [candidate(name, affine=False) for name in "ab"]
    assert {names(lined(pool, talk())) for _ in range(50)} == {"ab", "ba"}
    assert reasons(lined(pool, talk()))[0] is RankReason.WEIGHT
    mixed = [candidate("a", affine=False), candidate("b")]
    assert len({names(lined(mixed, talk())) for _ in range(50)}) == 1


def test_tiers_are_in_order() -> None:
    pool = [candidate("a"), candidate("b"), candidate("c", tier=1), candidate("d", tier=1)]
    for number in range(20):
        choices = lined(pool, talk(number))
        assert set(names(choices)[:2]) == {"a", "b"}
        assert reasons(choices)[1:] == [
            RankReason.NEXT,
            RankReason.LOWER_PRIORITY,
            RankReason.LOWER_PRIORITY,
        ]


def test_the_affinity_account_is_unavailable() -> None:
    first, *others = names(lined(affinity=talk()))
    choices = lined(affinity=talk(), closed=[first])
    assert names(choices) == "".join([*others, first]), "the others keep their order"
    assert reasons(choices) == [
        RankReason.AFFINITY_UNAVAILABLE,
        RankReason.NEXT,
        RankReason.NEXT,
        RankReason.UNAVAILABLE,
    ]


def test_unavailable_accounts_come_after_lower_tiers() -> None:
    pool = [candidate("a"), candidate("b", tier=1), candidate("c", tier=2)]
    choices = lined(pool, closed=["a"])
    assert names(choices) == "bca"
    assert reasons(choices) == [
        RankReason.EARLIER_UNAVAILABLE,
        RankReason.LOWER_PRIORITY,
        RankReason.UNAVAILABLE,
    ]


def test_never_more_than_half_are_unavailable() -> None:
    choices = lined(affinity=talk(), closed="abcd")
    assert reasons(choices)[2:] == [RankReason.UNAVAILABLE, RankReason.UNAVAILABLE]
    assert RankReason.UNAVAILABLE not in reasons(choices)[:2]


def test_a_slow_first_choice_is_demoted() -> None:
    first, *others = names(lined(affinity=talk()))
    choices = lined(affinity=talk(), slow=[first])
    assert names(choices) == "".join([*others, first])
    assert reasons(choices) == [
        RankReason.FIRST_SLOW,
        RankReason.NEXT,
        RankReason.NEXT,
        RankReason.SLOW_ACCOUNT,
    ]


def test_slow_later_candidates_change_nothing() -> None:
    choices = lined(affinity=talk())
    last = choices[-1].candidate.account
    assert lined(affinity=talk(), slow=[last]) == choices


def test_slow_is_better_than_unavailable() -> None:
    pool = [candidate("a"), candidate("b"), candidate("z", tier=1)]
    first, second = names(lined(pool, talk()))[:2]
    choices = order_candidates(
        pool,
        PROMPT,
        talk(),
        lambda refs: [ref for ref in refs if ref != ("c", second)],
        lambda ref, _: ref == ("c", first),
        CHANCE,
    )
    assert names(choices) == f"{first}z{second}"
    assert reasons(choices) == [
        RankReason.EARLIER_UNAVAILABLE,
        RankReason.LOWER_PRIORITY,
        RankReason.UNAVAILABLE,
    ]


def test_the_account_of_the_previous_reply() -> None:
    """Only that upstream has its state, so neither tiers nor latency matter."""
    pool = [*POOL, candidate("e", tier=1), candidate("f", tier=1)]
    choices = lined(pool, talk(ref=("c", "e")), slow=["e"])
    assert names(choices)[0] == "e"
    assert reasons(choices) == [RankReason.PREVIOUS_REPLY, *[RankReason.NEXT] * 5]
    cooling = lined(pool, talk(ref=("c", "e")), closed=["e"])
    assert reasons(cooling)[0] is RankReason.AFFINITY_UNAVAILABLE
    assert names(cooling)[-1] == "e"
    gone = lined(POOL, talk(ref=("gone", "e")))
    assert gone == lined(POOL, talk())


SCHEMA = Prompt(
    format=Format.CHAT,
    model=MODEL,
    turns=(),
    output=OutputFormat(kind=OutputKind.JSON_SCHEMA, schema={}),
)
CUSTOM = Prompt(
    format=Format.CHAT, model=MODEL, turns=(), tools=(Tool(kind=ToolKind.CUSTOM, name="sh"),)
)


@pytest.mark.parametrize(
    ("prompt", "trait"), [(SCHEMA, "structured"), (CUSTOM, "custom_tools")], ids=["schema", "tool"]
)
def test_candidates_that_need_emulation_come_last_in_their_tier(prompt: Prompt, trait: str) -> None:
    pool = [
        candidate("a", **{trait: False}),
        candidate("b", **{trait: True}),
        candidate("c", tier=1, **{trait: True}),
    ]
    for number in range(10):
        assert names(lined(pool, talk(number), prompt=prompt)) == "bac"
    assert {names(lined(pool, talk(number))) for number in range(20)} == {"abc", "bac"}
    assert names(lined(pool, talk(ref=("c", "a")), prompt=prompt)) == "abc"
