"""The ledger's values: groups, tokens, exchanges, attempts. They must not know any database.

Times are Unix microseconds (`…_at`) or durations in microseconds (`…_us`). Frozen dataclasses
are for people who read; named tuples are for the hot path: in the order of the schema,
so that a batch of them is what the database driver takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from gateway.core.limits import UNLIMITED, Limits
from gateway.core.value import FastStrEnum


class TokenState(FastStrEnum):
    """A disabled key may be enabled again, a revoked one never."""

    ACTIVE = "active"
    DISABLED = "disabled"
    REVOKED = "revoked"


class UserAgentMode(FastStrEnum):
    """Whether a list of user agents is only watched, or others are refused."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


class ExchangeState(FastStrEnum):
    """How an exchange stands. `open` is the only state that ever changes, and it changes once."""

    RUNNING = "open"
    OK = "ok"
    ERROR = "error"
    CLIENT_GONE = "client_gone"
    CLIENT_SLOW = "client_slow"
    UPSTREAM_CUT = "upstream_cut"
    INTERRUPTED = "interrupted"
    REJECTED = "rejected"


UsageSource = Literal["upstream", "estimated", "none"]


@dataclass(frozen=True, slots=True)
class Group:
    """A named set of reachable models: `patterns` are globs over model ids, or `family:…`.

    `multiplier` is a decimal number as text, for it is exact. `user_agents` are prefixes, or
    regular expressions behind `re:`; None allows every one.
    """

    name: str
    patterns: tuple[str, ...]
    created_at: int
    multiplier: str = "1"
    limits: Limits = UNLIMITED
    user_agents: tuple[str, ...] | None = None
    user_agent_mode: UserAgentMode = UserAgentMode.ENFORCE


@dataclass(frozen=True, slots=True)
class Token:
    """The stored record of a key: its SHA-256 and what may be shown of it, never the key.

    A rotated key leaves its token as it is, totals and limits included: until `old_expires_at` the
    key of before (`old_…`) opens it too. Where `models` (patterns, as a group's), `addresses`
    (networks, as CIDR) or `user_agents` (as a group's) are None, all are allowed that the group
    allows. A `probe` may only look: models, counts of tokens, health.

    `first_…` is who used it first, `changed` in words who came later that was neither, the last of
    them at `changed_at`.

    The totals count every settled exchange, refused ones included; `input_tokens` and
    `output_tokens` are language-model tokens as in `gateway.core.events`, `cost_micro` is in
    micro-units (`gateway.core.limits`).
    """

    id: str
    name: str
    digest: bytes
    display: str
    group: str
    state: TokenState
    created_at: int
    revoked_at: int | None = None
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micro: int = 0
    last_used_at: int | None = None
    note: str | None = None
    expires_at: int | None = None
    probe: bool = False
    models: tuple[str, ...] | None = None
    addresses: tuple[str, ...] | None = None
    user_agents: tuple[str, ...] | None = None
    limits: Limits = UNLIMITED
    old_digest: bytes | None = None
    old_display: str | None = None
    old_expires_at: int | None = None
    first_used_at: int | None = None
    first_address: str | None = None
    first_agent: str | None = None
    changed_at: int | None = None
    changed: str | None = None


class Intent(NamedTuple):
    """The row of an exchange as it opens, before the first upstream call.

    `id` is ours, `req_` and 24 time-ordered characters. `model` is the id as the client sent it,
    `catalog_model` that of the catalog, where there is one. Fields from `channel` to `lane` are
    None where the exchange is refused before a candidate is known.

    `expected_input_tokens` and `expected_micro` are what the prompt alone is thought to cost: that
    is what an exchange is billed of which nothing more will ever be known. `tariff` says by which
    multipliers, `notes` what was odd and let pass.
    """

    id: str
    started_at: int
    token_id: str
    group_name: str
    endpoint: str
    format: str
    model: str | None
    channel: str | None
    account: str | None
    upstream_model: str | None
    lane: str | None
    stream: bool
    client_address: str | None
    user_agent: str | None
    client_request_id: str | None
    bytes_in: int
    catalog_model: str | None = None
    expected_input_tokens: int = 0
    expected_micro: int = 0
    tariff: str | None = None
    notes: str | None = None


class AttemptRow(NamedTuple):
    """One attempt as it ended: who was asked, what came of it and what followed.

    `format` and `lane` are those of the candidate, `reason` says why it was taken. `started_us`
    counts from the start of the exchange, the other times from that of the attempt. `status` is
    the upstream's own, None where none came; `error` is what it really said (redacted, at most
    8,192 characters). `verdict` is `ok`, or the reason that the judgement gives; `blame` and
    `effect` are the judgement's words too, and `next` is what was done then: `other account`,
    `same account`, `gave up`, `told the client`; all three are None where there is nothing to say.
    """

    channel: str
    account: str
    upstream_model: str
    format: str
    lane: str
    reason: str
    started_us: int
    first_event_us: int | None
    total_us: int
    status: int | None
    verdict: str
    blame: str | None = None
    effect: str | None = None
    next: str | None = None
    error: str | None = None


class Settlement(NamedTuple):
    """The end of an exchange. `id` and `token_id` are those of its intent.

    `status` is what the client got, `upstream_status` and `upstream_error` what the upstream
    said (redacted, at most 8,192 characters). `dropped` names what could not
    cross between formats. Where `usage_source` is `none` the counts are zero. `cost_micro` is what
    the exchange costs, rounded once, in micro-units.

    `affinity` is the clue by which the conversation was recognised, `affinity_kept` is `yes`, or
    `no: ` and why its account was left. `config_hash` tells the configuration that it ran under.
    `channel`, `account`, `upstream_model` and `lane` are those of the last candidate; with
    `channel` None all four stay as intended. `attempts` are in the order they were made in.
    """

    id: str
    token_id: str
    state: ExchangeState
    status: int | None
    stop_reason: str | None
    end_reason: str | None
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    usage_source: UsageSource
    first_event_us: int | None
    total_us: int
    bytes_out: int
    error_code: str | None
    upstream_status: int | None
    upstream_error: str | None
    dropped: str | None
    upstream_format: str | None = None
    affinity: str | None = None
    affinity_kept: str | None = None
    config_hash: str | None = None
    cache_write_1h_tokens: int = 0
    cost_micro: int = 0
    channel: str | None = None
    account: str | None = None
    upstream_model: str | None = None
    lane: str | None = None
    attempts: tuple[AttemptRow, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One row of the table `requests`, column by column: an intent and how it was settled.

    `attempts` is how many there were; `gateway.store.logs.attempts` reads them.
    """

    id: str
    started_at: int
    token_id: str
    group_name: str
    endpoint: str
    format: str
    model: str | None
    channel: str | None
    account: str | None
    upstream_model: str | None
    lane: str | None
    stream: bool
    client_address: str | None
    user_agent: str | None
    client_request_id: str | None
    bytes_in: int
    state: ExchangeState
    status: int | None
    stop_reason: str | None
    end_reason: str | None
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    usage_source: UsageSource
    first_event_us: int | None
    total_us: int | None
    bytes_out: int
    error_code: str | None
    upstream_status: int | None
    upstream_error: str | None
    dropped: str | None
    boot_id: str
    upstream_format: str | None = None
    affinity: str | None = None
    affinity_kept: str | None = None
    config_hash: str | None = None
    attempts: int = 0
    catalog_model: str | None = None
    expected_input_tokens: int = 0
    expected_micro: int = 0
    tariff: str | None = None
    notes: str | None = None
    cache_write_1h_tokens: int = 0
    cost_micro: int = 0


Entry = Intent | Settlement


HOUR_US: Final = 3_600_000_000
"""Microseconds of an hour; hours count from the beginning of Unix time."""


class HourDelta(NamedTuple):
    """What is added to the sums of one whole Unix hour: the settled exchanges of one token, group
    and model of the catalog ('' where there was none) that started in it.

    The times are sums over the `first_events` of them that had a first event, so that means can be
    taken over any hours, and what was refused at once blurs none.
    """

    hour: int
    token_id: str
    group_name: str
    model: str
    requests: int
    errors: int
    estimated: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_micro: int
    first_events: int = 0
    first_event_us: int = 0
    total_us: int = 0


class TokenDelta(NamedTuple):
    """What is added to the totals of one token; `used_at` is Unix µs."""

    token_id: str
    requests: int
    input_tokens: int
    output_tokens: int
    cost_micro: int
    used_at: int


def sanitize_text(text: str) -> str:
    """The text without lone surrogates and NULs."""
    return text.encode("utf-8", "replace").decode().replace("\0", "�")
