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
from gateway.routing.circuit_breaker import AccountStatus, HealthState
from gateway.routing.health import AccountRef
from gateway.routing.ordering import RankedCandidate, RankReason, order_candidates
from gateway.routing.router import Candidate, Router

_CLOSED: Final = {
    HealthState.RATE_LIMITED: "rate limited",
    HealthState.AUTH_FAILED: "auth failed",
    HealthState.CIRCUIT_OPEN: "circuit open",
}


class HealthView(Protocol):
    """How the accounts are, now. `left` is how many seconds of a standing are left."""

    def available(self, pool: Sequence[AccountRef], model: str) -> Sequence[AccountRef]: ...

    def status(self, place: AccountRef, model: str) -> AccountStatus: ...

    def seconds_left(self, standing: AccountStatus) -> float: ...

    def is_slow(self, place: AccountRef, pool: Sequence[AccountRef], model: str) -> bool: ...

    def at_capacity(self, place: AccountRef) -> bool: ...


class AssumeHealthy:
    """Where no gateway runs that could tell, all are well."""

    def available(self, pool: Sequence[AccountRef], model: str) -> Sequence[AccountRef]:
        return pool

    def status(self, place: AccountRef, model: str) -> AccountStatus:
        return AccountStatus()

    def seconds_left(self, standing: AccountStatus) -> float:
        return 0.0

    def is_slow(self, place: AccountRef, pool: Sequence[AccountRef], model: str) -> bool:
        return False

    def at_capacity(self, place: AccountRef) -> bool:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePreview:
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
    state: HealthState
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExcludedChannel:
    """A channel that is no candidate."""

    channel: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePreview:
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
    candidates: tuple[CandidatePreview, ...] = ()
    others: tuple[ExcludedChannel, ...] = ()


def preview_route(
    config: Config,
    catalog: Catalog,
    router: Router,
    patterns: Sequence[str],
    requested: str,
    client_format: Format,
    health: HealthView,
) -> RoutePreview:
    """For a plain prompt of no known conversation, from a key that reaches what the patterns name.

    Where chance decides among equals, the heavier ones are told first.
    """
    model = catalog.resolve(requested)
    reach = router.access_for(patterns)
    plain = RoutePreview(
        sent=requested,
        model=model.id if model else None,
        format=client_format,
        patterns=tuple(patterns),
        decision="",
        others=tuple(_strangers(config, model, patterns, client_format)),
    )
    try:
        if client_format is Format.RESPONSES and Family.BETA not in reach.families:
            raise InvalidUrl("POST", "/v1/responses")
        route = router.route(requested, client_format, reach)
    except GatewayError as error:
        return _refused(plain, error, _why_refused(config, model, requested, error))
    line = order_candidates(
        route.candidates,
        Prompt(format=client_format, model=requested, turns=()),
        None,
        lambda pool: health.available(pool, route.model),
        lambda place, pool: health.is_slow(place, pool, route.model),
        lambda: 0.5,
    )
    usable = set(health.available(route.account_refs, route.model))
    stops = tuple(_stops(line, usable, client_format, health))
    plain = replace(plain, candidates=stops)
    first = next((stop for stop in stops if stop.turn == 1), None)
    if first is None:
        why = "every account that has the model is closed off or full"
        return _refused(plain, NoAvailableAccounts(), why)
    decision = f"{first.channel}/{first.account} would be asked for {first.upstream_model}."
    return replace(plain, decision=decision)


def _refused(plain: RoutePreview, error: GatewayError, why: str) -> RoutePreview:
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
) -> Iterator[ExcludedChannel]:
    if model is None:
        return
    named = any(matches(pattern, model) for pattern in patterns)
    for channel in config.channels:
        if model.id not in channel.models:
            yield ExcludedChannel(channel.name, f"does not have {model.id}")
        elif not named:
            yield ExcludedChannel(channel.name, f"has {model.id}, which the group does not reach")
        elif asked not in config.families.endpoints_for(model.family):
            closed = f"has {model.id}, but {asked} is closed to the {model.family} family"
            yield ExcludedChannel(channel.name, closed)


def _stops(
    line: Sequence[RankedCandidate], usable: Set[AccountRef], asked: Format, condition: HealthView
) -> Iterator[CandidatePreview]:
    turn = 0
    for choice in line:
        candidate = choice.candidate
        peers = [each.candidate for each in line if each.candidate.tier == candidate.tier]
        share = _share(candidate, peers)
        standing = condition.status(candidate.account_ref, candidate.model)
        how = _how(standing, condition.seconds_left(standing))
        taken = candidate.account_ref in usable and not condition.at_capacity(candidate.account_ref)
        turn += taken
        if taken:
            why = _taken(choice, turn, len(peers), standing.state, how)
        else:
            why = _passed(candidate, usable, how)
        yield CandidatePreview(
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


def _taken(
    choice: RankedCandidate, turn: int, peers: int, state: HealthState, how: str | None
) -> str:
    alone = choice.reason is RankReason.WEIGHT and peers == 1
    reason = "only candidate of its priority" if alone else choice.reason.value
    said = f"{'asked first' if turn == 1 else 'asked if that fails'}: {reason}"
    if state is HealthState.HALF_OPEN:
        return f"{said}; half-open: this request tests whether it is healthy"
    return f"{said}; {how}, but half of the accounts may always be asked" if how else said


def _passed(candidate: Candidate, usable: Set[AccountRef], how: str | None) -> str:
    if candidate.account_ref in usable:
        return "passed over: it has as many requests as it may have"
    return f"passed over: {how or 'half-open: another request tests whether it is healthy'}"


def _how(standing: AccountStatus, left: float) -> str | None:
    """How an account is that is closed off."""
    if standing.state is HealthState.DISABLED:
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
