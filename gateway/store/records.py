"""The ledger's values: groups, tokens, exchanges, attempts. They must not know any database.

Times are Unix microseconds (`…_at`) or durations in microseconds (`…_us`). Frozen dataclasses
are for people who read; named tuples are for the hot path: in the order of the schema,
so that a batch of them is what the database driver takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple


class TokenState(StrEnum):
    ACTIVE = "active"
    REVOKED = "revoked"


class ExchangeState(StrEnum):
    """How an exchange stands. `open` is the only state that ever changes, and it changes once.

    `client_slow`, the client that read too slowly, is a documented state that nothing sets yet.
    """

    OPEN = "open"
    OK = "ok"
    ERROR = "error"
    CLIENT_GONE = "client_gone"
    CLIENT_SLOW = "client_slow"
    UPSTREAM_CUT = "upstream_cut"
    INTERRUPTED = "interrupted"
    REJECTED = "rejected"


UsageSource = Literal["upstream", "none"]


@dataclass(frozen=True, slots=True)
class Group:
    """A named set of reachable models: `patterns` are globs over model ids, or `family:…`."""

    name: str
    patterns: tuple[str, ...]
    created_at: int


@dataclass(frozen=True, slots=True)
class Token:
    """The stored record of a key: its SHA-256 and what may be shown of it, never the key.

    The totals count every settled exchange, refused ones included; `input_tokens` and
    `output_tokens` are language-model tokens as in `gateway.core.usage`.
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
    last_used_at: int | None = None


class Intent(NamedTuple):
    """The row of an exchange as it opens, before the first upstream call.

    `id` is ours, `req_` and 24 time-ordered characters. Fields from `channel` to `lane` are None
    where the exchange is refused before a candidate is known.
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


class Attempted(NamedTuple):
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
    cross between formats. Where `usage_source` is `none` the counts are zero.

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
    channel: str | None = None
    account: str | None = None
    upstream_model: str | None = None
    lane: str | None = None
    attempts: tuple[Attempted, ...] = ()


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
