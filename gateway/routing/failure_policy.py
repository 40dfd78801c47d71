"""Classifies failed attempts: the blame, failover, the account's penalty, retries."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.config.channel import FailureRule
from gateway.core.events import Failure
from gateway.core.events import FailureKind as _K
from gateway.core.value import FastStrEnum
from gateway.routing.refusals import refused_proof

MAX_SAME_ACCOUNT_WAIT: Final = 3.0
"""Seconds; a longer wait is not worth a retry on the same account."""

CONTENT_POLICY: Final = "content policy"
MODEL_NOT_FOUND: Final = "model not found"
NO_CREDENTIAL: Final = "no credential"

_MAX_SEARCHED_CHARS: Final = 2000
"""Characters of a message or an error body."""


class Blame(FastStrEnum):
    """The cause of a failure. TRANSPORT is the network path, shared by a channel's accounts."""

    CLIENT = "client"
    ACCOUNT = "account"
    CAPACITY = "capacity"
    TRANSPORT = "transport"
    UPSTREAM = "upstream"


class Failover(FastStrEnum):
    """Whether other accounts can be tried; ONCE: one more only."""

    NEVER = "never"
    ONCE = "once"
    YES = "yes"


class AccountPenalty(FastStrEnum):
    """FAILURE counts towards opening the circuit. RATE_LIMITED and CIRCUIT_OPEN apply to the
    account with this model, AUTH_FAILED to all its models, as does RATE_LIMITED of a second model.
    """

    NONE = "none"
    FAILURE = "failure"
    RATE_LIMITED = "cool"
    CIRCUIT_OPEN = "open"
    AUTH_FAILED = "ban"


@dataclass(frozen=True, slots=True)
class SameAccountRetry:
    """One more attempt on the same account after `after` seconds, plus or minus the share `jitter`
    of them; `last_resort`: only without another account."""

    after: float
    jitter: float = 0.0
    last_resort: bool = False

    def wait(self, random_value: float) -> float:
        """Seconds; `random_value` is in [0, 1)."""
        return self.after * (1 + self.jitter * (2 * random_value - 1))


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` names the matching row. `penalty_seconds` None leaves the duration to `Health`;
    `retry_after` is the upstream's hint, in seconds. `alert`: an operator has to fix something."""

    reason: str
    blame: Blame
    failover: Failover
    penalty: AccountPenalty
    same_account_retry: SameAccountRetry | None = None
    penalty_seconds: float | None = None
    retry_after: float | None = None
    alert: bool = False

    def for_own_credential(self) -> Verdict:
        """The verdict where the credential is the client's own: what is wrong about it, or used up
        of it, concerns nobody else, and no other account serves the client instead."""
        if self.blame not in (Blame.ACCOUNT, Blame.CAPACITY):
            return self
        return Verdict(self.reason, Blame.CLIENT, Failover.NEVER, AccountPenalty.NONE)


_Predicate = Callable[[Failure], object]
_Penalty = tuple[AccountPenalty, float | None]


@dataclass(frozen=True, slots=True)
class _Row:
    reason: str
    matches: _Predicate
    blame: Blame
    failover: Failover
    penalty: _Penalty
    retry: SameAccountRetry | None = None
    alert: bool = False


class FailurePolicy:
    """The operator's rules, then `TABLE`; the first match decides."""

    def __init__(self, rules: Sequence[FailureRule] = ()) -> None:
        self._rows = (*(_rule_row(number, rule) for number, rule in enumerate(rules, 1)), *TABLE)

    def classify(self, failure: Failure, *, is_last: bool = False) -> Verdict:
        """`is_last`: no other attempt is possible, or wanted."""
        row = next(row for row in self._rows if row.matches(failure))
        failover, (penalty, seconds) = row.failover, row.penalty
        hint = failure.retry_after
        retry = _with_hint(row.retry, hint)
        if is_last:
            failover, retry = _NEVER, None
            penalty, seconds = _NONE if penalty is AccountPenalty.NONE else _FAILURE
        return Verdict(row.reason, row.blame, failover, penalty, retry, seconds, hint, row.alert)


def _with_hint(retry: SameAccountRetry | None, hint: float | None) -> SameAccountRetry | None:
    if retry is not None and hint is not None:
        retry = SameAccountRetry(hint, last_resort=retry.last_resort)
    return retry if retry is not None and retry.after <= MAX_SAME_ACCOUNT_WAIT else None


def _rule_row(number: int, rule: FailureRule) -> _Row:
    blame = Blame(rule.blame)
    failover, penalty, retry = _RULE_DEFAULTS.get(blame, (_YES, AccountPenalty.FAILURE, None))
    if penalty is AccountPenalty.FAILURE and rule.seconds is not None:
        penalty = AccountPenalty.CIRCUIT_OPEN

    def matches(failure: Failure) -> bool:
        return (
            failure.kind is _K.RESPONSE
            and (not rule.status or failure.status in rule.status)
            and (rule.type is None or bool(rule.type.fullmatch(failure.type or "")))
            and (rule.code is None or bool(rule.code.fullmatch(failure.code or "")))
            and (rule.text is None or bool(rule.text.search(_text(failure))))
        )

    return _Row(f"rule {number}", matches, blame, failover, (penalty, rule.seconds), retry)


def _text(failure: Failure) -> str:
    return f"{failure.message[:_MAX_SEARCHED_CHARS]}\n{failure.body or ''}"


@dataclass(frozen=True, slots=True)
class ContextOverflow:
    """`used` and `limit` are in tokens, both None if the message does not have them. `output` is
    the part of `used` that was requested for the reply, where the prompt alone would fit."""

    used: int | None = None
    limit: int | None = None
    output: int | None = None


_OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_OVERFLOW_PATTERN: Final = re.compile(
    r"prompt is too long"
    r"|input length and `max_tokens` exceed context limit"
    r"|maximum context length"
    r"|exceeds? the (?:available context size|(?:model's )?context (?:window|length))",
    re.IGNORECASE,
)
_OUTPUT_TOO_LARGE: Final = re.compile(r"max_(?:completion_|output_)?tokens\W[^.]*is too large")
"""The prompt fits, but the requested length of the reply does not."""

_COUNT_PATTERNS: Final = (
    re.compile(r"prompt is too long: (?P<used>\d+) tokens > (?P<limit>\d+) maximum"),
    re.compile(r"\((?P<used>\d+) tokens\) exceeds the available context size \((?P<limit>\d+)"),
    re.compile(r'"n_prompt_tokens":\s*(?P<used>\d+),\s*"n_ctx":\s*(?P<limit>\d+)'),
)
_LIMIT_PATTERN: Final = re.compile(r"maximum context length is (\d+) tokens")
_TOKEN_COUNT: Final = re.compile(r"(\d+) (?:\w+ )?tokens")
_OUTPUT_COUNT: Final = re.compile(r"(\d+) (?:in the completion|output tokens)")


def context_overflow(failure: Failure) -> ContextOverflow | None:
    """Reads an exceeded context window of a failure; None if it is another failure."""
    message = failure.message
    if not (
        _OVERFLOW_CODES.intersection((failure.code, failure.type))
        or _OVERFLOW_PATTERN.search(message)
    ):
        return None
    if _OUTPUT_TOO_LARGE.search(message):
        return None
    for text in (message, failure.body or ""):
        for pattern in _COUNT_PATTERNS:
            if match := pattern.search(text):
                return ContextOverflow(int(match["used"]), int(match["limit"]))
    return _parse_total(message)


def _parse_total(message: str) -> ContextOverflow:
    """Chat vendors give the limit first, then the requested tokens, in parts and as a total."""
    match = _LIMIT_PATTERN.search(message)
    if match is None:
        return ContextOverflow()
    limit = int(match[1])
    used = max((int(count) for count in _TOKEN_COUNT.findall(message, match.end())), default=0)
    if used <= limit:
        return ContextOverflow()
    output = _OUTPUT_COUNT.search(message, match.end())
    fits = output is not None and 0 < used - int(output[1]) <= limit
    return ContextOverflow(used, limit, int(output[1]) if output and fits else None)


_STREAM_ONLY_PATTERN: Final = re.compile(
    r"stream\W{0,4}(?:\w+ ){0,4}(?:must|should|has to|needs? to) be (?:set to )?\W?true"
    r"|(?:only|must|requires?)\W+(?:\w+\W+){0,4}stream(?:ing|ed|s)?\b"
    r"|stream(?:ing)?\W+(?:\w+\W+){0,2}(?:only|is required|required|true)"
    r"|for non-streaming calls|not support http call"
    r"|non-?stream\w*\W+(?:\w+\W+){0,6}(?:not|unsupported|unavailable)",
    re.IGNORECASE,
)
_STREAM_ONLY_STATUSES: Final = frozenset({400, 404, 405, 406, 415, 422, 501, 503})


def requires_streaming(failure: Failure) -> bool:
    """Tells whether the upstream rejected the request because it only supports streams."""
    if failure.kind is not _K.RESPONSE or failure.status not in _STREAM_ONLY_STATUSES:
        return False
    text = f"{failure.message[:_MAX_SEARCHED_CHARS]}\n{(failure.body or '')[:_MAX_SEARCHED_CHARS]}"
    return bool(_STREAM_ONLY_PATTERN.search(text)) or failure.param == "stream"


_ENCRYPTED_REASONING: Final = re.compile(
    r"encrypted[ _](?:reasoning[ _])?content\W+(?:\w+\W+){0,4}(?:not|un)[ _-]?(?:support|avail)"
    r"|(?:unsupported|unknown|invalid|not support\w*)\W+(?:\w+\W+){0,4}"
    r"reasoning\.encrypted_content",
    re.IGNORECASE,
)


def refuses_encrypted_reasoning(failure: Failure) -> bool:
    """Tells whether the upstream rejected the request because its model encrypts no reasoning."""
    is_refusal = failure.kind is _K.RESPONSE and failure.status in (400, 422)
    return is_refusal and bool(_ENCRYPTED_REASONING.search(failure.message, 0, _MAX_SEARCHED_CHARS))


def _is_kind(*kinds: _K) -> _Predicate:
    return lambda failure: failure.kind in kinds


def _has_status(*statuses: int) -> _Predicate:
    return lambda failure: failure.status in statuses


def _matches_text(*names: str, pattern: str = r"(?!)") -> _Predicate:
    """One of the names as code or type, or the pattern in the message."""
    search = re.compile(pattern, re.IGNORECASE).search
    return lambda f: f.code in names or f.type in names or search(f.message, 0, _MAX_SEARCHED_CHARS)


# Text before the phrases that disable an account: no quotes, because quoted text can be the
# client's, and a client must not be able to disable an account.
_UNQUOTED = r"""\A[^'"`:\n]{0,60}"""
_IS_ACCOUNT_CLOSED = _matches_text(
    *("account_deactivated", "deactivated_workspace"),
    pattern=_UNQUOTED
    + r"(?:(?:account|organization|workspace|api key)(?: associated with [\w ]{1,40})?"
    r" (?:has been|was|is) (?:deactivated|disabled|suspended|terminated|revoked)"
    r"|deactivated (?:account|organization|workspace)|access was terminated)",
)
_IS_QUOTA_SPENT = _matches_text(
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
    *("data_inspection_failed", "sensitive_words_detected", "image_content_policy_violation"),
    pattern=r"content (?:management |moderation |filtering |usage )?policy|input was flagged"
    r"|flagged as potentially violating|rejected (?:by|as a result of) our safety system"
    r"|violat\w+ (?:of )?(?:our |the )?(?:safety|usage) polic",
)
_IS_IMAGE_ERROR = _matches_text(
    *("invalid_image", "invalid_image_format", "invalid_image_mode", "invalid_image_url"),
    *("invalid_base64_image", "image_too_large", "image_too_small", "image_file_too_large"),
    *("image_parse_error", "unsupported_image_media_type", "empty_image_file"),
    *("image_file_not_found", "failed_to_download_image", "too_many_images"),
)
_IS_MODEL_CODE = _matches_text(
    *("model_not_found", "invalid_model", "model_decommissioned", "DeploymentNotFound")
)
_IS_MODEL_TEXT: Final = re.compile(
    r"""\A(?:model: \S{1,200}\s*\Z|[^'"`\n]{0,60}(?:"""
    r"""\bmodels?\b[ :/]*['"`]?[^\s'"`]{1,200}['"`]?,? (?:does not exist|(?:is |was )?not"""
    r""" (?:found|exist|available|supported)\b)"""
    r"""|\b(?:invalid|unknown|unsupported|no such) model\b(?! (?:field|option|param|setting))"""
    r"""|\bthe ['"`][^\s'"`]{1,200}['"`] model is not (?:available|supported)\b"""
    r"""|no endpoints found for |model not exist|model identifier is invalid)"""
    r"""|['"`]?[^\s'"`]{1,200}['"`]? is not a valid model\b)""",
    re.IGNORECASE,
)
_MODEL_STATUSES: Final = frozenset({400, 403, 404, 410, 422})


def _is_unknown_model(failure: Failure) -> object:
    """Tells whether the upstream has no such model. One that another field names is the
    client's."""
    if failure.param not in (None, "model"):
        return False
    if _IS_MODEL_CODE(failure):
        return True
    text = failure.message[:_MAX_SEARCHED_CHARS]
    return failure.status in _MODEL_STATUSES and _IS_MODEL_TEXT.search(text)


_IS_OVERLOADED = _matches_text("overloaded_error", "server_is_overloaded", "slow_down")

_RETRY_NOW = SameAccountRetry(0.0)
_RETRY_SOON = SameAccountRetry(1.0, jitter=0.5)
_RETRY_IF_HINTED = SameAccountRetry(math.inf, last_resort=True)

_CLIENT, _ACCOUNT, _CAPACITY, _TRANSPORT, _UPSTREAM = Blame
_NEVER, _ONCE, _YES = Failover
_NONE: Final[_Penalty] = (AccountPenalty.NONE, None)
_FAILURE: Final[_Penalty] = (AccountPenalty.FAILURE, None)
_RATE_LIMIT: Final[_Penalty] = (AccountPenalty.RATE_LIMITED, None)
_OPEN: Final[_Penalty] = (AccountPenalty.CIRCUIT_OPEN, 300.0)
_AUTH: Final[_Penalty] = (AccountPenalty.AUTH_FAILED, None)
_QUOTA: Final[_Penalty] = (AccountPenalty.AUTH_FAILED, 300.0)

_RULE_DEFAULTS: Final[dict[Blame, tuple[Failover, AccountPenalty, SameAccountRetry | None]]] = {
    Blame.CLIENT: (_NEVER, AccountPenalty.NONE, None),
    Blame.ACCOUNT: (_YES, AccountPenalty.AUTH_FAILED, None),
    Blame.CAPACITY: (_YES, AccountPenalty.RATE_LIMITED, _RETRY_IF_HINTED),
}


def _is_thread_error(failure: Failure) -> bool:
    """Tells whether a message thread is unknown. Only its account knows it: clients send the
    conversation again."""
    return str((failure.details or {}).get("error_code")).startswith("thread_")


# fmt: off
TABLE: Final[tuple[_Row, ...]] = (
    # Network errors and malformed responses.
    _Row("no connection",     _is_kind(_K.CONNECT),      _TRANSPORT, _YES,   _FAILURE),
    _Row("TLS failed",        _is_kind(_K.TLS),          _TRANSPORT, _YES,   _OPEN, alert=True),
    _Row("no answer",         _is_kind(_K.DISCONNECT),   _TRANSPORT, _ONCE,  _FAILURE),
    _Row("reused connection", _is_kind(_K.REUSED),       _TRANSPORT, _ONCE,  _NONE, _RETRY_NOW),
    _Row("broken off",        _is_kind(_K.TRUNCATED),    _TRANSPORT, _YES,   _FAILURE),
    _Row("timed out",         _is_kind(_K.TIMEOUT),      _UPSTREAM,  _ONCE,  _FAILURE),
    _Row("empty reply",       _is_kind(_K.EMPTY),        _UPSTREAM,  _YES,   _FAILURE),
    _Row("too large",         _is_kind(_K.TOO_LARGE, _K.EVENT_TOO_LARGE),
                                                         _UPSTREAM,  _NEVER, _FAILURE),
    _Row("a page, no reply",  _is_kind(_K.PAGE),         _UPSTREAM,  _ONCE,  _OPEN),
    _Row("unreadable",        _is_kind(_K.MALFORMED),    _UPSTREAM,  _YES,   _FAILURE),
    _Row("not written",       _is_kind(_K.UNWRITABLE),   _UPSTREAM,  _NEVER, _NONE),
    _Row(NO_CREDENTIAL,       _is_kind(_K.CREDENTIAL),   _ACCOUNT,   _YES,   _NONE),
    # Error codes and messages, for any status.
    _Row("refused",           _is_thread_error,          _CLIENT,    _NEVER, _NONE),
    _Row("account closed",    _IS_ACCOUNT_CLOSED,        _ACCOUNT,   _YES,   _AUTH, alert=True),
    _Row("quota spent",       _IS_QUOTA_SPENT,           _ACCOUNT,   _YES,   _QUOTA),
    _Row("context overflow",  context_overflow,          _CLIENT,    _NEVER, _NONE),
    _Row(CONTENT_POLICY,      _IS_CONTENT_POLICY,        _CLIENT,    _NEVER, _NONE),
    _Row("image refused",     _IS_IMAGE_ERROR,           _CLIENT,    _NEVER, _NONE),
    _Row("key refused",       _IS_INVALID_KEY,           _ACCOUNT,   _YES,   _AUTH, alert=True),
    _Row(MODEL_NOT_FOUND,     _is_unknown_model,         _UPSTREAM,  _YES,   _FAILURE),
    _Row("overloaded",        _IS_OVERLOADED,            _CAPACITY,  _YES,   _FAILURE, _RETRY_SOON),
    # The status alone.
    _Row("redirected",        _has_status(*range(300, 400)), _UPSTREAM, _NEVER, _NONE, alert=True),
    # The state of another account: what a request can do without has been left out before.
    _Row("proof refused",     refused_proof,             _CLIENT,    _YES,   _NONE),
    _Row("refused",           _has_status(400, 404, 413, 415, 422), _CLIENT, _NEVER, _NONE),
    _Row("key refused",       _has_status(401),          _ACCOUNT,   _YES,   _AUTH, alert=True),
    _Row("quota spent",       _has_status(402),          _ACCOUNT,   _YES,   _QUOTA),
    _Row("access forbidden",  _has_status(403),          _ACCOUNT,   _ONCE,  _AUTH, alert=True),
    _Row("timed out there",   _has_status(408, 504, 524), _UPSTREAM, _NEVER, _FAILURE),
    _Row("rate limited",      _has_status(429),          _CAPACITY,  _YES,   _RATE_LIMIT,
                                                                             _RETRY_IF_HINTED),
    _Row("overloaded",        _has_status(529),          _CAPACITY,  _YES,   _FAILURE, _RETRY_SOON),
    _Row("refused otherwise", _has_status(*range(400, 500)), _UPSTREAM, _ONCE, _NONE),
    _Row("server error",      _is_kind(_K.RESPONSE),     _UPSTREAM,  _YES,   _FAILURE),
)
"""The first matching row decides."""
# fmt: on
