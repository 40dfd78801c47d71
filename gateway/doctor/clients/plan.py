"""Which models reach which channel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gateway.config.schema import Config, Lifecycle
from gateway.core.formats import Format
from gateway.core.value import value


@value(kw_only=True)
class ChannelPlan:
    """`channel` is None if it is not known. Without models `reason` says why there are none."""

    channel: str | None
    models: tuple[str, ...]
    reason: str = ""


def plan_running(
    channels: Iterable[str],
    models: Sequence[str],
    route: Callable[[str], Mapping[str, Any]],
    wanted: Sequence[str],
) -> list[ChannelPlan]:
    """Find the models for which each channel of a running gateway is the first candidate. `route`
    returns the route preview of a model; `wanted` are the names of channels, none for all."""
    reached: dict[str, list[str]] = {name: [] for name in channels}
    refused: dict[str, str] = {}
    for model in models:
        preview = route(model)
        first = next((each for each in preview["candidates"] if each["turn"] == 1), None)
        if first is None:
            refused[model] = preview["decision"]
        else:
            reached.setdefault(first["channel"], []).append(model)
    plans = []
    for name, found in reached.items():
        if wanted and name not in wanted:
            continue
        reason = "" if found else "is the first candidate of none of these models"
        if not found and len(refused) == len(models):
            reason = next(iter(refused.values()), "the key can use no model")
        plans.append(ChannelPlan(channel=name, models=tuple(found), reason=reason))
    return plans


def plan_isolated(
    config: Config, format: Format, models: Sequence[str], wanted: Sequence[str]
) -> list[ChannelPlan]:
    """Find the models of each channel of a configuration that the format serves."""
    served = {
        model.id
        for model in config.models
        if model.lifecycle is not Lifecycle.RETIRED
        and format in config.families.endpoints_for(model.family)
    }
    plans = []
    for channel in config.channels:
        if wanted and channel.name not in wanted:
            continue
        found = tuple(id for id in channel.models if id in served and (not models or id in models))
        reason = "" if found else f"has none of the models that clients of {format} can request"
        plans.append(ChannelPlan(channel=channel.name, models=found, reason=reason))
    return plans
