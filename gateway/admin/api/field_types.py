"""Types of form fields: names, patterns, networks, limits, secrets.

Messages never repeat the value: it may be a secret in the wrong field.
"""

from __future__ import annotations

import re
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network, ip_interface, ip_network
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gateway.admission.dimensions import parse_trust
from gateway.config.limits import validate_agent_pattern
from gateway.core.formats import Family

_FAMILY_PREFIX: Final = "family:"
_MULTIPLIER: Final = re.compile(r"\d{1,7}(\.\d{1,9})?", re.ASCII)
_MAX_MULTIPLIER: Final = 1_000_000
_MIN_KEY_LENGTH: Final = 20
_MAX_TIMESTAMP: Final = 2**53
_FORMULA_SIGNS: Final = ("=", "+", "-", "@")
_OPAQUE_KEY: Final = re.compile(r"[\w.~+/-]+=*", re.ASCII)
_IPV4_MAPPED: Final = IPv6Network("::ffff:0:0/96")


def _check_text(text: str) -> str:
    if text != text.strip():
        raise PydanticCustomError("blank", "must not begin or end with a blank")
    return _check_printable(text)


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise PydanticCustomError("unprintable", "must not have control characters")
    return text


def _check_no_formula(text: str) -> str:
    """Key lists are opened with spreadsheets, which evaluate such cells."""
    if text.startswith(_FORMULA_SIGNS):
        raise PydanticCustomError("formula", "must not begin with = + - or @")
    return text


def _check_group_name(name: str) -> str:
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise PydanticCustomError("group", "may have letters, digits, '.', '-' and '_' only")
    return name


def _check_pattern(pattern: str) -> str:
    if pattern.startswith(_FAMILY_PREFIX):
        if pattern.removeprefix(_FAMILY_PREFIX) not in set(Family):
            raise PydanticCustomError("family", "must be family:alpha or family:beta")
    elif "," in pattern or any(character.isspace() for character in pattern):
        raise PydanticCustomError("pattern", "must be one id, glob (beta-*) or family:NAME")
    return pattern


def _normalize_network(text: str) -> str:
    try:
        return str(_to_ipv4(ip_network(text)))
    except ValueError:
        pass
    try:
        interface = ip_interface(text)
    except ValueError:
        raise PydanticCustomError(
            "network", "must be an address or a network, such as 10.1.2.3 or 10.0.0.0/8"
        ) from None
    raise PydanticCustomError(
        "network",
        "has an address inside its network: write {network} for all of it or {address}",
        {"network": str(interface.network), "address": str(interface.ip)},
    )


def _to_ipv4(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    """An IPv4-mapped network as IPv4, like the addresses that it is compared with."""
    if isinstance(network, IPv4Network) or not network.subnet_of(_IPV4_MAPPED):
        return network
    address = network.network_address.packed[-4:]
    return IPv4Network((address, network.prefixlen - _IPV4_MAPPED.prefixlen))


def _normalize_multiplier(text: str) -> str:
    if not _MULTIPLIER.fullmatch(text) or Decimal(text) > _MAX_MULTIPLIER:
        raise PydanticCustomError(
            "multiplier", "must be a number from 0 to 1000000 with at most 9 decimals, such as 1.25"
        )
    integer, _, decimals = text.partition(".")
    decimals = decimals.rstrip("0")
    return f"{int(integer)}.{decimals}" if decimals else str(int(integer))


def _check_trust(text: str) -> str:
    try:
        parse_trust(text)
    except ValueError as error:
        raise PydanticCustomError("trust", "{reason}", {"reason": str(error)}) from None
    return text


def _check_key(key: str) -> str:
    if len(key) < _MIN_KEY_LENGTH:
        raise PydanticCustomError(
            "key", "must have at least {least} characters", {"least": _MIN_KEY_LENGTH}
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise PydanticCustomError("key", "may have letters, digits and ASCII signs only")
    return key if _OPAQUE_KEY.fullmatch(key) else _check_no_formula(key)


KeyName = Annotated[
    str,
    Field(min_length=1, max_length=100),
    AfterValidator(_check_text),
    AfterValidator(_check_no_formula),
]
GroupName = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_check_group_name)]
Note = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_check_text)]

ModelPattern = Annotated[
    str,
    Field(min_length=1, max_length=200),
    AfterValidator(_check_text),
    AfterValidator(_check_pattern),
]
ModelPatterns = Annotated[list[ModelPattern], Field(min_length=1, max_length=1000)]

Network = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_normalize_network)]
Networks = Annotated[list[Network], Field(min_length=1, max_length=1000)]
"""A bare address is the network of that address alone."""

UserAgent = Annotated[
    str,
    Field(max_length=200),
    AfterValidator(_check_printable),
    AfterValidator(validate_agent_pattern),
]
UserAgents = Annotated[list[UserAgent], Field(min_length=1, max_length=100)]
"""Prefixes of user agents ("" matches all), or regular expressions after `re:`."""

TrustedDimension = Annotated[str, Field(max_length=100), AfterValidator(_check_trust)]
TrustedDimensions = Annotated[list[TrustedDimension], Field(min_length=1, max_length=20)]

Multiplier = Annotated[str, AfterValidator(_normalize_multiplier)]
"""A decimal number as text, so that it stays exact."""

Count = Annotated[int, Field(ge=0, le=10**12, strict=True)]
Budget = Annotated[int, Field(ge=0, le=10**18, strict=True)]
"""An amount in millionths of its currency."""

Timestamp = Annotated[int, Field(ge=0, le=_MAX_TIMESTAMP, strict=True)]
"""A time in Unix microseconds."""
QueryTimestamp = Annotated[int, Field(ge=0, le=_MAX_TIMESTAMP)]
"""A `Timestamp` that may be text, as in a query."""

ExistingKey = Annotated[str, Field(max_length=500), AfterValidator(_check_key)]
"""A secret that clients already use."""
