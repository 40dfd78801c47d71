"""The fields of the forms: what a name, a pattern, an address or a limit may look like.

It must not know which form a field is in, nor whether what is named exists. Messages never repeat
what was sent: it may be a secret in the wrong place.
"""

from __future__ import annotations

import re
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network, ip_interface, ip_network
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gateway.config import validate_agent_pattern
from gateway.core.formats import Family

_FAMILY: Final = "family:"
_MULTIPLIER: Final = re.compile(r"\d{1,7}(\.\d{1,9})?", re.ASCII)
_HIGHEST_MULTIPLIER: Final = 1_000_000
_SHORTEST_KEY: Final = 20
_LATEST: Final = 2**53
_FORMULA: Final = ("=", "+", "-", "@")
_PLAIN_KEY: Final = re.compile(r"[\w.~+/-]+=*", re.ASCII)
_MAPPED: Final = IPv6Network("::ffff:0:0/96")


def _printable(text: str) -> str:
    if not text.isprintable():
        raise PydanticCustomError("unprintable", "must not have control characters")
    return text


def _trimmed(text: str) -> str:
    if text != text.strip():
        raise PydanticCustomError("blank", "must not begin or end with a blank")
    return text


def _no_formula(text: str) -> str:
    """Lists of keys are opened with spreadsheets, which would reckon with such a cell."""
    if text.startswith(_FORMULA):
        raise PydanticCustomError("formula", "must not begin with = + - or @")
    return text


def _group_name(name: str) -> str:
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise PydanticCustomError("group", "may have letters, digits, '.', '-' and '_' only")
    return name


def _pattern(pattern: str) -> str:
    if pattern.startswith(_FAMILY):
        family = pattern.removeprefix(_FAMILY)
        if family not in set(Family):
            raise PydanticCustomError("family", "must be family:alpha or family:beta")
    elif "," in pattern or any(character.isspace() for character in pattern):
        raise PydanticCustomError("pattern", "must be one id, glob (beta-*) or family:NAME")
    return pattern


def _network(text: str) -> str:
    try:
        return str(_unmapped(ip_network(text)))
    except ValueError:
        pass
    try:
        meant = ip_interface(text)
    except ValueError:
        raise PydanticCustomError(
            "network", "must be an address or a network, such as 10.1.2.3 or 10.0.0.0/8"
        ) from None
    raise PydanticCustomError(
        "network",
        "has an address inside its network: write {network} for all of it or {address}",
        {"network": str(meant.network), "address": str(meant.ip)},
    )


def _unmapped(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    """The network of IPv4 that IPv6 spells (`::ffff:`), where it does: what is compared with it is
    of IPv4 too."""
    if isinstance(network, IPv4Network) or not network.subnet_of(_MAPPED):
        return network
    address = network.network_address.packed[-4:]
    return IPv4Network((address, network.prefixlen - _MAPPED.prefixlen))


def _multiplier(text: str) -> str:
    if not _MULTIPLIER.fullmatch(text) or Decimal(text) > _HIGHEST_MULTIPLIER:
        raise PydanticCustomError(
            "multiplier", "must be a number from 0 to 1000000 with at most 9 decimals, such as 1.25"
        )
    whole, _, decimals = text.partition(".")
    decimals = decimals.rstrip("0")
    return f"{int(whole)}.{decimals}" if decimals else str(int(whole))


def _key(key: str) -> str:
    if len(key) < _SHORTEST_KEY:
        raise PydanticCustomError(
            "key", "must have at least {least} characters", {"least": _SHORTEST_KEY}
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise PydanticCustomError("key", "may have letters, digits and ASCII signs only")
    return key if _PLAIN_KEY.fullmatch(key) else _no_formula(key)


KeyName = Annotated[
    str,
    Field(min_length=1, max_length=100),
    AfterValidator(_trimmed),
    AfterValidator(_printable),
    AfterValidator(_no_formula),
]
GroupName = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_group_name)]
Note = Annotated[
    str, Field(min_length=1, max_length=500), AfterValidator(_trimmed), AfterValidator(_printable)
]
ModelPattern = Annotated[
    str,
    Field(min_length=1, max_length=200),
    AfterValidator(_trimmed),
    AfterValidator(_printable),
    AfterValidator(_pattern),
]
ModelPatterns = Annotated[list[ModelPattern], Field(min_length=1, max_length=1000)]

Network = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_network)]
Networks = Annotated[list[Network], Field(min_length=1, max_length=1000)]
"""Networks; a bare address is the network of that address alone."""

UserAgent = Annotated[
    str, Field(max_length=200), AfterValidator(_printable), AfterValidator(validate_agent_pattern)
]
UserAgents = Annotated[list[UserAgent], Field(min_length=1, max_length=100)]
"""Beginnings of user agents, or regular expressions behind `re:`; "" is the beginning of all."""

Multiplier = Annotated[str, AfterValidator(_multiplier)]
"""A decimal number as text: a binary one would not be what was written."""

Count = Annotated[int, Field(ge=0, le=10**12, strict=True)]
Budget = Annotated[int, Field(ge=0, le=10**18, strict=True)]
"""In micro-units."""

Timestamp = Annotated[int, Field(ge=0, le=_LATEST, strict=True)]
"""In Unix microseconds."""
QueryTimestamp = Annotated[int, Field(ge=0, le=_LATEST)]
"""The same where it may be written as text, as in a query."""

ExistingKey = Annotated[str, Field(max_length=500), AfterValidator(_key)]
"""A secret that exists already."""
