"""The catalog in the form that requests need: an id as sent leads to its model by one lookup.

It must not know channels: what can be served is the router's question, what exists is this one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final

from gateway.config import Lifecycle, Model

_LONG_CONTEXT_SUFFIX: Final = "[1m]"  # coding agents append it to any id to ask for the long window
_FAMILY_PREFIX: Final = "family:"


class Catalog:
    """The models that exist, in the order of the configuration; retired ones do not exist."""

    __slots__ = ("_by_name", "_models")

    def __init__(self, models: Iterable[Model]) -> None:
        self._models = tuple(model for model in models if model.lifecycle != Lifecycle.RETIRED)
        self._by_name = {alias: model for model in self._models for alias in model.aliases}
        self._by_name |= {model.id: model for model in self._models}

    @classmethod
    def of(cls, models: Iterable[Model]) -> Catalog:
        """The catalog of `Config.models`."""
        return cls(models)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models)

    def resolve(self, name: str) -> Model | None:
        """The model that a client means by `sent`: its id or an alias, case counts, and a
        trailing `[1m]` does not."""
        return self._by_name.get(name) or self._by_name.get(name.removesuffix(_LONG_CONTEXT_SUFFIX))

    def matching_ids(self, patterns: Iterable[str]) -> frozenset[str]:
        """The ids that at least one of a group's patterns names."""
        patterns = tuple(patterns)
        return frozenset(
            model.id
            for model in self._models
            if any(matches(pattern, model) for pattern in patterns)
        )


def matches(pattern: str, model: Model) -> bool:
    """Whether a group's pattern names the model: a glob over ids (`beta-*`) or `family:beta`."""
    if pattern.startswith(_FAMILY_PREFIX):
        return pattern.removeprefix(_FAMILY_PREFIX) == model.family
    return fnmatchcase(model.id, pattern)
