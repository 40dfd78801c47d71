"""What is known of an upstream's model before it is asked, from the catalog and its channel.

It must not know what a wire format makes of it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from gateway.config import Account, Channel, Model, Traits, default_catalog
from gateway.core.formats import Family, Format
from gateway.core.target import Target

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
