"""What clients may use and what it costs, as far as the file says it.

Keys and groups have limits of their own, in the database. It must not know who counts.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Protocol

import re2
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gateway.config.types import ConfigModel, Seconds

REGEX_PREFIX: Final = "re:"
"""What stands before a pattern of user agents that is a regular expression and no prefix."""

Multiplier = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Limit = Annotated[int, Field(ge=1, le=10**12)]


def validate_agent_pattern(pattern: str) -> str:
    """A prefix of user agents, or `re:` and a regular expression."""
    if pattern.startswith(REGEX_PREFIX):
        try:
            compile_agent_pattern(pattern)
        except re2.error as error:
            why = error.args[0].decode("utf-8", "replace")
            raise PydanticCustomError(
                "regex", "is no regular expression: {why}", {"why": why}
            ) from None
    return pattern


def compile_agent_pattern(pattern: str) -> CompiledPattern:
    """The expression behind `re:`. RE2 takes time in proportion to the text, whatever the pattern:
    clients choose the text."""
    options = re2.Options()
    options.log_errors = False
    expression: CompiledPattern = re2.compile(pattern.removeprefix(REGEX_PREFIX), options)
    return expression


class CompiledPattern(Protocol):
    """What is used of a compiled expression."""

    def search(self, text: str) -> object | None: ...


AgentPattern = Annotated[str, Field(max_length=200), AfterValidator(validate_agent_pattern)]


class Rates(ConfigModel):
    """What a model's kinds of tokens cost, where a fresh input token costs 1."""

    completion: Multiplier = 1.0
    """A token of the reply, reasoning included."""
    cache_read: Multiplier = 1.0
    """A token of the prompt that the upstream had in its cache."""
    cache_write: Multiplier = 1.0
    """A token of the prompt that was put into the cache for five minutes."""
    cache_write_1h: Multiplier = 1.0
    """The same for an hour."""


class SharedLimits(ConfigModel):
    """What all clients together may use; each of them is unlimited where it is absent."""

    requests_per_minute: Limit | None = None
    """Requests in any minute."""
    tokens_per_minute: Limit | None = None
    """Input and output tokens in any minute."""
    concurrent: Limit | None = None
    """Requests at any moment."""
    max_wait: Seconds | None = None
    """How long a request may wait for its turn, whosever limit it is; absent: it is refused at
    once."""
    max_waiting: Annotated[int, Field(ge=1, le=10_000)] = 100
    """How many requests may wait at any moment, at most a quarter of them of one key."""


class UserAgents(ConfigModel):
    """Which clients may call; a group or a key may have a list of its own besides."""

    mode: Literal["observe", "enforce"] = "enforce"
    """enforce: others are refused; observe: they pass, and their log rows say so."""
    allow: Annotated[tuple[AgentPattern, ...], Field(min_length=1)] | None = None
    """Beginnings of user agents, or regular expressions behind re: ("" is every one); absent:
    everybody may call."""


class Money(ConfigModel):
    """How what is used is billed and shown. A unit is a fresh input token of a model with
    multiplier 1, used by a group with multiplier 1."""

    unit_price: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """What a unit costs, for display beside the units; absent: units alone are shown."""
    currency: Annotated[str, Field(min_length=1, max_length=8)] = "USD"
    """What unit_price is in."""
    bill_estimates: bool = True
    """Whether usage that no upstream has told is estimated and billed; such rows are marked."""


class Retention(ConfigModel):
    """How long the ledger keeps what happened."""

    keep: Seconds | None = None
    """How long rows of requests are kept, such as 90d; absent: for ever. Sums by the hour stay."""
