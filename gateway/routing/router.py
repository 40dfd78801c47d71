"""Which candidate serves a model in a format, and the right error where none does.

Pure: built once from a configuration, asked on every request. It must not know HTTP or accounts'
secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.config import Channel, Families, Model
from gateway.core.formats import Family, Format, Lane
from gateway.core.target import Target
from gateway.errors import ConvertRequestFailed, ModelNotFound
from gateway.routing.catalog import Catalog
from gateway.routing.targets import target

_PREFERRED: Final = {
    Family.ALPHA: (Format.MESSAGES, Format.RESPONSES, Format.CHAT),
    Family.BETA: (Format.RESPONSES, Format.CHAT, Format.MESSAGES),
}
"""Which format says most of what a family's models can, the best first."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to ask: `format` is the upstream's, `model` the id in the catalog."""

    channel: str
    account: str
    format: Format
    lane: Lane
    model: str
    target: Target


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
        self._routes: dict[tuple[str, Format], Candidate] = {}
        self._served: set[str] = set()
        for model in catalog:
            having = [channel for channel in channels if model.id in channel.models]
            if not having:
                continue
            self._served.add(model.id)
            for asked in families.open(model.family):
                self._routes[model.id, asked] = _best(model, asked, having)

    def reach(self, patterns: Iterable[str]) -> Reach:
        """The models that a group with these patterns can really use."""
        members = self._catalog.reachable(patterns) & self._served
        models = tuple(model for model in self._catalog if model.id in members)
        return Reach(
            tuple(model.id for model in models),
            frozenset(members),
            frozenset(model.family for model in models),
        )

    def route(self, sent: str, asked: Format, reach: Reach) -> Candidate:
        """Who is asked for the model behind the id as sent: a channel of the client's own format
        where there is one, else the one whose format suits the model's family best; of several, the
        first of the configuration.

        Raises `ModelNotFound` (Specification, Authentication: 5) or `ConvertRequestFailed` where
        the model's family may not be asked for in this format.
        """
        model = self._catalog.resolve(sent)
        if model is None:
            raise ModelNotFound(sent, detail="no such model in the catalog")
        if model.id not in reach.members:
            raise ModelNotFound(sent, detail="the group does not reach it, or no channel has it")
        candidate = self._routes.get((model.id, asked))
        if candidate is None:
            raise ConvertRequestFailed(detail=f"{asked} is closed to {model.family} models")
        return candidate


def _best(model: Model, asked: Format, channels: Iterable[Channel]) -> Candidate:
    """Of equals, `min` takes the first."""
    channel = min(channels, key=lambda channel: _rank(channel, asked, model.family))
    native = channel.format is asked and channel.lane is Lane.NATIVE
    account = channel.accounts[0]
    return Candidate(
        channel.name,
        account.name,
        channel.format,
        Lane.NATIVE if native else Lane.TRANSLATED,
        model.id,
        target(channel, account, model),
    )


def _rank(channel: Channel, asked: Format, family: Family) -> int:
    if channel.format is asked:
        return 0 if channel.lane is Lane.NATIVE else 1
    return 2 + _PREFERRED[family].index(channel.format)
