"""Which candidates serve a model in a format, and the right error where none does.

Pure: built once from a configuration, asked on every request. It must not know HTTP or accounts'
secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Final

from gateway.config import Account, Channel, Families, Model
from gateway.core.formats import Family, Format, Lane
from gateway.core.target import Target
from gateway.core.value import value
from gateway.errors import FormatNotServed, ModelNotFound
from gateway.routing.catalog import Catalog, build_target
from gateway.routing.health import AccountRef

_FORMAT_PREFERENCE: Final = {
    Family.ALPHA: (Format.MESSAGES, Format.RESPONSES, Format.CHAT),
    Family.BETA: (Format.RESPONSES, Format.CHAT, Format.MESSAGES),
}
"""Which format says most of what a family's models can, the best first."""


@value
class Candidate:
    """One way to ask: `format` is the upstream's, `model` the id in the catalog, `place` the names
    of channel and account.

    Candidates of the same `tier` serve equally well, and each takes its part by `weight`; of two
    tiers the lower number is asked first. `affine`: conversations stay with it.
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
        self.account_ref = self.channel, self.account  # type: ignore[misc]  # it becomes a value here


@value
class Route:
    """Everyone who can be asked for the model, an id of the catalog; the best tier first, inside a
    tier in the order of the configuration. There is at least one."""

    model: str
    candidates: tuple[Candidate, ...]
    account_refs: tuple[AccountRef, ...] = field(init=False)

    def __post_init__(self) -> None:
        places = tuple(candidate.account_ref for candidate in self.candidates)
        self.account_refs = places  # type: ignore[misc]  # it becomes a value here


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """What a group may use: the ids of models that some channel has, in catalog order."""

    models: tuple[str, ...]
    model_ids: frozenset[str]
    families: frozenset[Family]


class Router:
    """The routes of one configuration."""

    def __init__(self, catalog: Catalog, channels: Iterable[Channel], families: Families) -> None:
        self._catalog = catalog
        channels = tuple(channels)
        self._routes: dict[tuple[str, Format], Route] = {}
        self._served: set[str] = set()
        for model in catalog:
            having = [channel for channel in channels if model.id in channel.models]
            if not having:
                continue
            self._served.add(model.id)
            for asked in families.endpoints_for(model.family):
                self._routes[model.id, asked] = _route(model, asked, having)

    def access_for(self, patterns: Iterable[str]) -> ModelAccess:
        """The models that a group with these patterns can really use."""
        return self._access(self._catalog.matching_ids(patterns) & self._served)

    def restrict(self, access: ModelAccess, patterns: Iterable[str]) -> ModelAccess:
        """What of it these patterns leave."""
        return self._access(self._catalog.matching_ids(patterns) & access.model_ids)

    def _access(self, model_ids: Set[str]) -> ModelAccess:
        models = tuple(model for model in self._catalog if model.id in model_ids)
        return ModelAccess(
            tuple(model.id for model in models),
            frozenset(model_ids),
            frozenset(model.family for model in models),
        )

    def route(self, model_name: str, client_format: Format, access: ModelAccess) -> Route:
        """Who can be asked for the model behind the id as sent: first channels of the client's own
        format, then the same translated, then those whose format suits the model's family best;
        among these by the priority of channel and account.

        Raises `ModelNotFound` (Specification, Authentication: 5) or `ConvertRequestFailed` where
        the model's family may not be asked for in this format.
        """
        model = self._catalog.resolve(model_name)
        if model is None:
            raise ModelNotFound(model_name, detail="no such model in the catalog")
        if model.id not in access.model_ids:
            raise ModelNotFound(
                model_name, detail="the group does not reach it, or no channel has it"
            )
        route = self._routes.get((model.id, client_format))
        if route is None:
            raise FormatNotServed(detail=f"{client_format} is closed to {model.family} models")
        return route

    def first(self, sent: str, asked: Format, reach: ModelAccess) -> Candidate:
        """The best of the route, where it does not matter who else there is; raises as it does."""
        return self.route(sent, asked, reach).candidates[0]


_Rank = tuple[int, int, int]


def _route(model: Model, client_format: Format, channels: Iterable[Channel]) -> Route:
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
    return Route(model.id, tuple(sorted(candidates, key=lambda candidate: candidate.tier)))


def _candidate(
    model: Model, client_format: Format, channel: Channel, account: Account, tier: int
) -> Candidate:
    native = channel.format is client_format and channel.lane is Lane.NATIVE
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


def _rank(channel: Channel, account: Account, client_format: Format, family: Family) -> _Rank:
    """The least is asked first."""
    return _format_rank(channel, client_format, family), -channel.priority, -account.priority


def _format_rank(channel: Channel, client_format: Format, family: Family) -> int:
    if channel.format is client_format:
        return 0 if channel.lane is Lane.NATIVE else 1
    return 2 + _FORMAT_PREFERENCE[family].index(channel.format)
