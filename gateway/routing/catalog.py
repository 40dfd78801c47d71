"""The models of the configuration, and the traits of an upstream's model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from hashlib import sha256
from typing import Any, Final

from gateway.config.channel import Account, Channel, Traits
from gateway.config.limits import DatedPrices, Money
from gateway.config.schema import Config, Lifecycle, Model, default_catalog
from gateway.core.formats import Family, Format
from gateway.core.target import Target

_LONG_CONTEXT_SUFFIX: Final = "[1m]"  # agents append it to any id to request the long context
_FAMILY_PREFIX: Final = "family:"
_ANY: Final = "*"
_ORIGIN_DIGITS: Final = 8


class Catalog:
    """The models in the order of the configuration, without retired ones, `money` of it, and of the
    channels that have their own the `prices`, by channel."""

    def __init__(
        self, models: Iterable[Model], money: Money | None = None, channels: Iterable[Channel] = ()
    ) -> None:
        self.money = money or Money()
        self.prices = {channel.name: channel.prices for channel in channels if channel.prices}
        self._models = tuple(model for model in models if model.lifecycle != Lifecycle.RETIRED)
        names = [(alias, model) for model in self._models for alias in model.aliases]
        self._by_name = {alias: model for alias, model in names if _ANY not in alias}
        self._by_name |= {model.id: model for model in self._models}
        self._patterns = [(alias, model) for alias, model in names if _ANY in alias]

    @classmethod
    def of(cls, config: Config) -> Catalog:
        return cls(config.models, config.money, config.channels)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models)

    def resolve(self, name: str) -> Model | None:
        """The model of an id or an alias; case-sensitive, ignoring a trailing `[1m]`."""
        model = self._by_name.get(name)
        if model is not None:
            return model
        name = name.removesuffix(_LONG_CONTEXT_SUFFIX)
        return self._by_name.get(name) or next(
            (model for pattern, model in self._patterns if fnmatchcase(name, pattern)), None
        )

    def own_prices(self, model_id: str) -> dict[str, DatedPrices]:
        """Returns the prices that channels have of the model."""
        prices = self.prices.items()
        return {channel: price[model_id] for channel, price in prices if model_id in price}

    def matching_ids(self, patterns: Iterable[str]) -> frozenset[str]:
        """The ids of the models that match any of a group's patterns."""
        patterns = tuple(patterns)
        return frozenset(
            model.id
            for model in self._models
            if any(matches(pattern, model) for pattern in patterns)
        )

    def admitted_families(self, patterns: Iterable[str]) -> frozenset[Family]:
        """The families of which the patterns admit models, whether or not the catalog has them."""
        return frozenset(
            family for pattern in patterns for family in Family if self._admits(pattern, family)
        )

    def _admits(self, pattern: str, family: Family) -> bool:
        prefix = f"{family}-"  # of the ids of its models (Specification, "Naming convention")
        return (
            pattern.startswith(prefix)
            or pattern == f"{_FAMILY_PREFIX}{family}"
            or fnmatchcase(prefix, pattern)
            or any(model.family is family and matches(pattern, model) for model in self._models)
        )


def matches(pattern: str, model: Model) -> bool:
    """A pattern is a glob of ids (`beta-*`) or a family (`family:beta`)."""
    if pattern.startswith(_FAMILY_PREFIX):
        return pattern.removeprefix(_FAMILY_PREFIX) == model.family
    return fnmatchcase(model.id, pattern)


def build_target(channel: Channel, account: Account, model: Model) -> Target:
    """The model at this channel.

    Each trait is the channel's, else the model's, else that of the default catalog's model of the
    same id, else the default of the channel's format.
    """
    traits = _format_defaults(channel.format, model.family).model_dump(exclude_none=True)
    traits |= stated_traits(model) | channel.traits.model_dump(exclude_none=True)
    # A hash, because clients can read it in the signatures of reasoning.
    origin = "\0".join((channel.name, account.name, model.family))
    return Target(
        model=channel.models[model.id],
        origin=sha256(origin.encode()).hexdigest()[:_ORIGIN_DIGITS],
        max_output=model.max_output or _default_of(model).max_output,
        **traits,
    )


def stated_traits(model: Model) -> dict[str, Any]:
    """The traits that the configuration states of a model, else the default catalog."""
    traits: dict[str, Any] = {}
    for source in (_default_of(model).traits, model.traits):
        if source.model_fields_set:
            traits |= source.model_dump(exclude_none=True)
    return traits


def stated_traits_of(model: Model, *names: str) -> list[Any]:
    """Some of the same, None where nothing is stated: ten times as fast."""
    own, default = model.traits, _default_of(model).traits
    if default is own and not own.model_fields_set:  # nearly all of a long list
        return [None] * len(names)
    values = [getattr(own, name) for name in names]
    if None in values and default is not own:
        pairs = zip(values, names, strict=True)
        return [getattr(default, name) if each is None else each for each, name in pairs]
    return values


def _default_of(model: Model) -> Model:
    """The default catalog's model of the same id and family, else the model."""
    return _defaults().get((model.id, model.family), model)


@cache
def _defaults() -> dict[tuple[str, Family], Model]:
    return {(model.id, model.family): model for model in default_catalog()}


def _format_defaults(format: Format, family: Family) -> Traits:
    return Traits(
        system_turns=format is not Format.MESSAGES,
        custom_tools=format is Format.RESPONSES,
        cache_marks=format is Format.MESSAGES,
        plain_max_tokens=format is Format.CHAT and family is Family.ALPHA,
    )
