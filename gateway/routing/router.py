"""Which candidate serves a model in a format, and the right error where none does.

Pure: built once from a configuration, asked on every request. It must not know HTTP or accounts'
secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.config import Channel
from gateway.core.formats import Family, Format, Lane
from gateway.errors import ConvertRequestFailed, ModelNotFound
from gateway.routing.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to ask: `model` is the name that the upstream knows it by."""

    channel: str
    account: str
    format: Format
    model: str
    lane: Lane


@dataclass(frozen=True, slots=True)
class Reach:
    """What a group may use: the ids of models that some channel has, in catalog order."""

    models: tuple[str, ...]
    members: frozenset[str]
    families: frozenset[Family]


class Router:
    """The routes of one configuration."""

    def __init__(self, catalog: Catalog, channels: Iterable[Channel]) -> None:
        self._catalog = catalog
        self._native: dict[tuple[str, Format], Candidate] = {}
        self._served: set[str] = set()
        for channel in channels:
            if not channel.accounts:
                continue
            lane = Lane.TRANSLATED if channel.lane is Lane.TRANSLATED else Lane.NATIVE
            for model, upstream_model in channel.models.items():
                self._served.add(model)
                candidate = Candidate(
                    channel.name, channel.accounts[0].name, channel.format, upstream_model, lane
                )
                if lane is Lane.NATIVE:
                    self._native.setdefault((model, channel.format), candidate)

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
        """Who is asked for the model behind the id as sent.

        Raises `ModelNotFound` (Specification, Authentication: 5) or `ConvertRequestFailed` where
        the model's channels speak other formats only.
        """
        model = self._catalog.resolve(sent)
        if model is None:
            raise ModelNotFound(sent, detail="no such model in the catalog")
        if model.id not in reach.members:
            raise ModelNotFound(sent, detail="the group does not reach it, or no channel has it")
        candidate = self._native.get((model.id, asked))
        if candidate is None:
            raise ConvertRequestFailed(detail=f"no channel of {model.id} speaks {asked}")
        return candidate
