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
from gateway.errors import ConvertRequestFailed, ModelNotFound
from gateway.routing.catalog import Catalog
from gateway.routing.health import Place
from gateway.routing.targets import target

_PREFERRED: Final = {
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
    affine: bool = True
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        self.place = self.channel, self.account  # type: ignore[misc]  # it becomes a value here


@value
class Route:
    """Everyone who can be asked for the model, an id of the catalog; the best tier first, inside a
    tier in the order of the configuration. There is at least one."""

    model: str
    candidates: tuple[Candidate, ...]
    places: tuple[Place, ...] = field(init=False)

    def __post_init__(self) -> None:
        places = tuple(candidate.place for candidate in self.candidates)
        self.places = places  # type: ignore[misc]  # it becomes a value here


@dataclass(frozen=True, slots=True)
class Reach:
    """What a group may use: the ids of models that some channel has, in catalog order."""

    models: tuple[str, ...]
    members: frozenset[str]
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
            for asked in families.open(model.family):
                self._routes[model.id, asked] = _route(model, asked, having)

    def reach(self, patterns: Iterable[str]) -> Reach:
        """The models that a group with these patterns can really use."""
        return self._reach(self._catalog.reachable(patterns) & self._served)

    def within(self, reach: Reach, patterns: Iterable[str]) -> Reach:
        """What of it these patterns leave."""
        return self._reach(self._catalog.reachable(patterns) & reach.members)

    def _reach(self, members: Set[str]) -> Reach:
        models = tuple(model for model in self._catalog if model.id in members)
        return Reach(
            tuple(model.id for model in models),
            frozenset(members),
            frozenset(model.family for model in models),
        )

    def route(self, sent: str, asked: Format, reach: Reach) -> Route:
        """Who can be asked for the model behind the id as sent: first channels of the client's own
        format, then the same translated, then those whose format suits the model's family best;
        among these by the priority of channel and account.

        Raises `ModelNotFound` (Specification, Authentication: 5) or `ConvertRequestFailed` where
        the model's family may not be asked for in this format.
        """
        model = self._catalog.resolve(sent)
        if model is None:
            raise ModelNotFound(sent, detail="no such model in the catalog")
        if model.id not in reach.members:
            raise ModelNotFound(sent, detail="the group does not reach it, or no channel has it")
        route = self._routes.get((model.id, asked))
        if route is None:
            raise ConvertRequestFailed(detail=f"{asked} is closed to {model.family} models")
        return route

    def first(self, sent: str, asked: Format, reach: Reach) -> Candidate:
        """The best of the route, where it does not matter who else there is; raises as it does."""
        return self.route(sent, asked, reach).candidates[0]


_Rank = tuple[int, int, int]


def _route(model: Model, asked: Format, channels: Iterable[Channel]) -> Route:
    ranked = [
        (_rank(channel, account, asked, model.family), channel, account)
        for channel in channels
        for account in channel.accounts
    ]
    tiers = {rank: tier for tier, rank in enumerate(sorted({rank for rank, _, _ in ranked}))}
    candidates = [
        _candidate(model, asked, channel, account, tiers[rank]) for rank, channel, account in ranked
    ]
    return Route(model.id, tuple(sorted(candidates, key=lambda candidate: candidate.tier)))


def _candidate(
    model: Model, asked: Format, channel: Channel, account: Account, tier: int
) -> Candidate:
    native = channel.format is asked and channel.lane is Lane.NATIVE
    return Candidate(
        channel=channel.name,
        account=account.name,
        format=channel.format,
        lane=Lane.NATIVE if native else Lane.TRANSLATED,
        model=model.id,
        target=target(channel, account, model),
        tier=tier,
        weight=channel.weight * account.weight,
        affine=channel.affinity,
    )


def _rank(channel: Channel, account: Account, asked: Format, family: Family) -> _Rank:
    """The least is asked first."""
    return _likeness(channel, asked, family), -channel.priority, -account.priority


def _likeness(channel: Channel, asked: Format, family: Family) -> int:
    if channel.format is asked:
        return 0 if channel.lane is Lane.NATIVE else 1
    return 2 + _PREFERRED[family].index(channel.format)
