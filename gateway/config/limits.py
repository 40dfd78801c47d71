"""Options for limits, prices and retention; keys and groups have their own in the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import re2
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, WithJsonSchema
from pydantic_core import PydanticCustomError

from gateway.config.secrets import resolve_key
from gateway.config.types import Bytes, ConfigModel, Seconds

REGEX_PREFIX: Final = "re:"
"""Marks a user agent pattern as a regular expression; others are prefixes."""

Multiplier = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Limit = Annotated[int, Field(ge=1, le=10**12)]


def compile_agent_pattern(pattern: str) -> Callable[[str], object | None]:
    """Searches with the expression after `re:`. RE2 runs in linear time: clients choose the text
    that it searches."""
    options = re2.Options()
    options.log_errors = False
    search: Callable[[str], object | None]
    search = re2.compile(pattern.removeprefix(REGEX_PREFIX), options).search
    return search


def validate_agent_pattern(pattern: str) -> str:
    if pattern.startswith(REGEX_PREFIX):
        try:
            compile_agent_pattern(pattern)
        except re2.error as error:
            why = error.args[0].decode("utf-8", "replace")
            text = "is no regular expression: {why}"
            raise PydanticCustomError("regex", text, {"why": why}) from None
    return pattern


AgentPattern = Annotated[str, Field(max_length=200), AfterValidator(validate_agent_pattern)]


class Rates(ConfigModel):
    """The price of each kind of token of a model; a fresh input token costs 1."""

    completion: Multiplier = 1.0
    """An output token, reasoning included."""
    cache_read: Multiplier = 1.0
    """An input token that the upstream read from its cache."""
    cache_write: Multiplier = 1.0
    """An input token that was written to the cache for five minutes."""
    cache_write_1h: Multiplier = 1.0
    """An input token that was written to the cache for one hour."""


class LongInputPrices(ConfigModel):
    """US dollars for a million tokens of requests with more input than `tokens`."""

    tokens: Limit
    """Input tokens, cached ones included, above which a whole request costs this."""
    input: Multiplier
    """Uncached input."""
    output: Multiplier
    """Output, reasoning included."""
    cache_read: Multiplier | None = None
    """Input that the upstream read from its cache; null: in the proportion that it has to input
    in shorter requests."""
    cache_write: Multiplier | None = None
    """Input that was written to the cache for five minutes; null: in the same way."""
    cache_write_1h: Multiplier | None = None
    """Input that was written to the cache for one hour; null: in the same way."""
    reasoning: Multiplier | None = None
    """Output that is reasoning; null: as output."""


def _parse_time(value: Any) -> Any:
    """Minutes of a text such as 16:30, which YAML reads as that number."""
    if isinstance(value, str) and re2.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d|24:00", value):
        hours, _, minutes = value.partition(":")
        return int(hours) * 60 + int(minutes)
    return value


TimeOfDay = Annotated[
    int,
    Field(ge=0, le=1440),
    BeforeValidator(_parse_time),
    WithJsonSchema({"type": ["string", "integer"], "pattern": r"^\d{1,2}:\d{2}$"}),
]
"""Minutes after midnight, in UTC."""


class DayHours(ConfigModel):
    """A part of each day, by the start of requests, in which the prices of tokens are others."""

    start: TimeOfDay
    """When it starts, in UTC: "16:30"."""
    end: TimeOfDay
    """When it ends, in UTC; before start: on the next day."""
    factor: Multiplier
    """The factor of the prices, such as 0.5."""


def _check_ascending(prices: tuple[LongInputPrices, ...]) -> tuple[LongInputPrices, ...]:
    if any(later.tokens <= earlier.tokens for earlier, later in pairwise(prices)):
        raise PydanticCustomError("above", "tokens must ascend")
    return prices


ServiceTier = Literal[
    "priority", "fast", "ultrafast", "flex", "batch", "scale", "performance", "reserved"
]


class TokenPrices(ConfigModel):
    """US dollars for a million tokens of each kind."""

    input: Multiplier
    """Uncached input."""
    output: Multiplier
    """Output, reasoning included."""
    cache_read: Multiplier | None = None
    """Input that the upstream read from its cache; null: as input."""
    cache_write: Multiplier | None = None
    """Input that was written to the cache for five minutes; null: as input."""
    cache_write_1h: Multiplier | None = None
    """Input that was written to the cache for one hour; null: as cache_write."""
    above: Annotated[
        tuple[LongInputPrices, ...], Field(max_length=8), AfterValidator(_check_ascending)
    ] = ()
    """The prices of requests with more input, the least first: {tokens: 200000, input: 4, ...}."""
    service_tiers: Mapping[ServiceTier, Multiplier] = {}
    """Factors of the prices by service tier, such as {priority: 2, flex: 0.5}: of the tier that the
    reply states, else of the one that was requested; fast costs what priority does unless it is
    stated. Other tiers have the factor 1."""
    reasoning: Multiplier | None = None
    """Output that is reasoning; null: as output."""
    searches: Multiplier | None = None
    """1,000 web searches, of the upstream or the gateway; null: money.web_search_price."""
    requests: Multiplier = 0.0
    """1,000 requests to the upstream, besides their tokens."""
    hours: Annotated[tuple[DayHours, ...], Field(max_length=8)] = ()
    """Factors of the prices of tokens by time of day: {start: "16:30", end: "00:30", factor: 0.5};
    the first that matches."""


class LaterPrices(TokenPrices):
    """The prices from a date on."""

    valid_from: date = Field(alias="from")
    """The day from whose start on, in UTC, they apply to the requests that start then."""

    @property
    def start(self) -> int:
        """Unix microseconds."""
        day = datetime(self.valid_from.year, self.valid_from.month, self.valid_from.day, tzinfo=UTC)
        return int(day.timestamp()) * 1_000_000


def _check_dates(changes: tuple[LaterPrices, ...]) -> tuple[LaterPrices, ...]:
    if any(later.valid_from <= earlier.valid_from for earlier, later in pairwise(changes)):
        raise PydanticCustomError("changes", "dates must ascend")
    return changes


class DatedPrices(TokenPrices):
    """US dollars for a million tokens of each kind, now and from dates on."""

    changes: Annotated[
        tuple[LaterPrices, ...], Field(max_length=100), AfterValidator(_check_dates)
    ] = ()
    """The prices from a date on, the earliest first: {from: "2027-01-01", input: 3, output: 12}.
    Each states all that it does not leave at its default."""

    def at(self, time: int) -> TokenPrices:
        """Returns the prices of requests that start then (Unix microseconds)."""
        return next((each for each in reversed(self.changes) if each.start <= time), self)


class SharedLimits(ConfigModel):
    """Limits on all clients together; absent: unlimited."""

    requests_per_minute: Limit | None = None
    """Requests in any minute."""
    tokens_per_minute: Limit | None = None
    """Input and output tokens in any minute."""
    concurrent: Limit | None = None
    """Requests in flight."""
    max_wait: Seconds | None = None
    """The time for which a request may wait in the queue when a limit is reached, whether of the
    gateway, a group or a key; absent: it is rejected immediately."""
    max_waiting: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Maximum number of requests in the queue; one key can have at most a quarter of them."""
    background: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Maximum number of background responses that run at once."""
    background_per_key: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Maximum number of background responses of one key that run at once."""


class UserAgents(ConfigModel):
    """The clients that may call; a group or a key can have its own list in addition."""

    mode: Literal["observe", "enforce"] = "enforce"
    """enforce: other clients are rejected; observe: they pass, with a note in their log rows."""
    allow: Annotated[tuple[AgentPattern, ...], Field(min_length=1)] | None = None
    """User agent prefixes ("": every one), or regular expressions after re:; absent: all pass."""


class Money(ConfigModel):
    """The billing and display of usage: in units, by multipliers, and in US dollars, by the prices
    of models. A unit is a fresh input token of a model with multiplier 1, used by a group with
    multiplier 1."""

    unit_price: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The price of a unit. In USD it is the price of models that state none; in another currency it
    is for display only. Absent: only units are shown of such models."""
    currency: Annotated[str, Field(min_length=1, max_length=8)] = "USD"
    """The currency of unit_price."""
    web_searches: Multiplier = 0.0
    """The price of 1,000 web searches in units, whether an upstream or the gateway searches. The
    group's multiplier applies, the model's does not."""
    web_search_price: Multiplier | None = None
    """The price of 1,000 web searches in USD, times the group's multiplier; null: that of their
    units."""
    charge: Literal["final", "all"] = "final"
    """What a request costs: the attempt that has served it, or also those that failed before and
    have cost something. The receipts of attempts state it in either case."""
    bill_estimates: bool = True
    """Whether usage that no upstream reported is estimated and billed; such rows are marked."""


class EndUsers(ConfigModel):
    """The end users of requests in the request log."""

    keep: Seconds | None = None
    """The time for which they are kept, such as 30d, where rows are kept longer; absent: as long as
    rows."""
    hash_key: Annotated[SecretStr, AfterValidator(resolve_key)] | None = None
    """With a key, HMACs are kept in place of the end users; a reference or the secret itself, as
    for accounts; absent: end users are kept as they are."""

    @property
    def hash_secret(self) -> str | None:
        return self.hash_key.get_secret_value() or None if self.hash_key is not None else None


class RequestLog(ConfigModel):
    """The time for which the request log is kept, and how much of it may wait while it cannot be
    written."""

    keep: Seconds | None = None
    """The time for which rows of requests are kept, such as 90d; absent: forever. Hourly totals
    stay."""
    end_users: EndUsers = EndUsers()
    """The end users in rows of keys that trust what requests state of them."""
    max_unwritten: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    """Entries of the log (two per request) that may wait to be written; beyond it new requests are
    refused, and the gateway is not ready."""
    max_write_delay: Seconds = 30
    """The time for which entries may wait while none can be written; beyond it, too, new requests
    are refused, and the gateway is not ready."""


class AuditLog(ConfigModel):
    """The time for which the audit log is kept."""

    keep: Seconds | None = 400 * 86_400
    """The time for which its rows are kept, such as 90d; null: forever."""


class StoredReplies(ConfigModel):
    """The storage of replies, so that later requests can continue them by their ids. A group can
    switch it off for itself."""

    store: bool = True
    """Whether replies of the responses endpoint are stored, where the client does not decline it
    with "store": false; false: every previous_response_id is rejected."""
    ttl: Annotated[Seconds, Field(ge=60)] = 30 * 86400
    """The time for which a reply can be retrieved and continued, such as 30d."""
    max_per_key: Bytes = 256 * 2**20
    """Maximum size of what is stored for one key, compressed, in bytes; beyond it whole
    conversations are deleted, least recently continued first. "256MiB" is accepted too."""
    max_total: Bytes = 16 * 2**30
    """Maximum size of what is stored for all keys together, compressed, in bytes; beyond it
    conversations of the key that has most are deleted. "16GiB" is accepted too."""
