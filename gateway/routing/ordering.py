"""The order of a route's candidates for one prompt, with the reason of each position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from gateway.core.prompt import OutputKind, Prompt, ToolKind
from gateway.core.value import FastStrEnum
from gateway.routing.affinity import Affinity, rendezvous_order, weighted_shuffle
from gateway.routing.health import AccountRef
from gateway.routing.router import Candidate

AvailableFilter = Callable[[Sequence[AccountRef]], Sequence[AccountRef]]
"""The available accounts of a pool, in order."""

IsSlow = Callable[[AccountRef, Sequence[AccountRef]], bool]
"""Whether an account is slow compared with its pool."""


class RankReason(FastStrEnum):
    """Why a candidate has its position, for people."""

    ONLY = "only candidate"
    PREVIOUS_REPLY = "account of the previous reply"
    AFFINITY = "session affinity"
    WEIGHT = "by weight"
    AFFINITY_UNAVAILABLE = "account of the conversation unavailable"
    EARLIER_UNAVAILABLE = "earlier candidates unavailable"
    FIRST_SLOW = "first choice slow"
    SLOW_ACCOUNT = "slower than others"
    NEXT = "next in order"
    LOWER_PRIORITY = "lower priority"
    UNAVAILABLE = "unavailable"


class RankedCandidate(NamedTuple):
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
    """Returns all candidates, in the order in which they are tried.

    Within a tier: session affinity first, else weighted random order; candidates that lack a trait
    that the prompt needs, or are slow, come after the others. Unavailable accounts come last. The
    account of the reply that the prompt refers to comes first, whatever its tier. `random_float`
    returns [0, 1).
    """
    if len(candidates) == 1:
        return [RankedCandidate(candidates[0], RankReason.ONLY)]
    traits = _required_traits(prompt)
    ranked = [
        choice
        for _, tier in groupby(candidates, key=attrgetter("tier"))
        for choice in _order_tier(list(tier), traits, affinity, is_slow, random_float)
    ]
    if affinity is not None and affinity.account_ref is not None:
        ranked.sort(key=lambda choice: choice.reason is not RankReason.PREVIOUS_REPLY)
    return _by_health(ranked, available)


def _order_tier(
    tier: Sequence[Candidate],
    traits: Sequence[str],
    affinity: Affinity | None,
    is_slow: IsSlow,
    random_float: Callable[[], float],
) -> Iterator[RankedCandidate]:
    """The reason of the first is why it leads its tier."""
    if len(tier) == 1:
        yield RankedCandidate(tier[0], _single_reason(tier[0], affinity))
        return
    ordered, reason = _weighted_order(tier, affinity, random_float)
    slow_refs: set[AccountRef] = set()
    if reason is not RankReason.PREVIOUS_REPLY:
        if traits:
            ordered.sort(key=lambda each: sum(not getattr(each.target, name) for name in traits))
        if slow_refs := _slow_refs(ordered, is_slow):
            ordered.sort(key=lambda candidate: candidate.account_ref in slow_refs)
    yield RankedCandidate(ordered[0], RankReason.FIRST_SLOW if slow_refs else reason)
    for candidate in ordered[1:]:
        later_reason = (
            RankReason.SLOW_ACCOUNT if candidate.account_ref in slow_refs else RankReason.NEXT
        )
        yield RankedCandidate(candidate, later_reason)


def _single_reason(candidate: Candidate, affinity: Affinity | None) -> RankReason:
    if affinity is None or not candidate.uses_affinity:
        return RankReason.WEIGHT
    return _affinity_reason(candidate, affinity)


def _affinity_reason(candidate: Candidate, affinity: Affinity) -> RankReason:
    is_previous = candidate.account_ref == affinity.account_ref
    return RankReason.PREVIOUS_REPLY if is_previous else RankReason.AFFINITY


def _weighted_order(
    tier: Sequence[Candidate], affinity: Affinity | None, random_float: Callable[[], float]
) -> tuple[list[Candidate], RankReason]:
    members = [(candidate.account_ref, candidate.weight) for candidate in tier]
    if affinity is None or not any(candidate.uses_affinity for candidate in tier):
        return [tier[index] for index in weighted_shuffle(members, random_float)], RankReason.WEIGHT
    indexes = rendezvous_order(affinity.key, members, affinity.account_ref)
    ordered = [tier[index] for index in indexes]
    return ordered, _affinity_reason(ordered[0], affinity)


def _slow_refs(ordered: Sequence[Candidate], is_slow: IsSlow) -> set[AccountRef]:
    """The slow accounts, if the first is slow and others are not."""
    pool = [candidate.account_ref for candidate in ordered]
    if not is_slow(pool[0], pool):
        return set()
    slow_refs = {ref for ref in pool if is_slow(ref, pool)}
    return slow_refs if len(slow_refs) < len(pool) else set()


def _by_health(
    ranked: Sequence[RankedCandidate], available: AvailableFilter
) -> list[RankedCandidate]:
    refs = [choice.candidate.account_ref for choice in ranked]
    allowed = available(refs)
    by_ref = {choice.candidate.account_ref: choice for choice in ranked}
    ready = [by_ref.pop(ref) for ref in allowed]
    unavailable = [choice._replace(reason=RankReason.UNAVAILABLE) for choice in by_ref.values()]
    if not ready:
        return unavailable
    first, leader = ready[0], ranked[0]
    if first is not leader:
        reason = RankReason.EARLIER_UNAVAILABLE
        if leader.reason in (RankReason.AFFINITY, RankReason.PREVIOUS_REPLY):
            reason = RankReason.AFFINITY_UNAVAILABLE
        first = first._replace(reason=reason)
    tier = first.candidate.tier
    return [first, *(_demoted(tier, choice) for choice in ready[1:]), *unavailable]


def _demoted(tier: int, choice: RankedCandidate) -> RankedCandidate:
    """Returns a candidate with its reason as a later choice than a first of the tier."""
    if choice.candidate.tier > tier:
        return RankedCandidate(choice.candidate, RankReason.LOWER_PRIORITY)
    if choice.reason is RankReason.SLOW_ACCOUNT:
        return choice
    return RankedCandidate(choice.candidate, RankReason.NEXT)


def _required_traits(prompt: Prompt) -> list[str]:
    """The traits of a target without which the prompt would need emulation."""
    traits = []
    if prompt.output is not None and prompt.output.kind is OutputKind.JSON_SCHEMA:
        traits.append("structured")
    if any(tool.kind is ToolKind.CUSTOM for tool in prompt.tools):
        traits.append("custom_tools")
    return traits
