"""The candidates of a model, by client format, built once per configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from gateway.config.channel import Account, Channel
from gateway.config.schema import Families, Model
from gateway.core.formats import Endpoint, Family, Format, Lane
from gateway.core.target import Target
from gateway.core.value import value
from gateway.errors import FormatNotServed, InvalidUrl, ModelNotFound
from gateway.routing.catalog import Catalog, build_target
from gateway.routing.health import AccountRef

_FORMAT_PREFERENCE: Final = {
    Family.ALPHA: (Format.MESSAGES, Format.RESPONSES, Format.CHAT),
    Family.BETA: (Format.RESPONSES, Format.CHAT, Format.MESSAGES),
}
"""The formats that express a family's features, best first."""

_REMEMBERED: Final = 1024
"""Lists of patterns whose models are known: most keys have those of others."""


@value
class Candidate:
    """An account that can serve a request: `format` is the upstream's, `model` the catalog's id.

    Candidates of the same `tier` are equal and share the load by `weight`; a lower tier comes
    first. `uses_affinity`: conversations stay with it.
    """

    channel: str
    account: str
    format: Format
    lane: Lane
    model: str
    target: Target
    tier: int = 0
    weight: float = 1.0
    uses_affinity: bool = True
    account_ref: AccountRef = field(init=False)

    def __post_init__(self) -> None:
        self.account_ref = self.channel, self.account  # type: ignore[misc]  # still initialising


@value
class Route:
    """The candidates, at least one, for a model of the catalog, by tier, then as configured;
    `fallbacks` are the models that may serve what none of them serves. `health_of` is what accounts
    may be unable to serve: the model, or the model at an endpoint that passes through."""

    model: str
    candidates: tuple[Candidate, ...]
    fallbacks: tuple[str, ...] = ()
    health_of: str = ""
    account_refs: tuple[AccountRef, ...] = field(init=False)

    def __post_init__(self) -> None:
        refs = tuple(candidate.account_ref for candidate in self.candidates)
        self.account_refs = refs  # type: ignore[misc]  # still initialising
        self.health_of = self.health_of or self.model  # type: ignore[misc]  # likewise


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """The models that a key or a group can use and that have a channel; `models` are their ids in
    the order of the catalog. `families` are those that it may use, with a channel or without."""

    models: tuple[str, ...]
    model_ids: frozenset[str]
    families: frozenset[Family]

    def check_family(self, family: Family, method: str, path: str) -> None:
        """Raises `InvalidUrl` where the endpoint is only for keys that may use this family."""
        if family not in self.families:
            hint = f"this endpoint needs a key whose group may use a model of the family {family}"
            raise InvalidUrl(method, path, hint=hint)


class Router:
    def __init__(self, catalog: Catalog, channels: Iterable[Channel], families: Families) -> None:
        self._catalog = catalog
        self._channels = tuple(channels)
        self._endpoints = {family: families.endpoints_for(family) for family in Family}
        self._routes: dict[tuple[str, Format | Endpoint], Route] = {}
        named = {name for channel in self._channels for name in channel.models}
        served = [model.id for model in catalog if model.id in named]
        self._everything = ModelAccess(tuple(served), frozenset(served), frozenset(Family))
        self._restrict = lru_cache(_REMEMBERED)(self._find_access)

    def access_for(self, patterns: Iterable[str]) -> ModelAccess:
        """The available models of a group with these patterns."""
        return self._restrict(self._everything, tuple(patterns))

    def restrict(self, access: ModelAccess, patterns: Iterable[str]) -> ModelAccess:
        """The models of `access` that match the patterns too."""
        return self._restrict(access, tuple(patterns))

    def _find_access(self, access: ModelAccess, patterns: tuple[str, ...]) -> ModelAccess:
        model_ids = self._catalog.matching_ids(patterns) & access.model_ids
        families = self._catalog.admitted_families(patterns) & access.families
        models = tuple(model.id for model in self._catalog if model.id in model_ids)
        return ModelAccess(models, model_ids, families)

    def route(
        self, model_name: str, client_format: Format | Endpoint, access: ModelAccess
    ) -> Route:
        """Channels of the client's format first, then the same translated, then other formats by
        the preference of the model's family; among these by priority of channel and account. Of an
        endpoint that passes through only channels that have it, by priority alone.

        Raises `ModelNotFound` (Specification, Authentication: 5), or `FormatNotServed` if the
        format is closed to the model's family.
        """
        model = self._catalog.resolve(model_name)
        if model is None:
            raise ModelNotFound(model_name, detail="no such model in the catalog")
        if model.id not in access.model_ids:
            reason = "not among the models of the key's group"
            if model.id not in self._everything.model_ids:
                reason = "no channel has this model"
            raise ModelNotFound(model_name, detail=reason)
        route = self._routes.get((model.id, client_format))
        return self._first_route(model, client_format) if route is None else route

    def _first_route(self, model: Model, client_format: Format | Endpoint) -> Route:
        """Routes are made when they are first needed: thousands of models would stall a reload."""
        serving = [channel for channel in self._channels if model.id in channel.models]
        if isinstance(client_format, Endpoint):
            serving = [channel for channel in serving if client_format in channel.endpoints]
            if not serving:
                raise ModelNotFound(model.id, detail=f"no channel of it has {client_format}")
        elif client_format not in self._endpoints[model.family]:
            raise FormatNotServed(detail=f"{client_format} is closed to {model.family} models")
        route = self._routes[model.id, client_format] = _route(model, client_format, serving)
        return route


def _route(model: Model, client_format: Format | Endpoint, channels: Iterable[Channel]) -> Route:
    ranked = [
        (_rank(channel, account, client_format, model.family), channel, account)
        for channel in channels
        for account in channel.accounts
    ]
    tiers = {rank: tier for tier, rank in enumerate(sorted({rank for rank, _, _ in ranked}))}
    candidates = [
        _candidate(model, client_format, channel, account, tiers[rank])
        for rank, channel, account in ranked
    ]
    ordered = tuple(sorted(candidates, key=lambda candidate: candidate.tier))
    if isinstance(client_format, Endpoint):  # another model's embeddings, say, are no substitute
        return Route(model.id, ordered, health_of=f"{model.id} {client_format}")
    return Route(model.id, ordered, model.fallbacks)


def _candidate(
    model: Model, client_format: Format | Endpoint, channel: Channel, account: Account, tier: int
) -> Candidate:
    native = channel.format is client_format and channel.lane is Lane.NATIVE
    native = native or isinstance(client_format, Endpoint)
    return Candidate(
        channel=channel.name,
        account=account.name,
        format=channel.format,
        lane=Lane.NATIVE if native else Lane.TRANSLATED,
        model=model.id,
        target=build_target(channel, account, model),
        tier=tier,
        weight=channel.weight * account.weight,
        uses_affinity=channel.affinity,
    )


def _rank(
    channel: Channel, account: Account, client_format: Format | Endpoint, family: Family
) -> tuple[int, int, int]:
    """The lowest comes first."""
    if isinstance(client_format, Endpoint):
        format_rank = 0
    elif channel.format is client_format:
        format_rank = 0 if channel.lane is Lane.NATIVE else 1
    else:
        format_rank = 2 + _FORMAT_PREFERENCE[family].index(channel.format)
    return format_rank, -channel.priority, -account.priority
