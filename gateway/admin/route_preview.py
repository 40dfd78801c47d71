"""Previews the routing of a request without sending it: which accounts would be used, in which
order and why, which are skipped, or what error the client would get."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.config.schema import Config, Lifecycle, Model
from gateway.core.formats import Family, Format, Lane
from gateway.core.prompt import Prompt
from gateway.errors import GatewayError, InvalidUrl, ModelNotFound, NoAvailableAccounts
from gateway.routing.catalog import Catalog, matches
from gateway.routing.circuit_breaker import AccountStatus, HealthState
from gateway.routing.health import AccountRef, Health
from gateway.routing.latency import LatencyTracker
from gateway.routing.ordering import RankedCandidate, RankReason, order_candidates
from gateway.routing.router import Candidate, Route, Router

ALL_MODELS: Final = ("*",)
"""Patterns without a group."""

_UNAVAILABLE: Final = {
    HealthState.RATE_LIMITED: "rate limited",
    HealthState.AUTH_FAILED: "auth failed",
    HealthState.CIRCUIT_OPEN: "circuit open",
}


@dataclass(frozen=True, slots=True)
class AccountStates:
    """The accounts at the monotonic time `now`. By default all are healthy: without a gateway."""

    health: Health = field(default_factory=Health)
    latency: LatencyTracker = field(default_factory=LatencyTracker)
    at_capacity: Callable[[AccountRef], bool] = lambda ref: False
    now: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePreview:
    """`turn` counts the candidates that would be used from 1; None is skipped. `share` is its part
    of the requests of its `rank` that have no session affinity."""

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
    """A channel without a candidate."""

    channel: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePreview:
    """`decision` is a sentence; `status`, `code` and `message` are the client's error if no account
    would be used."""

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
    states: AccountStates,
) -> RoutePreview:
    """Previews a simple prompt without session affinity, from a key whose group has these patterns.
    If the choice is random, the candidates of higher weight come first."""
    model = catalog.resolve(requested)
    access = router.access_for(patterns)
    preview = RoutePreview(
        sent=requested,
        model=model.id if model else None,
        format=client_format,
        patterns=tuple(patterns),
        decision="",
        others=tuple(_excluded_channels(config, model, patterns, client_format)),
    )
    try:
        if client_format is Format.RESPONSES:
            access.check_family(Family.BETA, "POST", "/v1/responses")
        route = router.route(requested, client_format, access)
    except GatewayError as error:
        return _rejected(preview, error, _why_rejected(config, model, requested, error))
    candidates = tuple(_candidates(route, client_format, states))
    preview = replace(preview, candidates=candidates)
    first = next((each for each in candidates if each.turn == 1), None)
    if first is None:
        why = "all accounts with this model are unavailable or at capacity"
        return _rejected(preview, NoAvailableAccounts(), why)
    decision = f"{first.channel}/{first.account} would be used, with {first.upstream_model}."
    return replace(preview, decision=decision)


def _rejected(preview: RoutePreview, error: GatewayError, why: str) -> RoutePreview:
    return replace(
        preview,
        decision=f"No account would be used: {why}.",
        status=error.status,
        code=error.code,
        message=error.message,
    )


def _why_rejected(config: Config, model: Model | None, requested: str, error: GatewayError) -> str:
    if isinstance(error, InvalidUrl):
        return "this endpoint needs a group that may use a model of the family beta"
    if model is None:
        matching = (each for each in config.models if requested in (each.id, *each.aliases))
        is_retired = any(each.lifecycle is Lifecycle.RETIRED for each in matching)
        return f"{requested} is retired" if is_retired else f"the catalog has no model {requested}"
    if isinstance(error, ModelNotFound):
        if not any(model.id in channel.models for channel in config.channels):
            return f"no channel has {model.id}"
        return f"no pattern of the group matches {model.id}"
    return error.detail or error.message


def _excluded_channels(
    config: Config, model: Model | None, patterns: Sequence[str], client_format: Format
) -> Iterator[ExcludedChannel]:
    if model is None:
        return
    allowed = any(matches(pattern, model) for pattern in patterns)
    served = client_format in config.families.endpoints_for(model.family)
    for channel in config.channels:
        if model.id not in channel.models:
            yield ExcludedChannel(channel.name, f"does not have {model.id}")
        elif not allowed:
            yield ExcludedChannel(channel.name, f"has {model.id}, which the group does not allow")
        elif not served:
            why = f"has {model.id}, but {client_format} is not enabled for family {model.family}"
            yield ExcludedChannel(channel.name, why)


def _candidates(
    route: Route, client_format: Format, states: AccountStates
) -> Iterator[CandidatePreview]:
    health, latency, now = states.health, states.latency, states.now
    ranked = order_candidates(
        route.candidates,
        Prompt(format=client_format, model=route.model, turns=()),
        None,
        lambda pool: health.available(pool, route.model, now),
        lambda ref, pool: latency.is_slow(ref, pool, route.model, now),
        lambda: 0.5,
    )
    available = set(health.available(route.account_refs, route.model, now))
    turn = 0
    for each in ranked:
        candidate, ref = each.candidate, each.candidate.account_ref
        status = health.status(ref, route.model, now)
        cause = _unavailable_cause(status, max(0.0, status.until - now))
        peers = [peer.candidate for peer in ranked if peer.candidate.tier == candidate.tier]
        used = ref in available and not states.at_capacity(ref)
        turn += used
        if used:
            why = _why_used(each, turn, len(peers), status.state, cause)
        elif ref in available:
            why = "skipped: at its maximum concurrency"
        else:
            why = f"skipped: {cause or 'half-open: another request is testing it'}"
        share = _share(candidate, peers)
        notes = [why, _lane_note(candidate, client_format)]
        if len(peers) > 1:
            notes.append(f"gets {share:.0%} as one of {len(peers)} with rank {candidate.tier + 1}")
        yield CandidatePreview(
            turn=turn if used else None,
            channel=candidate.channel,
            account=candidate.account,
            format=candidate.format,
            lane=candidate.lane,
            upstream_model=candidate.target.model,
            rank=candidate.tier + 1,
            share=share,
            state=status.state,
            why=tuple(notes),
        )


def _why_used(
    ranked: RankedCandidate, turn: int, peers: int, state: HealthState, cause: str | None
) -> str:
    only = ranked.reason is RankReason.WEIGHT and peers == 1
    reason = "only candidate of its priority" if only else ranked.reason.value
    text = f"{'first' if turn == 1 else 'fallback'}: {reason}"
    if state is HealthState.HALF_OPEN:
        return f"{text}; half-open: this request would test it"
    return f"{text}; {cause}, but half of the accounts always stay in use" if cause else text


def _unavailable_cause(status: AccountStatus, seconds: float) -> str | None:
    if status.state is HealthState.DISABLED:
        return status.reason
    name = _UNAVAILABLE.get(status.state)
    left = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return name and f"{name} for another {left} ({status.reason})"


def _lane_note(candidate: Candidate, client_format: Format) -> str:
    if candidate.lane is Lane.NATIVE:
        return f"native: same format ({client_format})"
    if candidate.format is client_format:
        return f"translated: the channel requires it, although its format is {client_format}, too"
    return f"translated from {client_format} to {candidate.format}"


def _share(candidate: Candidate, peers: Sequence[Candidate]) -> float:
    total = sum(peer.weight for peer in peers)
    return candidate.weight / total if total else 1 / len(peers)
