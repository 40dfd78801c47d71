"""Whether an upstream refuses a prompt because it is too long, in whatever words it says so.

It must not know how a client is told.

What follows from a failed attempt: whose fault it was, who is asked next, how health takes it.

It must not know how an attempt is made, nor what the client is told.

The operator's rules about failures, in the form that judges go by.

It must not know what a rule leads to.

Upstreams that answer nothing but streams say so in many ways. It must not know what follows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.config import FailureRule
from gateway.core.events import Failure, FailureKind
from gateway.core.events import FailureKind as _K
from gateway.core.value import FastStrEnum

_OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_OVERFLOW_PATTERN: Final = re.compile(
    r"prompt is too long"
    r"|input length and `max_tokens` exceed context limit"
    r"|maximum context length"
    r"|exceeds? the (?:available context size|(?:model's )?context (?:window|length))",
    re.IGNORECASE,
)
_OUTPUT_TOO_LARGE: Final = re.compile(r"max_(?:completion_|output_)?tokens\W[^.]*is too large")
"""The prompt would fit: what does not is the length that was asked of the reply."""

_COUNT_PATTERNS: Final = (
    re.compile(r"prompt is too long: (?P<used>\d+) tokens > (?P<most>\d+) maximum"),
    re.compile(r"\((?P<used>\d+) tokens\) exceeds the available context size \((?P<most>\d+)"),
    re.compile(r'"n_prompt_tokens":\s*(?P<used>\d+),\s*"n_ctx":\s*(?P<most>\d+)'),
)
_LIMIT_PATTERN: Final = re.compile(r"maximum context length is (\d+) tokens")
_TOKEN_COUNT: Final = re.compile(r"(\d+) (?:\w+ )?tokens")


@dataclass(frozen=True, slots=True)
class ContextOverflow:
    """`used` and `most` are in tokens, both None where they are not told."""

    used: int | None = None
    limit: int | None = None


def context_overflow(failure: Failure) -> ContextOverflow | None:
    """The overflow that a failure speaks of; None where it is about something else."""
    message = failure.message
    if not _OVERFLOW_CODES.intersection(
        (failure.code, failure.type)
    ) and not _OVERFLOW_PATTERN.search(message):
        return None
    if _OUTPUT_TOO_LARGE.search(message):
        return None
    for text in (message, failure.body or ""):
        for pattern in _COUNT_PATTERNS:
            if match := pattern.search(text):
                return ContextOverflow(int(match["used"]), int(match["most"]))
    return _parse_total(message)


def _parse_total(message: str) -> ContextOverflow:
    """Vendors of chat name the maximum first, then what was asked for, in parts and as a total."""
    limit = _LIMIT_PATTERN.search(message)
    if limit is None:
        return ContextOverflow()
    most = int(limit[1])
    used = max((int(count) for count in _TOKEN_COUNT.findall(message, limit.end())), default=0)
    return ContextOverflow(used, most) if used > most else ContextOverflow()


MAX_SAME_ACCOUNT_WAIT: Final = 3.0
"""Seconds up to which it is worth waiting for the same account."""

CONTENT_POLICY: Final = "content policy"
"""The reason of what an upstream will not talk about."""

_MAX_SEARCHED_CHARS: Final = 2000
"""Characters of a message that are searched."""


class Blame(FastStrEnum):
    """Whose fault it is. `transport` is the line to the channel, which its accounts share."""

    CLIENT = "client"
    ACCOUNT = "account"
    CAPACITY = "capacity"
    TRANSPORT = "transport"
    UPSTREAM = "upstream"


class Failover(FastStrEnum):
    """Whether other accounts may be asked; `once`: one more, and no third."""

    NEVER = "never"
    ONCE = "once"
    YES = "yes"


class AccountPenalty(FastStrEnum):
    """It counts as a failure of the account with this model, cools it there, opens the circuit
    there at once, or bans the account for all models."""

    NONE = "none"
    FAILURE = "failure"
    RATE_LIMITED = "cool"
    CIRCUIT_OPEN = "open"
    AUTH_FAILED = "ban"


@dataclass(frozen=True, slots=True)
class SameAccountRetry:
    """One more attempt on the same account after so many seconds, give or take the part `spread`
    of them; `last_resort`: only where there is no other account."""

    after: float
    jitter: float = 0.0
    last_resort: bool = False

    def wait(self, random_value: float) -> float:
        """Seconds; `chance` is in [0, 1)."""
        return self.after * (1 + self.jitter * (2 * random_value - 1))


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` names the row of the table. `seconds` is how long the effect lasts, None where that
    is left to health; `hint` is when the upstream itself wants to be asked again, in seconds.
    `alert`: a person has to mend something."""

    reason: str
    blame: Blame
    failover: Failover
    penalty: AccountPenalty
    same_account_retry: SameAccountRetry | None = None
    penalty_seconds: float | None = None
    retry_after: float | None = None
    alert: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """What an operator knows better: what the upstream says with one of the statuses (none: any)
    and fitting every pattern is to be blamed on `blame`, and closes the account off for `seconds`.
    `type` and `code` must fit as a whole, `text` is looked for in the message and in the body."""

    blame: Blame
    status: frozenset[int] = frozenset()
    type: re.Pattern[str] | None = None
    code: re.Pattern[str] | None = None
    text: re.Pattern[str] | None = None
    seconds: float | None = None

    def matches(self, failure: Failure) -> bool:
        text = f"{failure.message[:_MAX_SEARCHED_CHARS]}\n{failure.body or ''}"
        return (
            failure.kind is _K.RESPONSE
            and (not self.status or failure.status in self.status)
            and (self.type is None or bool(self.type.fullmatch(failure.type or "")))
            and (self.code is None or bool(self.code.fullmatch(failure.code or "")))
            and (self.text is None or bool(self.text.search(text)))
        )


_Predicate = Callable[[Failure], object]
_Penalty = tuple[AccountPenalty, float | None]


@dataclass(frozen=True, slots=True)
class _Row:
    reason: str
    predicate: _Predicate
    blame: Blame
    failover: Failover
    penalty: _Penalty
    retry: SameAccountRetry | None = None
    alert: bool = False


class FailurePolicy:
    """Where none of the rules fits, the table decides."""

    __slots__ = ("_rows",)

    def __init__(self, rules: Sequence[PolicyRule] = ()) -> None:
        self._rows = (*(_rule_row(number, rule) for number, rule in enumerate(rules, 1)), *TABLE)

    def classify(self, failure: Failure, *, committed: bool = False) -> Verdict:
        """`committed`: some of the reply has left, so that nobody may be asked again."""
        row = next(row for row in self._rows if row.predicate(failure))
        failover, (penalty, seconds) = row.failover, row.penalty
        if committed:
            failover, (penalty, seconds) = (
                _NEVER,
                _NONE if penalty is AccountPenalty.NONE else _FAILURE,
            )
        hint = failure.retry_after
        retry = None if committed else _same_account_retry(row.retry, hint)
        return Verdict(row.reason, row.blame, failover, penalty, retry, seconds, hint, row.alert)


def _same_account_retry(
    retry: SameAccountRetry | None, hint: float | None
) -> SameAccountRetry | None:
    if retry is not None and hint is not None:
        retry = SameAccountRetry(hint, last_resort=retry.last_resort)
    return retry if retry is not None and retry.after <= MAX_SAME_ACCOUNT_WAIT else None


def _rule_row(number: int, rule: PolicyRule) -> _Row:
    failover, penalty, retry = _RULE_DEFAULTS.get(rule.blame, (_YES, AccountPenalty.FAILURE, None))
    if penalty is AccountPenalty.FAILURE and rule.seconds is not None:
        penalty = AccountPenalty.CIRCUIT_OPEN
    return _Row(
        f"rule {number}", rule.matches, rule.blame, failover, (penalty, rule.seconds), retry
    )


def _is_kind(*kinds: _K) -> _Predicate:
    return lambda failure: failure.kind in kinds


def _has_status(*statuses: int) -> _Predicate:
    return lambda failure: failure.status in statuses


def _matches_text(*names: str, pattern: str = r"(?!)") -> _Predicate:
    """One of the names as code or type, or the words in the message."""
    search = re.compile(pattern, re.IGNORECASE).search
    return lambda f: f.code in names or f.type in names or search(f.message, 0, _MAX_SEARCHED_CHARS)


def _is_web_page(failure: Failure) -> bool:
    """A whole answer, hence with a status, but no reply: a login page, say."""
    return failure.kind is _K.MALFORMED and failure.status is not None


# What may stand before words that close an account: no quotes, for behind them a client may speak,
# and no client may close an account.
_UNQUOTED = r"""\A[^'"`:\n]{0,60}"""
_IS_ACCOUNT_CLOSED = _matches_text(
    *("account_deactivated", "deactivated_workspace"),
    pattern=_UNQUOTED
    + r"(?:(?:account|organization|workspace|api key)(?: associated with [\w ]{1,40})?"
    r" (?:has been|was|is) (?:deactivated|disabled|suspended|terminated|revoked)"
    r"|deactivated (?:account|organization|workspace)|access was terminated)",
)
_IS_QUOTA_EXHAUSTED = _matches_text(
    *("insufficient_quota", "insufficient_user_quota", "billing_error"),
    *("billing_not_active", "billing_hard_limit_reached"),
    pattern=_UNQUOTED + r"(?:credit balance is too low|billing hard limit has been reached"
    r"|insufficient (?:\w+ )?(?:quota|balance|credits?|funds))",
)
_IS_INVALID_KEY = _matches_text(
    *("invalid_api_key", "authentication_error"),
    pattern=_UNQUOTED + r"(?:(?:incorrect|invalid) api key|api key not valid)",
)
_IS_CONTENT_POLICY = _matches_text(
    *("content_policy_violation", "content_filter", "invalid_prompt", "moderation_blocked"),
    *("data_inspection_failed", "sensitive_words_detected"),
    pattern=r"content (?:management |moderation |filtering |usage )?policy|input was flagged"
    r"|flagged as potentially violating|rejected (?:by|as a result of) our safety system"
    r"|violat\w+ (?:of )?(?:our |the )?(?:safety|usage) polic",
)
_IS_OVERLOADED = _matches_text("overloaded_error", "server_is_overloaded", "slow_down")

_RETRY_SOON = SameAccountRetry(1.0, jitter=0.5)
_RETRY_IF_HINTED = SameAccountRetry(math.inf, last_resort=True)

_CLIENT, _ACCOUNT, _CAPACITY, _TRANSPORT, _UPSTREAM = Blame
_NEVER, _ONCE, _YES = Failover
_NONE, _FAILURE, _RATE_LIMITED, _AUTH_FAILED = (
    (each, None) for each in AccountPenalty if each is not AccountPenalty.CIRCUIT_OPEN
)
_CIRCUIT_OPEN, _QUOTA_EXHAUSTED = (
    (AccountPenalty.CIRCUIT_OPEN, 300.0),
    (AccountPenalty.AUTH_FAILED, 300.0),
)

_RULE_DEFAULTS: Final[dict[Blame, tuple[Failover, AccountPenalty, SameAccountRetry | None]]] = {
    Blame.CLIENT: (_NEVER, AccountPenalty.NONE, None),
    Blame.ACCOUNT: (_YES, AccountPenalty.AUTH_FAILED, None),
    Blame.CAPACITY: (_YES, AccountPenalty.RATE_LIMITED, _RETRY_IF_HINTED),
}

# fmt: off
TABLE: Final[tuple[_Row, ...]] = (
    # What became of the line, or of the bytes on it.
    _Row("no connection",     _is_kind(_K.CONNECT),         _TRANSPORT, _YES,   _FAILURE),
    _Row("TLS failed",        _is_kind(_K.TLS),             _TRANSPORT, _YES,   _CIRCUIT_OPEN, alert=True),
    _Row("no answer",         _is_kind(_K.DISCONNECT),      _TRANSPORT, _ONCE,  _FAILURE),
    _Row("broken off",        _is_kind(_K.TRUNCATED),             _TRANSPORT, _YES,   _FAILURE),
    _Row("timed out",         _is_kind(_K.TIMEOUT),         _UPSTREAM,  _ONCE,  _FAILURE),
    _Row("empty reply",       _is_kind(_K.EMPTY),           _UPSTREAM,  _YES,   _FAILURE),
    _Row("too large",         _is_kind(_K.TOO_LARGE, _K.EVENT_TOO_LARGE), _UPSTREAM, _NEVER, _FAILURE),
    _Row("a page, no reply",  _is_web_page,                  _UPSTREAM,  _ONCE,  _CIRCUIT_OPEN),
    _Row("unreadable",        _is_kind(_K.MALFORMED),         _UPSTREAM,  _YES,   _FAILURE),
    # What the upstream says, whatever the status.
    _Row("account closed",    _IS_ACCOUNT_CLOSED,                   _ACCOUNT,   _YES,   _AUTH_FAILED, alert=True),
    _Row("quota spent",       _IS_QUOTA_EXHAUSTED,                    _ACCOUNT,   _YES,   _QUOTA_EXHAUSTED),
    _Row("context overflow",  context_overflow,                  _CLIENT,    _NEVER, _NONE),
    _Row(CONTENT_POLICY,      _IS_CONTENT_POLICY,                   _CLIENT,    _NEVER, _NONE),
    _Row("key refused",       _IS_INVALID_KEY,                      _ACCOUNT,   _YES,   _AUTH_FAILED, alert=True),
    _Row("overloaded",        _IS_OVERLOADED,                     _CAPACITY,  _YES,   _FAILURE, _RETRY_SOON),
    # What the status alone says.
    _Row("redirected",        _has_status(*range(300, 400)), _UPSTREAM,  _NEVER, _NONE, alert=True),
    _Row("refused",           _has_status(400, 404, 413, 415, 422), _CLIENT, _NEVER, _NONE),
    _Row("key refused",       _has_status(401),              _ACCOUNT,   _YES,   _AUTH_FAILED, alert=True),
    _Row("quota spent",       _has_status(402),              _ACCOUNT,   _YES,   _QUOTA_EXHAUSTED),
    _Row("access forbidden",  _has_status(403),              _ACCOUNT,   _ONCE,  _AUTH_FAILED, alert=True),
    _Row("timed out there",   _has_status(408, 504, 524),    _UPSTREAM,  _NEVER, _FAILURE),
    _Row("rate limited",      _has_status(429),              _CAPACITY,  _YES,   _RATE_LIMITED, _RETRY_IF_HINTED),
    _Row("overloaded",        _has_status(529),              _CAPACITY,  _YES,   _FAILURE, _RETRY_SOON),
    _Row("refused otherwise", _has_status(*range(400, 500)), _UPSTREAM,  _ONCE,  _NONE),
    _Row("server error",      _is_kind(_K.RESPONSE),            _UPSTREAM,  _YES,   _FAILURE),
)
"""The first row that fits decides."""


def compile_rules(rules: Iterable[FailureRule]) -> tuple[PolicyRule, ...]:
    """The rules of `Config.rules`, in their order: the first that fits decides."""
    return tuple(
        PolicyRule(
            blame=Blame(rule.blame),
            status=frozenset(rule.status),
            type=rule.type,
            code=rule.code,
            text=rule.text,
            seconds=rule.seconds,
        )
        for rule in rules
    )


_STREAM_ONLY_PATTERN: Final = re.compile(
    r"stream\W{0,4}(?:\w+ ){0,4}(?:must|should|has to|needs? to) be (?:set to )?\W?true"
    r"|(?:only|must|requires?)\W+(?:\w+\W+){0,4}stream(?:ing|ed|s)?\b"
    r"|stream(?:ing)?\W+(?:\w+\W+){0,2}(?:only|is required|required|true)"
    r"|for non-streaming calls|not support http call"
    r"|non-?stream\w*\W+(?:\w+\W+){0,6}(?:not|unsupported|unavailable)",
    re.IGNORECASE,
)
_STREAM_ONLY_STATUSES: Final = frozenset({400, 404, 405, 406, 415, 422, 501, 503})
_MAX_STREAM_ONLY_CHARS: Final = 2000


def requires_streaming(failure: Failure) -> bool:
    """Whether the upstream would have answered the same prompt had it asked for a stream."""
    if failure.kind is not FailureKind.RESPONSE or failure.status not in _STREAM_ONLY_STATUSES:
        return False
    text = f"{failure.message[:_MAX_STREAM_ONLY_CHARS]}\n{(failure.body or '')[:_MAX_STREAM_ONLY_CHARS]}"
    return bool(_STREAM_ONLY_PATTERN.search(text)) or failure.param == "stream"
