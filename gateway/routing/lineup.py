"""In which order the candidates of a route are asked for one prompt, and why each stands there.

It must not know how they are asked, nor how it is known who is well and who is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from gateway.core.prompt import OutputKind, Prompt, ToolKind
from gateway.core.word import Word
from gateway.routing.affinity import Affinity, order, scattered
from gateway.routing.health import Place
from gateway.routing.router import Candidate

Usable = Callable[[Sequence[Place]], Sequence[Place]]
"""Of a pool those that may be asked, in the order in which they may."""

Slow = Callable[[Place, Sequence[Place]], bool]
"""Whether a place is slow beside its pool."""


class Reason(Word):
    """Why a candidate stands where it does, as people read it."""

    ONLY = "the only one there is"
    REPLY = "the reply before came from there"
    CONVERSATION = "belongs to the conversation"
    WEIGHT = "by weight"
    COOLING = "the account of the conversation is cooling"
    PASSED = "those before it are closed off"
    SLOW = "the first choice was slow"
    LAGGING = "slow beside the others"
    NEXT = "next in line"
    LOWER = "of a lower rank"
    CLOSED = "cooling"


class Choice(NamedTuple):
    """A candidate and why it stands where it does."""

    candidate: Candidate
    reason: Reason


def line_up(
    candidates: Sequence[Candidate],
    prompt: Prompt,
    affinity: Affinity | None,
    usable: Usable,
    slow: Slow,
    chance: Callable[[], float],
) -> list[Choice]:
    """All the candidates, the first to be asked first.

    Inside a tier the conversation's own goes first, or chance and weight decide where nobody knows
    the conversation; who lacks something that the prompt needs or is slow stands behind the others.
    Who is cooling stands at the end of all. An account that a reply came from which the prompt goes
    on from is asked before all others, of whatever tier. `chance` is in [0, 1).
    """
    if len(candidates) == 1:
        return [Choice(candidates[0], Reason.ONLY)]
    needs = _needs(prompt)
    line = [
        choice
        for _, tier in groupby(candidates, key=_tier)
        for choice in _tier_line(list(tier), needs, affinity, slow, chance)
    ]
    if affinity is not None and affinity.place is not None:
        line.sort(key=lambda choice: choice.reason is not Reason.REPLY)
    return _by_health(line, usable)


def _tier(candidate: Candidate) -> int:
    return candidate.tier


def _tier_line(
    tier: Sequence[Candidate],
    needs: Sequence[str],
    affinity: Affinity | None,
    slow: Slow,
    chance: Callable[[], float],
) -> Iterator[Choice]:
    """One tier's candidates in their order; the reason of the first is why it leads its tier."""
    if len(tier) == 1:
        yield Choice(tier[0], _alone(tier[0], affinity))
        return
    line, leads = _drawn(tier, affinity, chance)
    lagging: set[Place] = set()
    if leads is not Reason.REPLY:
        if needs:
            line.sort(key=lambda each: sum(not getattr(each.target, need) for need in needs))
        if lagging := _lagging(line, slow):
            line.sort(key=lambda candidate: candidate.place in lagging)
    yield Choice(line[0], Reason.SLOW if lagging else leads)
    for candidate in line[1:]:
        yield Choice(candidate, Reason.LAGGING if candidate.place in lagging else Reason.NEXT)


def _alone(candidate: Candidate, affinity: Affinity | None) -> Reason:
    """Nothing has to be drawn where a tier is one candidate."""
    if affinity is None or not candidate.affine:
        return Reason.WEIGHT
    return Reason.REPLY if candidate.place == affinity.place else Reason.CONVERSATION


def _drawn(
    tier: Sequence[Candidate], affinity: Affinity | None, chance: Callable[[], float]
) -> tuple[list[Candidate], Reason]:
    members = [(candidate.place, candidate.weight) for candidate in tier]
    if affinity is None or not any(candidate.affine for candidate in tier):
        return [tier[index] for index in scattered(members, chance)], Reason.WEIGHT
    line = [tier[index] for index in order(affinity.key, members, affinity.place)]
    kept = line[0].place == affinity.place
    return line, Reason.REPLY if kept else Reason.CONVERSATION


def _lagging(line: Sequence[Candidate], slow: Slow) -> set[Place]:
    """Who is slow where the first is; nobody where all are."""
    pool = [candidate.place for candidate in line]
    if not slow(pool[0], pool):
        return set()
    lagging = {place for place in pool if slow(place, pool)}
    return lagging if len(lagging) < len(pool) else set()


def _by_health(line: Sequence[Choice], usable: Usable) -> list[Choice]:
    places = [choice.candidate.place for choice in line]
    allowed = usable(places)
    led, tier = line[0], line[0].candidate.tier
    if allowed is places or list(allowed) == places:
        return [led, *(_behind(choice, tier) for choice in line[1:])]
    by_place = {choice.candidate.place: choice for choice in line}
    ready = [by_place.pop(place) for place in allowed]
    closed = [Choice(choice.candidate, Reason.CLOSED) for choice in by_place.values()]
    if not ready:
        return closed
    first = ready[0] if ready[0] is led else Choice(ready[0].candidate, _instead_of(led))
    tier = first.candidate.tier
    return [first, *(_behind(choice, tier) for choice in ready[1:]), *closed]


def _instead_of(led: Choice) -> Reason:
    belonged = led.reason in (Reason.CONVERSATION, Reason.REPLY)
    return Reason.COOLING if belonged else Reason.PASSED


def _behind(choice: Choice, tier: int) -> Choice:
    """As it stands behind a first of that tier."""
    if choice.candidate.tier > tier:
        return Choice(choice.candidate, Reason.LOWER)
    if choice.reason is Reason.LAGGING:
        return choice
    return Choice(choice.candidate, Reason.NEXT)


def _needs(prompt: Prompt) -> list[str]:
    """The traits of a target without which something of the prompt would have to be imitated."""
    needs = []
    if prompt.output is not None and prompt.output.kind is OutputKind.JSON_SCHEMA:
        needs.append("structured")
    if any(tool.kind is ToolKind.CUSTOM for tool in prompt.tools):
        needs.append("custom_tools")
    return needs
