"""The records of the database: groups, tokens, request rows, attempts, hourly sums, admins.

`gateway.store.schema` derives the tables from these classes. Times are Unix microseconds (`…_at`)
or durations in microseconds (`…_us`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from gateway.core.buffers import Buffers
from gateway.core.limits import UNLIMITED, Limits
from gateway.core.value import FastStrEnum

MAX_INTEGER: Final = 2**53

HOUR_US: Final = 3_600_000_000
STEP_US: Final = HOUR_US // 12
DAY_US: Final = 24 * HOUR_US
"""Microseconds of an hour, a step and a day; all are counted from the Unix epoch."""


def start_of_month(time_us: int) -> int:
    """Returns when the UTC month of a time began, in Unix microseconds."""
    day = datetime.fromtimestamp(time_us // 1_000_000, UTC).day
    return time_us - time_us % DAY_US - (day - 1) * DAY_US


class TokenState(FastStrEnum):
    """A disabled key can be enabled again; a revoked one cannot."""

    ACTIVE = "active"
    DISABLED = "disabled"
    REVOKED = "revoked"


class UserAgentMode(FastStrEnum):
    """Whether user agents that a list does not name are only noted, or refused."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


class OnSharedLoss(FastStrEnum):
    """The treatment of requests with limits of all replicas while their server cannot be reached:
    they are refused, or each replica has its share of the limits."""

    REFUSE = "refuse"
    SHARE = "share"


class ExchangeState(FastStrEnum):
    """The state of an exchange, which tells how it ended. `running` is the only state that changes,
    and it changes once."""

    RUNNING = "running"
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
    """A named set of models: `patterns` are globs over model ids, or `family:…`.

    `multiplier` is a decimal number as text, so that it is exact. `user_agents` are prefixes, or
    regular expressions after `re:`; None allows all. `store_replies`: later requests can continue
    replies by their ids. `on_shared_loss` concerns gateways of several replicas.
    """

    name: str
    patterns: tuple[str, ...]
    created_at: int
    multiplier: str = "1"
    limits: Limits = UNLIMITED
    user_agents: tuple[str, ...] | None = None
    user_agent_mode: UserAgentMode = UserAgentMode.ENFORCE
    store_replies: bool = True
    on_shared_loss: OnSharedLoss = OnSharedLoss.SHARE


@dataclass(frozen=True, slots=True)
class Token:
    """The stored record of a key: its SHA-256 and what may be shown of it, never the key.

    Rotating a key keeps its token, totals and limits included; until `old_expires_at` the previous
    key (`old_…`) is valid too. Where `models` (patterns, as a group's), `addresses` (CIDR networks)
    or `user_agents` (as a group's) are None, all are allowed that the group allows. A `probe` may
    only list models, count tokens and ask for health.

    `let_run`: if it is not active, its background responses may end by themselves. `trust` are the
    dimensions that its requests may state of themselves (`gateway.admission.dimensions`).
    `cost_in_usage`: its replies have their cost in their usage. `budget_…_per_…` are budgets of
    each end user and each session (`gateway.core.limits.DIMENSION_BUDGETS`).

    `first_…` is the first use; `changed` describes the latest use by another client, at
    `changed_at`.

    The totals count every settled exchange, rejected ones included; `input_tokens` and
    `output_tokens` are language-model tokens, `cost_micro` is in micro-units, `usd_micro` in
    millionths of a US dollar (`gateway.core.limits`).
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
    usd_micro: int = 0
    let_run: bool = False
    trust: tuple[str, ...] | None = None
    cost_in_usage: bool = False
    budget_day_per_user: int | None = None
    budget_usd_day_per_user: int | None = None
    budget_day_per_session: int | None = None
    budget_usd_day_per_session: int | None = None

    def has_expired(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now


class RequestRow(NamedTuple):
    """One exchange: a row of the table `requests`.

    It is inserted before the first upstream call, with the state `running` and `INTENT_FIELDS`, and
    updated once, at the end, with `OUTCOME_FIELDS`.

    `id` is ours, `req_` and 24 time-ordered characters. `model` is the id as the client sent it,
    `catalog_model` that of the catalog which serves it, if there is one. `channel`, `account`,
    `upstream_model` and `lane` are those of the last candidate, None if the exchange is rejected
    before one is chosen. `status` is the client's, `upstream_status` and `upstream_error` are the
    upstream's (the text redacted, at most 8,192 characters). `dropped` names what could not be
    converted between formats. Where `usage_source` is `none` the counts are zero. `boot_id` is set
    by the recorder.

    `affinity` is the source by which the conversation was recognised; `affinity_kept` is `yes`, or
    `no: ` and why its account was not used; None for a first turn. `config_hash` identifies the
    configuration. `attempts` is their number; `gateway.store.log.pages.attempts` reads them.
    `expected_input_tokens`, `expected_micro` and `expected_usd_micro` are the estimated tokens and
    cost of the prompt alone: an interrupted exchange is billed that. `tariff` has the multipliers
    and prices, `notes` the warnings. `cost_micro` is the cost of the exchange in micro-units,
    `usd_micro` in millionths of a US dollar, each rounded once.
    `error_message` is what the client was told, and what only operators may read of the reason.
    `upstream_id` is the upstream's id of its reply.
    `requests` is more than 1 where the row stands for other refused requests too
    (`gateway.store.log.merged_rejections`); its other fields are those of the last. The
    `DIMENSIONS` are what the request states of itself, where its key trusts that.
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
    status: int | None = None
    stop_reason: str | None = None
    end_reason: str | None = None
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    usage_source: UsageSource = "none"
    first_event_us: int | None = None
    total_us: int | None = None
    bytes_out: int = 0
    error_code: str | None = None
    upstream_status: int | None = None
    upstream_error: str | None = None
    dropped: str | None = None
    boot_id: str = ""
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
    error_message: str | None = None
    requests: int = 1
    web_searches: int = 0
    expected_usd_micro: int = 0
    usd_micro: int = 0
    end_user: str | None = None
    session: str | None = None
    agent: str | None = None
    tag: str | None = None
    upstream_id: str | None = None


DIMENSIONS: Final = ("end_user", "session", "agent", "tag")
BUDGET_DIMENSIONS: Final = ("end_user", "session")
"""Those of which each value can have budgets, as a holder of this kind."""


def dimension_holder_id(token_id: str, text: str) -> str:
    """The id of the holder that a value of a key's dimension is."""
    return f"{token_id} {text}"


def dimension_holders(row: RequestRow) -> Iterator[tuple[str, str]]:
    """Kind and id of each holder that a row is for beside its key and its group."""
    for name in BUDGET_DIMENSIONS:
        if (text := getattr(row, name)) is not None:
            yield name, dimension_holder_id(row.token_id, text)


INTENT_FIELDS: Final = (
    *RequestRow._fields[: RequestRow._fields.index("state")],
    *("catalog_model", "expected_input_tokens", "expected_micro", "expected_usd_micro"),
    *("tariff", "notes", *DIMENSIONS),
)

OUTCOME_FIELDS: Final = (
    *("channel", "account", "upstream_model", "lane", "catalog_model", "tariff", "notes"),
    *(name for name in RequestRow._fields if name not in (*INTENT_FIELDS, "boot_id")),
)


class AttemptRow(NamedTuple):
    """One attempt as it ended.

    `format` and `lane` are those of the candidate, `reason` is why it was chosen. `started_us`
    counts from the start of the exchange, the other times from that of the attempt. `status` is
    the upstream's, None without a response; `error` is the upstream's text (redacted, at most
    8,192 characters). `verdict` is `ok`, or the reason that the failure policy gives; `blame` and
    `effect` are the policy's too, and `next` is the step that followed: `other account`,
    `same account`, `gave up`, `told the client`. All three are None if they do not apply. `receipt`
    is a JSON object of what a failed attempt has used and cost, None where that is nothing; the row
    of the exchange has what it is billed for. Of one that succeeded it is what each of several
    upstream requests has used and cost, if prices depend on that.
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
    receipt: str | None = None


class SearchRow(NamedTuple):
    """One web search that the gateway ran. `started_us` counts from the start of the exchange;
    `results` are those that the client's limits admitted; `error` is why it failed."""

    query: str
    started_us: int
    total_us: int
    results: int = 0
    error: str | None = None


class LogEntry(NamedTuple):
    """An entry that the recorder writes: the row of an exchange as it begins (`running`) or as it
    ended, then with its attempts and searches in the order in which they were made."""

    row: RequestRow
    attempts: Sequence[AttemptRow] = ()
    searches: Sequence[SearchRow] = ()

    @property
    def is_intent(self) -> bool:
        return self.row.state is ExchangeState.RUNNING


class LinkRow(NamedTuple):
    """A link of the request log (`gateway.store.log.links`). `day` counts from the Unix epoch,
    `number` from 1 in each chain; `writer` is a boot's id, or `RECOVERY`. `previous` are digests
    of links and `ids` those of requests, with spaces between them; `digest` is of all the others.
    Digests are SHA-256, as hexadecimal digits."""

    day: int
    writer: str
    number: int
    written_at: int
    previous: str
    rows_digest: str
    ids: str
    digest: str = ""


class HourDelta(NamedTuple):
    """The amounts that are added to the sums of one Unix hour: the settled exchanges of one token,
    group and catalog model ('' where there is none) that started in it.

    The times are sums over the `first_events` exchanges that had a first event, so that means can
    be taken over any hours and rejected exchanges do not distort them.
    """

    hour: int
    token_id: str
    group_name: str
    model: str
    requests: int = 0
    errors: int = 0
    estimated: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    web_searches: int = 0
    cost_micro: int = 0
    usd_micro: int = 0
    first_events: int = 0
    first_event_us: int = 0
    total_us: int = 0


USAGE_COUNTS: Final = HourDelta._fields[4:]


class UsageCorrection(NamedTuple):
    """What was added to the dollars of an hourly sum when its requests got other prices."""

    hour: int
    token_id: str
    group_name: str
    model: str
    usd_micro: int


class TokenDelta(NamedTuple):
    """The amounts that are added to the totals of one token; `used_at` is Unix µs."""

    token_id: str
    requests: int
    input_tokens: int
    output_tokens: int
    cost_micro: int
    usd_micro: int
    used_at: int


TOKEN_TOTALS: Final = TokenDelta._fields[1:-1]


class StoredResponse(NamedTuple):
    """A reply that is kept, with the request that it answers: a row of `stored_replies`, whose key
    is token and id (`gateway.store.responses`).

    `format` is the client's. `previous_id` is the reply that this one continues, `root_id` the
    first of that chain, its own where it continues none. `request_id` is its row in the request
    log. `status` is the one that clients see; only replies with one of `CONTINUABLE` can be
    continued. `deleted`: the client has deleted it, but others continue it.

    `request` is the body as the client sent it; `reply` the bytes that the client received of the
    complete reply, None before it is complete; `events` a log of its stream. In memory they are as
    they are, in the database compressed. The sizes are set by the store: `request_size` and
    `reply_size` before compression, `stored_size` is what the row counts in the database.
    """

    token_id: str
    id: str
    format: str
    previous_id: str | None
    root_id: str
    request_id: str
    model: str
    status: str
    created_at: int
    expires_at: int
    background: bool = False
    deleted: bool = False
    request_size: int = 0
    reply_size: int = 0
    stored_size: int = 0
    request: bytes | Buffers = b""
    reply: bytes | None = None
    events: bytes | None = None


CONTINUABLE: Final = ("completed", "incomplete")
"""Statuses of stored responses that have ended well, as far as they go."""


class StoredItem(NamedTuple):
    """An item of a stored response's output, for requests that name it by its id."""

    token_id: str
    item_id: str
    reply_id: str


class Conversation(NamedTuple):
    """A list of items that responses read and extend. `metadata` is a JSON object; `size` is what
    its items count in the database, `text_size` before compression."""

    token_id: str
    id: str
    created_at: int
    updated_at: int
    metadata: str
    size: int = 0
    text_size: int = 0


class ConversationItem(NamedTuple):
    """`item` is its JSON text, compressed; `text_size` the size of that before. Positions increase
    in the order of the items, with gaps."""

    token_id: str
    conversation_id: str
    position: int
    id: str
    text_size: int
    item: bytes


class Role(FastStrEnum):
    """The role of an admin, which decides what the admin may do
    (`gateway.admin.access.permissions`)."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Scope(FastStrEnum):
    """The scope of a token of the admin API, which decides what it may do
    (`gateway.admin.access.permissions`)."""

    READ = "read"
    KEYS = "keys"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Admin:
    """A person who signs in. `epoch` is random and changes with the password and the role: sessions
    of another epoch have ended."""

    name: str
    role: Role
    password_digest: str
    epoch: str
    created_at: int
    password_at: int


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A console session; `digest` is the SHA-256 of its id, `epoch` the admin's at the sign-in."""

    digest: bytes
    created_at: int
    seen_at: int
    address: str
    agent: str
    admin: str
    epoch: str


@dataclass(frozen=True, slots=True)
class AdminToken:
    """A token of the admin API: the SHA-256 of the secret and what may be shown of it.
    `created_by` is an actor of the audit log."""

    id: str
    name: str
    digest: bytes
    display: str
    scope: Scope
    created_at: int
    created_by: str
    expires_at: int | None = None
    last_used_at: int | None = None
    last_address: str | None = None


class AuditRow(NamedTuple):
    """One action. `id` is `aud_` and 24 time-ordered characters; `before` and `after` are JSON
    objects of what differs, without secrets. `times` is more than 1 where the row stands for other
    failed attempts of the same kind too; its other fields are those of the last."""

    id: str
    at: int
    actor: str
    address: str | None
    action: str
    target: str | None
    before: str | None
    after: str | None
    times: int = 1


def sanitize_text(text: str) -> str:
    """The text without lone surrogates and NULs, which a database cannot hold."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def sanitize_value(value: Any) -> Any:
    """The value of a field without what a database cannot hold."""
    if isinstance(value, ExchangeState | bool):
        return value
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, int):
        return max(-MAX_INTEGER, min(value, MAX_INTEGER))
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """A value of the ledger, `stands`, that should be `counted`.

    `column` is `table.column`. A token's total has its token, an hourly sum (Unix hour) and a sum
    of traffic (`start` in Unix µs) their complete key, others have neither. What concerns one row
    has its id, what concerns a link `day/writer/number`.
    """

    column: str
    stands: int
    counted: int
    token_id: str | None = None
    hour: int | None = None
    group_name: str | None = None
    model: str | None = None
    start: int | None = None
    channel: str | None = None
    request_id: str | None = None
    link: str | None = None


def started_us(request_id: str) -> int:
    """Returns when the exchange of that id started (Unix µs); 0 for what is no such id."""
    try:
        return int(request_id.removeprefix("req_")[:14], 16)
    except ValueError:
        return 0
