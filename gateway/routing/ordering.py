"""In which order the candidates of a route are asked for one prompt, and why each stands there.

It must not know how they are asked, nor how it is known who is well and who is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from gateway.core.prompt import OutputKind, Prompt, ToolKind
from gateway.core.value import FastStrEnum
from gateway.routing.affinity import Affinity, rendezvous_order, weighted_shuffle
from gateway.routing.health import AccountRef
from gateway.routing.router import Candidate

AvailableFilter = Callable[[Sequence[AccountRef]], Sequence[AccountRef]]
"""Of a pool those that may be asked, in the order in which they may."""

IsSlow = Callable[[AccountRef, Sequence[AccountRef]], bool]
"""Whether a place is slow beside its pool."""


class RankReason(FastStrEnum):
    """Why a candidate stands where it does, as people read it."""

    ONLY = "the only one there is"
    PREVIOUS_REPLY = "the reply before came from there"
    AFFINITY = "belongs to the conversation"
    WEIGHT = "by weight"
    AFFINITY_UNAVAILABLE = "the account of the conversation is cooling"
    EARLIER_UNAVAILABLE = "those before it are closed off"
    FIRST_SLOW = "the first choice was slow"
    SLOW_ACCOUNT = "slow beside the others"
    NEXT = "next in line"
    LOWER_PRIORITY = "of a lower rank"
    UNAVAILABLE = "cooling"


class RankedCandidate(NamedTuple):
    """A candidate and why it stands where it does."""

    candidate: Candidate
    reason: RankReason


def order_candidates(
    candidates: Sequence[Candidate],
    prompt: Prompt,
    affinity: Affinity | None,
    available: AvailableFilter,
    is_slow: IsSlow,
    random_float: Callable[[], float],
) -> list[RankedCandidate]:
    """All the candidates, the first to be asked first.

    Inside a tier the conversation's own goes first, or chance and weight decide where nobody knows
    the conversation; who lacks something that the prompt needs or is slow stands behind the others.
    Who is cooling stands at the end of all. An account that a reply came from which the prompt goes
    on from is asked before all others, of whatever tier. `chance` is in [0, 1).
    """
    if len(candidates) == 1:
        return [RankedCandidate(candidates[0], RankReason.ONLY)]
    traits = _required_traits(prompt)
    ranked = [
        choice
        for _, tier in groupby(candidates, key=_tier_of)
        for choice in _order_tier(list(tier), traits, affinity, is_slow, random_float)
    ]
    if affinity is not None and affinity.account_ref is not None:
        ranked.sort(key=lambda choice: choice.reason is not RankReason.PREVIOUS_REPLY)
    return _by_health(ranked, available)


def _tier_of(candidate: Candidate) -> int:
    return candidate.tier


def _order_tier(
    tier: Sequence[Candidate],
    traits: Sequence[str],
    affinity: Affinity | None,
    is_slow: IsSlow,
    random_float: Callable[[], float],
) -> Iterator[RankedCandidate]:
    """One tier's candidates in their order; the reason of the first is why it leads its tier."""
    if len(tier) == 1:
        yield RankedCandidate(tier[0], _single_reason(tier[0], affinity))
        return
    ordered, reason = _weighted_order(tier, affinity, random_float)
    slow_refs: set[AccountRef] = set()
    if reason is not RankReason.PREVIOUS_REPLY:
        if traits:
            ordered.sort(key=lambda each: sum(not getattr(each.target, need) for need in traits))
        if slow_refs := _slow_refs(ordered, is_slow):
            ordered.sort(key=lambda candidate: candidate.account_ref in slow_refs)
    yield RankedCandidate(ordered[0], RankReason.FIRST_SLOW if slow_refs else reason)
    for candidate in ordered[1:]:
        yield RankedCandidate(
            candidate,
            RankReason.SLOW_ACCOUNT if candidate.account_ref in slow_refs else RankReason.NEXT,
        )


def _single_reason(candidate: Candidate, affinity: Affinity | None) -> RankReason:
    """Nothing has to be drawn where a tier is one candidate."""
    if affinity is None or not candidate.uses_affinity:
        return RankReason.WEIGHT
    return (
        RankReason.PREVIOUS_REPLY
        if candidate.account_ref == affinity.account_ref
        else RankReason.AFFINITY
    )


def _weighted_order(
    tier: Sequence[Candidate], affinity: Affinity | None, random_float: Callable[[], float]
) -> tuple[list[Candidate], RankReason]:
    members = [(candidate.account_ref, candidate.weight) for candidate in tier]
    if affinity is None or not any(candidate.uses_affinity for candidate in tier):
        return [tier[index] for index in weighted_shuffle(members, random_float)], RankReason.WEIGHT
    ordered = [
        tier[index] for index in rendezvous_order(affinity.key, members, affinity.account_ref)
    ]
    is_previous = ordered[0].account_ref == affinity.account_ref
    return ordered, RankReason.PREVIOUS_REPLY if is_previous else RankReason.AFFINITY


def _slow_refs(ordered: Sequence[Candidate], is_slow: IsSlow) -> set[AccountRef]:
    """Who is slow where the first is; nobody where all are."""
    pool = [candidate.account_ref for candidate in ordered]
    if not is_slow(pool[0], pool):
        return set()
    slow_refs = {place for place in pool if is_slow(place, pool)}
    return slow_refs if len(slow_refs) < len(pool) else set()


def _by_health(
    ranked: Sequence[RankedCandidate], available: AvailableFilter
) -> list[RankedCandidate]:
    refs = [choice.candidate.account_ref for choice in ranked]
    allowed = available(refs)
    leader, tier = ranked[0], ranked[0].candidate.tier
    if allowed is refs or list(allowed) == refs:
        return [leader, *(_demoted(choice, tier) for choice in ranked[1:])]
    by_ref = {choice.candidate.account_ref: choice for choice in ranked}
    ready = [by_ref.pop(place) for place in allowed]
    unavailable = [
        RankedCandidate(choice.candidate, RankReason.UNAVAILABLE) for choice in by_ref.values()
    ]
    if not ready:
        return unavailable
    first = (
        ready[0]
        if ready[0] is leader
        else RankedCandidate(ready[0].candidate, _demotion_reason(leader))
    )
    tier = first.candidate.tier
    return [first, *(_demoted(choice, tier) for choice in ready[1:]), *unavailable]


def _demotion_reason(leader: RankedCandidate) -> RankReason:
    belonged = leader.reason in (RankReason.AFFINITY, RankReason.PREVIOUS_REPLY)
    return RankReason.AFFINITY_UNAVAILABLE if belonged else RankReason.EARLIER_UNAVAILABLE


def _demoted(choice: RankedCandidate, tier: int) -> RankedCandidate:
    """As it stands behind a first of that tier."""
    if choice.candidate.tier > tier:
        return RankedCandidate(choice.candidate, RankReason.LOWER_PRIORITY)
    if choice.reason is RankReason.SLOW_ACCOUNT:
        return choice
    return RankedCandidate(choice.candidate, RankReason.NEXT)


def _required_traits(prompt: Prompt) -> list[str]:
    """The traits of a target without which something of the prompt would have to be imitated."""
    traits = []
    if prompt.output is not None and prompt.output.kind is OutputKind.JSON_SCHEMA:
        traits.append("structured")
    if any(tool.kind is ToolKind.CUSTOM for tool in prompt.tools):
        traits.append("custom_tools")
    return traits
