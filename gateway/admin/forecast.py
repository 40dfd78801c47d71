"""What would become of a request, without asking anybody: who would be asked in which order and
why, who would be passed over, or what the client would be told.

It must not know HTTP, nor whether a gateway runs: how the accounts are it is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, Protocol

from gateway.config import Config, Lifecycle, Model
from gateway.core.formats import Family, Format, Lane
from gateway.core.prompt import Prompt
from gateway.errors import GatewayError, InvalidUrl, ModelNotFound, NoAvailableAccounts
from gateway.routing.catalog import Catalog, matches
from gateway.routing.gate import Standing, State
from gateway.routing.health import Place
from gateway.routing.lineup import Choice, Reason, line_up
from gateway.routing.router import Candidate, Router

_CLOSED: Final = {
    State.COOLING: "cooling",
    State.BANNED: "banned",
    State.BROKEN: "left alone after too many failures",
}


class Condition(Protocol):
    """How the accounts are, now. `left` is how many seconds of a standing are left."""

    def usable(self, pool: Sequence[Place], model: str) -> Sequence[Place]: ...

    def standing(self, place: Place, model: str) -> Standing: ...

    def left(self, standing: Standing) -> float: ...

    def slow(self, place: Place, pool: Sequence[Place], model: str) -> bool: ...

    def busy(self, place: Place) -> bool: ...


class Unknown:
    """Where no gateway runs that could tell, all are well."""

    def usable(self, pool: Sequence[Place], model: str) -> Sequence[Place]:
        return pool

    def standing(self, place: Place, model: str) -> Standing:
        return Standing()

    def left(self, standing: Standing) -> float:
        return 0.0

    def slow(self, place: Place, pool: Sequence[Place], model: str) -> bool:
        return False

    def busy(self, place: Place) -> bool:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One candidate: `turn` counts those who would be asked from 1, None is passed over. `share` is
    its part of the requests of its `rank`, as far as they belong to no conversation."""

    turn: int | None
    channel: str
    account: str
    format: Format
    lane: Lane
    upstream_model: str
    rank: int
    share: float
    state: State
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stranger:
    """A channel that is no candidate."""

    channel: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """`decision` is a sentence; `status`, `code` and `message` are what a client would be told
    where nobody would be asked."""

    sent: str
    model: str | None
    format: Format
    patterns: tuple[str, ...]
    decision: str
    status: int | None = None
    code: str | None = None
    message: str | None = None
    candidates: tuple[Stop, ...] = ()
    others: tuple[Stranger, ...] = ()


def forecast(
    config: Config,
    catalog: Catalog,
    router: Router,
    patterns: Sequence[str],
    sent: str,
    asked: Format,
    condition: Condition,
) -> Forecast:
    """For a plain prompt of no known conversation, from a key that reaches what the patterns name.

    Where chance decides among equals, the heavier ones are told first.
    """
    model = catalog.resolve(sent)
    reach = router.reach(patterns)
    plain = Forecast(
        sent=sent,
        model=model.id if model else None,
        format=asked,
        patterns=tuple(patterns),
        decision="",
        others=tuple(_strangers(config, model, patterns, asked)),
    )
    try:
        if asked is Format.RESPONSES and Family.BETA not in reach.families:
            raise InvalidUrl("POST", "/v1/responses")
        route = router.route(sent, asked, reach)
    except GatewayError as error:
        return _refused(plain, error, _why_refused(config, model, sent, error))
    line = line_up(
        route.candidates,
        Prompt(format=asked, model=sent, turns=()),
        None,
        lambda pool: condition.usable(pool, route.model),
        lambda place, pool: condition.slow(place, pool, route.model),
        lambda: 0.5,
    )
    usable = set(condition.usable(route.places, route.model))
    stops = tuple(_stops(line, usable, asked, condition))
    plain = replace(plain, candidates=stops)
    first = next((stop for stop in stops if stop.turn == 1), None)
    if first is None:
        why = "every account that has the model is closed off or full"
        return _refused(plain, NoAvailableAccounts(), why)
    decision = f"{first.channel}/{first.account} would be asked for {first.upstream_model}."
    return replace(plain, decision=decision)


def _refused(plain: Forecast, error: GatewayError, why: str) -> Forecast:
    return replace(
        plain,
        decision=f"Nobody would be asked: {why}.",
        status=error.status,
        code=error.code,
        message=error.message,
    )


def _why_refused(config: Config, model: Model | None, sent: str, error: GatewayError) -> str:
    if isinstance(error, InvalidUrl):
        return "the responses endpoint does not exist for who reaches no beta model"
    if model is None:
        gone = Lifecycle.RETIRED
        known = (each for each in config.models if sent in (each.id, *each.aliases))
        retired = any(each.lifecycle is gone for each in known)
        return f"{sent} is retired" if retired else f"the catalog has no model {sent}"
    if isinstance(error, ModelNotFound):
        if not any(model.id in channel.models for channel in config.channels):
            return f"no channel has {model.id}"
        return f"no pattern of the group names {model.id}"
    return error.detail or error.message


def _strangers(
    config: Config, model: Model | None, patterns: Sequence[str], asked: Format
) -> Iterator[Stranger]:
    if model is None:
        return
    named = any(matches(pattern, model) for pattern in patterns)
    for channel in config.channels:
        if model.id not in channel.models:
            yield Stranger(channel.name, f"does not have {model.id}")
        elif not named:
            yield Stranger(channel.name, f"has {model.id}, which the group does not reach")
        elif asked not in config.families.open(model.family):
            closed = f"has {model.id}, but {asked} is closed to the {model.family} family"
            yield Stranger(channel.name, closed)


def _stops(
    line: Sequence[Choice], usable: Set[Place], asked: Format, condition: Condition
) -> Iterator[Stop]:
    turn = 0
    for choice in line:
        candidate = choice.candidate
        peers = [each.candidate for each in line if each.candidate.tier == candidate.tier]
        share = _share(candidate, peers)
        standing = condition.standing(candidate.place, candidate.model)
        how = _how(standing, condition.left(standing))
        taken = candidate.place in usable and not condition.busy(candidate.place)
        turn += taken
        if taken:
            why = _taken(choice, turn, len(peers), standing.state, how)
        else:
            why = _passed(candidate, usable, how)
        yield Stop(
            turn=turn if taken else None,
            channel=candidate.channel,
            account=candidate.account,
            format=candidate.format,
            lane=candidate.lane,
            upstream_model=candidate.target.model,
            rank=candidate.tier + 1,
            share=share,
            state=standing.state,
            why=(why, _spoken(candidate, asked), *_ranked(candidate, peers, share)),
        )


def _taken(choice: Choice, turn: int, peers: int, state: State, how: str | None) -> str:
    alone = choice.reason is Reason.WEIGHT and peers == 1
    reason = "the only one of its rank" if alone else choice.reason.value
    said = f"{'asked first' if turn == 1 else 'asked if that fails'}: {reason}"
    if state is State.PROBING:
        return f"{said}; it has rested, and the request finds out whether it is well again"
    return f"{said}; {how}, but half of the accounts may always be asked" if how else said


def _passed(candidate: Candidate, usable: Set[Place], how: str | None) -> str:
    if candidate.place in usable:
        return "passed over: it has as many requests as it may have"
    return f"passed over: {how or 'another request finds out whether it is well again'}"


def _how(standing: Standing, left: float) -> str | None:
    """How an account is that is closed off."""
    if standing.state is State.DISABLED:
        return standing.reason
    word = _CLOSED.get(standing.state)
    return word and f"{word} for another {_lasting(left)} ({standing.reason})"


def _lasting(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _spoken(candidate: Candidate, asked: Format) -> str:
    if candidate.lane is Lane.NATIVE:
        return f"speaks {asked} itself: the prompt stays as it is"
    if candidate.format is asked:
        return f"speaks {asked} itself, but its channel wants everything written anew"
    return f"speaks {candidate.format}, so the prompt would be translated"


def _share(candidate: Candidate, peers: Sequence[Candidate]) -> float:
    total = sum(peer.weight for peer in peers)
    return candidate.weight / total if total else 1 / len(peers)


def _ranked(candidate: Candidate, peers: Sequence[Candidate], share: float) -> Iterator[str]:
    if len(peers) > 1:
        yield f"one of {len(peers)} of rank {candidate.tier + 1}, of which it takes {share:.0%}"
