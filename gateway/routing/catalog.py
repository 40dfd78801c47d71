"""The catalog in the form that requests need: an id as sent leads to its model by one lookup.

It must not know channels: what can be served is the router's question, what exists is this one's.

What is known of an upstream's model before it is asked, from the catalog and its channel.

It must not know what a wire format makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Final

from gateway.config import Account, Channel, Lifecycle, Model, Traits, default_catalog
from gateway.core.formats import Family, Format
from gateway.core.target import Target

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


_ORIGIN_DIGITS: Final = 8


def build_target(channel: Channel, account: Account, model: Model) -> Target:
    """The model as this channel has it.

    Each trait is the channel's, else the model's own, else that of the shipped catalog's model of
    the same id, else what the channel's format suggests, else the most that there is.
    """
    defaults = _catalog_defaults(model)
    traits = _format_defaults(channel.format, model.family)
    for source in (defaults.traits, model.traits, channel.traits):
        traits |= source.model_dump(exclude_none=True)
    return Target(
        model=channel.models[model.id],
        origin=_origin(channel, account, model.family),
        max_output=model.max_output or defaults.max_output,
        **traits,
    )


def _catalog_defaults(model: Model) -> Model:
    alike = (
        each for each in default_catalog() if (each.id, each.family) == (model.id, model.family)
    )
    return next(alike, model)


def _format_defaults(format: Format, family: Family) -> dict[str, Any]:
    return Traits(
        system_turns=format is not Format.MESSAGES,
        custom_tools=format is Format.RESPONSES,
        cache_marks=format is Format.MESSAGES,
        plain_max_tokens=format is Format.CHAT and family is Family.ALPHA,
    ).model_dump(exclude_none=True)


def _origin(channel: Channel, account: Account, family: Family) -> str:
    """Names whose signatures are accepted there, without telling who that is."""
    place = "\0".join((channel.name, account.name, family))
    return sha256(place.encode()).hexdigest()[:_ORIGIN_DIGITS]
