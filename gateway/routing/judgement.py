"""What follows from a failed attempt: whose fault it was, who is asked next, how health takes it.

It must not know how an attempt is made, nor what the client is told.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.core.failure import Failure
from gateway.core.failure import FailureKind as _K
from gateway.core.word import Word
from gateway.routing.overflow import overflow

LONGEST_WAIT_THERE: Final = 3.0
"""Seconds up to which it is worth waiting for the same account."""

CONTENT_POLICY: Final = "content policy"
"""The reason of what an upstream will not talk about."""

_READ: Final = 2000
"""Characters of a message that are searched."""


class Blame(Word):
    """Whose fault it is. `transport` is the line to the channel, which its accounts share."""

    CLIENT = "client"
    ACCOUNT = "account"
    CAPACITY = "capacity"
    TRANSPORT = "transport"
    UPSTREAM = "upstream"


class Others(Word):
    """Whether other accounts may be asked; `once`: one more, and no third."""

    NEVER = "never"
    ONCE = "once"
    YES = "yes"


class Effect(Word):
    """It counts as a failure of the account with this model, cools it there, opens the circuit
    there at once, or bans the account for all models."""

    NONE = "none"
    FAILURE = "failure"
    COOL = "cool"
    OPEN = "open"
    BAN = "ban"


@dataclass(frozen=True, slots=True)
class Again:
    """One more attempt on the same account after so many seconds, give or take the part `spread`
    of them; `last_resort`: only where there is no other account."""

    after: float
    spread: float = 0.0
    last_resort: bool = False

    def wait(self, chance: float) -> float:
        """Seconds; `chance` is in [0, 1)."""
        return self.after * (1 + self.spread * (2 * chance - 1))


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` names the row of the table. `seconds` is how long the effect lasts, None where that
    is left to health; `hint` is when the upstream itself wants to be asked again, in seconds.
    `alert`: a person has to mend something."""

    reason: str
    blame: Blame
    other_account: Others
    effect: Effect
    same_account: Again | None = None
    seconds: float | None = None
    hint: float | None = None
    alert: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What an operator knows better: what the upstream says with one of the statuses (none: any)
    and fitting every pattern is to be blamed on `blame`, and closes the account off for `seconds`.
    `type` and `code` must fit as a whole, `text` is looked for in the message and in the body."""

    blame: Blame
    status: frozenset[int] = frozenset()
    type: re.Pattern[str] | None = None
    code: re.Pattern[str] | None = None
    text: re.Pattern[str] | None = None
    seconds: float | None = None

    def fits(self, failure: Failure) -> bool:
        said = f"{failure.message[:_READ]}\n{failure.body or ''}"
        return (
            failure.kind is _K.SAID
            and (not self.status or failure.status in self.status)
            and (self.type is None or bool(self.type.fullmatch(failure.type or "")))
            and (self.code is None or bool(self.code.fullmatch(failure.code or "")))
            and (self.text is None or bool(self.text.search(said)))
        )


_When = Callable[[Failure], object]
_Toll = tuple[Effect, float | None]


@dataclass(frozen=True, slots=True)
class _Row:
    reason: str
    when: _When
    blame: Blame
    other_account: Others
    toll: _Toll
    again: Again | None = None
    alert: bool = False


class Judge:
    """Where none of the rules fits, the table decides."""

    __slots__ = ("_rows",)

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rows = (*(_row(number, rule) for number, rule in enumerate(rules, 1)), *TABLE)

    def judge(self, failure: Failure, *, committed: bool = False) -> Verdict:
        """`committed`: some of the reply has left, so that nobody may be asked again."""
        row = next(row for row in self._rows if row.when(failure))
        others, (effect, seconds) = row.other_account, row.toll
        if committed:
            others, (effect, seconds) = _NEVER, _NONE if effect is Effect.NONE else _FAILURE
        hint = failure.retry_after
        again = None if committed else _again(row.again, hint)
        return Verdict(row.reason, row.blame, others, effect, again, seconds, hint, row.alert)


def _again(again: Again | None, hint: float | None) -> Again | None:
    if again is not None and hint is not None:
        again = Again(hint, last_resort=again.last_resort)
    return again if again is not None and again.after <= LONGEST_WAIT_THERE else None


def _row(number: int, rule: Rule) -> _Row:
    others, effect, again = _RULED.get(rule.blame, (_YES, Effect.FAILURE, None))
    if effect is Effect.FAILURE and rule.seconds is not None:
        effect = Effect.OPEN
    return _Row(f"rule {number}", rule.fits, rule.blame, others, (effect, rule.seconds), again)


def _line(*kinds: _K) -> _When:
    return lambda failure: failure.kind in kinds


def _status(*statuses: int) -> _When:
    return lambda failure: failure.status in statuses


def _says(*names: str, words: str = r"(?!)") -> _When:
    """One of the names as code or type, or the words in the message."""
    found = re.compile(words, re.IGNORECASE).search
    return lambda f: f.code in names or f.type in names or found(f.message, 0, _READ)


def _is_page(failure: Failure) -> bool:
    """A whole answer, hence with a status, but no reply: a login page, say."""
    return failure.kind is _K.GARBAGE and failure.status is not None


# What may stand before words that close an account: no quotes, for behind them a client may speak,
# and no client may close an account.
_OWN = r"""\A[^'"`:\n]{0,60}"""
_CLOSED = _says(
    *("account_deactivated", "deactivated_workspace"),
    words=_OWN + r"(?:(?:account|organization|workspace|api key)(?: associated with [\w ]{1,40})?"
    r" (?:has been|was|is) (?:deactivated|disabled|suspended|terminated|revoked)"
    r"|deactivated (?:account|organization|workspace)|access was terminated)",
)
_SPENT = _says(
    *("insufficient_quota", "insufficient_user_quota", "billing_error"),
    *("billing_not_active", "billing_hard_limit_reached"),
    words=_OWN + r"(?:credit balance is too low|billing hard limit has been reached"
    r"|insufficient (?:\w+ )?(?:quota|balance|credits?|funds))",
)
_KEY = _says(
    *("invalid_api_key", "authentication_error"),
    words=_OWN + r"(?:(?:incorrect|invalid) api key|api key not valid)",
)
_POLICY = _says(
    *("content_policy_violation", "content_filter", "invalid_prompt", "moderation_blocked"),
    *("data_inspection_failed", "sensitive_words_detected"),
    words=r"content (?:management |moderation |filtering |usage )?policy|input was flagged"
    r"|flagged as potentially violating|rejected (?:by|as a result of) our safety system"
    r"|violat\w+ (?:of )?(?:our |the )?(?:safety|usage) polic",
)
_BUSY = _says("overloaded_error", "server_is_overloaded", "slow_down")

_SOON = Again(1.0, spread=0.5)
_IF_TOLD = Again(math.inf, last_resort=True)

_CLIENT, _ACCOUNT, _CAPACITY, _TRANSPORT, _UPSTREAM = Blame
_NEVER, _ONCE, _YES = Others
_NONE, _FAILURE, _COOL, _BAN = ((each, None) for each in Effect if each is not Effect.OPEN)
_OPEN, _RESET = (Effect.OPEN, 300.0), (Effect.BAN, 300.0)

_RULED: Final[dict[Blame, tuple[Others, Effect, Again | None]]] = {
    Blame.CLIENT: (_NEVER, Effect.NONE, None),
    Blame.ACCOUNT: (_YES, Effect.BAN, None),
    Blame.CAPACITY: (_YES, Effect.COOL, _IF_TOLD),
}

# fmt: off
TABLE: Final[tuple[_Row, ...]] = (
    # What became of the line, or of the bytes on it.
    _Row("no connection",     _line(_K.CONNECT),         _TRANSPORT, _YES,   _FAILURE),
    _Row("TLS failed",        _line(_K.TLS),             _TRANSPORT, _YES,   _OPEN, alert=True),
    _Row("no answer",         _line(_K.DISCONNECT),      _TRANSPORT, _ONCE,  _FAILURE),
    _Row("broken off",        _line(_K.CUT),             _TRANSPORT, _YES,   _FAILURE),
    _Row("timed out",         _line(_K.TIMEOUT),         _UPSTREAM,  _ONCE,  _FAILURE),
    _Row("empty reply",       _line(_K.EMPTY),           _UPSTREAM,  _YES,   _FAILURE),
    _Row("too large",         _line(_K.TOO_LARGE, _K.EVENT_TOO_LARGE), _UPSTREAM, _NEVER, _FAILURE),
    _Row("a page, no reply",  _is_page,                  _UPSTREAM,  _ONCE,  _OPEN),
    _Row("unreadable",        _line(_K.GARBAGE),         _UPSTREAM,  _YES,   _FAILURE),
    # What the upstream says, whatever the status.
    _Row("account closed",    _CLOSED,                   _ACCOUNT,   _YES,   _BAN, alert=True),
    _Row("quota spent",       _SPENT,                    _ACCOUNT,   _YES,   _RESET),
    _Row("context overflow",  overflow,                  _CLIENT,    _NEVER, _NONE),
    _Row(CONTENT_POLICY,      _POLICY,                   _CLIENT,    _NEVER, _NONE),
    _Row("key refused",       _KEY,                      _ACCOUNT,   _YES,   _BAN, alert=True),
    _Row("overloaded",        _BUSY,                     _CAPACITY,  _YES,   _FAILURE, _SOON),
    # What the status alone says.
    _Row("redirected",        _status(*range(300, 400)), _UPSTREAM,  _NEVER, _NONE, alert=True),
    _Row("refused",           _status(400, 404, 413, 415, 422), _CLIENT, _NEVER, _NONE),
    _Row("key refused",       _status(401),              _ACCOUNT,   _YES,   _BAN, alert=True),
    _Row("quota spent",       _status(402),              _ACCOUNT,   _YES,   _RESET),
    _Row("access forbidden",  _status(403),              _ACCOUNT,   _ONCE,  _BAN, alert=True),
    _Row("timed out there",   _status(408, 504, 524),    _UPSTREAM,  _NEVER, _FAILURE),
    _Row("rate limited",      _status(429),              _CAPACITY,  _YES,   _COOL, _IF_TOLD),
    _Row("overloaded",        _status(529),              _CAPACITY,  _YES,   _FAILURE, _SOON),
    _Row("refused otherwise", _status(*range(400, 500)), _UPSTREAM,  _ONCE,  _NONE),
    _Row("server error",      _line(_K.SAID),            _UPSTREAM,  _YES,   _FAILURE),
)
"""The first row that fits decides."""
# fmt: on
