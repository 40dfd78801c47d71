"""Every way in which an upstream may fail, and its outcome: the rows of docs/faults.md.

`test_upstream_faults` tests each of them in every format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from gateway.core.formats import Format
from gateway.routing.failure_policy import AccountPenalty
from tests.resilience.faults.error_bodies import ERROR_TEXTS, STREAM_ONLY
from tests.resilience.faults.outcomes import (
    BAD,
    EMPTY,
    EVENT_TOO_LARGE,
    FORBIDDEN,
    NO_ACCOUNTS,
    NO_MODEL,
    NO_TLS,
    REPLY_TOO_LARGE,
    TOO_LATE,
    UNSTABLE,
    Bill,
    ClientError,
    RequestMode,
    refused,
)


class By(Enum):
    """Whose reply a client gets where another account stands by."""

    OTHER = "the other account"
    SAME = "the same account"
    NONE = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`plan` is what the upstream does, `line` what is wrong with the way to it instead.

    `tries` are the verdicts of the attempts at the account that fails while another one stands by,
    `alone` where it is the only one (the same where it is None). `error` is what a client gets when
    nobody replies, `by` who does where somebody else can. `closed` is for how many seconds the
    first of the tries closes the account, `effect` how. `warm`: the account has served a request
    before. `calls`: how often it is called, where that is not once for each try.
    """

    what: str
    plan: str = ""
    line: str = ""
    by: By = By.OTHER
    tries: tuple[str, ...]
    alone: tuple[str, ...] | None = None
    error: ClientError | None = None
    effect: AccountPenalty = AccountPenalty.FAILURE
    closed: float | None = None
    mode: RequestMode = RequestMode.BOTH
    formats: tuple[Format, ...] = tuple(Format)
    in_band: bool = False
    passed_on: str = ""
    """What an error in the stream says in the upstream's own words."""
    counted: bool = True
    """Whether the upstream tells the usage of a reply that is whole."""
    text: str | None = "Hello, world!"
    """What the account's own reply says; None: whatever it is."""
    timeouts: Mapping[str, float] = field(default_factory=dict)
    warm: bool = False
    calls: int | None = None
    vague: float = 0
    """By how many seconds it is unsure, as dates tell it, when the account can be asked again."""

    @property
    def alone_tries(self) -> tuple[str, ...]:
        return self.tries if self.alone is None else self.alone

    @property
    def bill(self) -> Bill:
        """Where no other account is there."""
        if self.alone_tries[-1] == _OK:
            return Bill.COUNTED if self.counted else Bill.ESTIMATED
        return Bill.ESTIMATED if self.in_band else Bill.NOTHING


_OK: Final = "ok"
_SOON: Final = 0.3
"""Seconds that count as too long here."""
_BROKEN: Final = {"idle": 1, "whole": 1}
"""Seconds within which it must have been noticed that nothing can come any more."""
_CODED: Final = (Format.CHAT, Format.RESPONSES)
"""Where errors have codes, by which upstreams say more than their words do."""
_STREAMS: Final = {"first_event": _SOON, "idle": _SOON, "whole": _SOON}


def _fine(what: str, plan: str, **more: Any) -> Fault:
    """No fault at all, in the end."""
    return Fault(what=what, plan=plan, by=By.SAME, tries=(_OK,), effect=AccountPenalty.NONE, **more)


def _served_again(what: str, plan: str) -> Fault:
    """Nobody knows whether the first attempt was served."""
    return Fault(
        what=what,
        plan=plan,
        by=By.SAME,
        tries=("reused connection", _OK),
        effect=AccountPenalty.NONE,
        warm=True,
        calls=3,
    )


def _clients(what: str, plan: str, error: ClientError, verdict: str, **more: Any) -> Fault:
    """Nobody else is asked, and the account is not to blame."""
    return Fault(
        what=what,
        plan=plan,
        by=By.NONE,
        tries=(verdict,),
        error=error,
        effect=AccountPenalty.NONE,
        **more,
    )


def _begun(what: str, plan: str, verdict: str, error: ClientError = BAD, **more: Any) -> Fault:
    """It fails when some of the reply has left."""
    return Fault(
        what=what,
        plan=plan,
        by=By.NONE,
        tries=(verdict,),
        error=error,
        mode=RequestMode.STREAM,
        in_band=True,
        **more,
    )


_LINE: Final = [
    Fault(what="refuses connections", line="closed", tries=("no connection",), error=UNSTABLE),
    Fault(what="has no address", line="unknown", tries=("no connection",), error=UNSTABLE),
    Fault(
        what="never answers a connection",
        line="full",
        tries=("no connection",),
        error=UNSTABLE,
        timeouts={"connect": _SOON},
    ),
    Fault(
        what="has an untrusted certificate",
        line="self-signed",
        tries=("TLS failed",),
        error=NO_TLS,
        effect=AccountPenalty.CIRCUIT_OPEN,
        closed=300,
    ),
    Fault(
        what="does not support TLS",
        line="no TLS",
        tries=("TLS failed",),
        error=NO_TLS,
        effect=AccountPenalty.CIRCUIT_OPEN,
        closed=300,
    ),
    Fault(
        what="never completes the TLS handshake",
        line="silent TLS",
        tries=("no connection",),
        error=UNSTABLE,
        timeouts={"connect": _SOON},
    ),
    _fine("has closed an idle connection", "stale:close", warm=True, calls=2),
    _served_again("disconnects on a reused connection without a response", "stale:next"),
    _served_again(
        "disconnects on a reused connection without a response, with a reset", "stale:reset"
    ),
    *(
        Fault(what=f"disconnects {when}", plan=f"hangup:{how}", tries=(verdict,), error=BAD)
        for how, when, verdict in (
            ("fin", "without a response", "no answer"),
            ("reset", "without a response, with a reset", "no answer"),
            ("head", "within its response head", "no answer"),
            ("status", "within its status line", "no answer"),
        )
    ),
    *(
        Fault(
            what=f"sends invalid HTTP: {which}",
            plan=f"violate:{what}",
            tries=("unreadable",),
            error=BAD,
        )
        for what, which in (
            ("status", "a status that is not a number"),
            ("header", "a header without a colon"),
            ("lengths", "two lengths"),
            ("banner", "another protocol"),
        )
    ),
    Fault(
        what="sends invalid HTTP: a chunk without a size",
        plan="violate:chunk",
        tries=("unreadable",),
        error=BAD,
    ),
]

_STATUSES: Final = [
    *(
        _clients(
            f"answers {status}",
            f"refuse:{status}:{error_name}",
            refused(status, code, ERROR_TEXTS[error_name].message, native=native),
            "refused",
        )
        for status, error_name, code, native in (
            (400, "invalid", "invalid_value", "invalid_request_error"),
            (404, "no_file", "not_found", "not_found_error"),
            (413, "too_large", "request_too_large", "request_too_large"),
            (422, "invalid", "invalid_value", "invalid_request_error"),
        )
    ),
    *(
        Fault(
            what=f"reports in a {status} that it does not have the model",
            plan=f"refuse:{status}:not_found",
            tries=("model not found",),
            error=NO_MODEL,
        )
        for status in (400, 404)
    ),
    *(
        _clients(
            f"reports in a {status} that the prompt is too long",
            f"refuse:{status}:context",
            refused(400, "context_length_exceeded", ERROR_TEXTS["context"].message),
            "context overflow",
        )
        for status in (400, 413, 429, 500, 503)
    ),
    *(
        _clients(
            f"reports a content policy violation in a {status}",
            f"refuse:{status}:policy",
            refused(400, "content_policy_violation", ERROR_TEXTS["policy"].message),
            "content policy",
        )
        for status in (400, 403, 429, 500)
    ),
    Fault(
        what="answers 401",
        plan="refuse:401",
        tries=("key refused",),
        error=FORBIDDEN,
        effect=AccountPenalty.AUTH_FAILED,
        closed=1800,
    ),
    Fault(
        what="reports an invalid key in a 400",
        plan="refuse:400:key",
        tries=("key refused",),
        error=FORBIDDEN,
        effect=AccountPenalty.AUTH_FAILED,
        closed=1800,
    ),
    Fault(
        what="answers 403",
        plan="refuse:403",
        tries=("access forbidden",),
        error=FORBIDDEN,
        effect=AccountPenalty.AUTH_FAILED,
        closed=1800,
    ),
    *(
        Fault(
            what=f"reports a closed account in a {status}",
            plan=f"refuse:{status}:{error_name}",
            tries=("account closed",),
            error=FORBIDDEN,
            effect=AccountPenalty.AUTH_FAILED,
            closed=1800,
        )
        for status, error_name in ((400, "disabled"), (403, "deactivated"))
    ),
    *(
        Fault(
            what=f"reports exhausted credit in a {status}",
            plan=f"refuse:{status}:{error_name}",
            tries=("quota spent",),
            error=NO_ACCOUNTS,
            effect=AccountPenalty.AUTH_FAILED,
            closed=300,
            formats=_CODED if error_name == "quota" else tuple(Format),
        )
        for status, error_name in (
            (402, "billing"),
            (400, "credit"),
            (429, "quota"),
            (403, "quota"),
        )
    ),
    *(
        Fault(
            what=f"answers {status}",
            plan=f"refuse:{status}",
            by=By.NONE,
            tries=("timed out there",),
            error=TOO_LATE,
        )
        for status in (408, 504, 524)
    ),
    *(
        Fault(
            what=f"answers {status}",
            plan=f"refuse:{status}:server",
            tries=("server error",),
            error=UNSTABLE,
        )
        for status in (500, 502, 503)
    ),
    Fault(
        what="answers 502 with a page",
        plan="refuse:502:server:html",
        tries=("server error",),
        error=UNSTABLE,
    ),
    *(
        Fault(
            what=f"is overloaded: {status} `{error_name}`",
            plan=f"refuse:{status}:{error_name}",
            tries=("overloaded", "overloaded"),
            error=UNSTABLE,
        )
        for status, error_name in ((529, "overloaded"), (503, "overloaded"), (503, "slow_down"))
    ),
    Fault(
        what="is overloaded once",
        plan="refuse:529,ok",
        by=By.SAME,
        tries=("overloaded", _OK),
    ),
    _clients("redirects", "redirect:307", BAD, "redirected"),
]

_LIMITS: Final = [
    Fault(
        what="answers 429 without a time",
        plan="refuse:429",
        tries=("rate limited",),
        error=NO_ACCOUNTS,
        effect=AccountPenalty.RATE_LIMITED,
        closed=1,
    ),
    Fault(
        what="answers 429 for a short time",
        plan="refuse:429:ms=200,ok",
        tries=("rate limited",),
        alone=("rate limited", _OK),
        effect=AccountPenalty.RATE_LIMITED,
        closed=0.2,
    ),
    Fault(
        what="answers 429 again after the moment that it named",
        plan="refuse:429:ms=200",
        tries=("rate limited",),
        alone=("rate limited", "rate limited"),
        error=NO_ACCOUNTS.after(1),
        effect=AccountPenalty.RATE_LIMITED,
        closed=0.2,
    ),
    *(
        Fault(
            what=f"answers 429 and a time {where}",
            plan=f"refuse:429:{hint}",
            tries=("rate limited",),
            error=NO_ACCOUNTS.after(seconds),
            effect=AccountPenalty.RATE_LIMITED,
            closed=min(seconds, 300),
        )
        for where, hint, seconds in (
            ("in `retry-after`", "seconds=40", 40),
            ("in `retry-after` that is long", "seconds=120", 120),
            ("in `retry-after` that is extremely long", "seconds=86400", 86400),
            ("in `retry-after-ms`", "ms=40000", 40),
            ("in its body", "usage_limit:body=90", 90),
        )
    ),
    *(
        Fault(
            what=f"answers 429 and a time in {where}",
            plan=f"refuse:429:{hint}=40",
            tries=("rate limited",),
            error=NO_ACCOUNTS.after(40),
            effect=AccountPenalty.RATE_LIMITED,
            closed=40,
            vague=2,
        )
        for where, hint in (
            ("`retry-after`, as a date", "date"),
            ("its rate limit headers", "reset"),
            ("the headers of its subscription", "window"),
        )
    ),
]

_SLOW: Final = [
    *(
        Fault(
            what=f"sends nothing {since}",
            plan=f"stall:{place}",
            tries=("timed out",),
            error=TOO_LATE,
            mode=mode,
            timeouts=_STREAMS,
        )
        for since, place, mode in (
            ("at all", "head", RequestMode.BOTH),
            ("after its head", "start", RequestMode.BOTH),
            ("after the first frame", "begun", RequestMode.STREAM),
            ("in the middle of the body", "text", RequestMode.WHOLE),
        )
    ),
    *(
        Fault(
            what=f"sends only {what}",
            plan=what,
            tries=("timed out",),
            error=TOO_LATE,
            timeouts=_STREAMS,
        )
        for what in ("comments", "pings")
    ),
    _begun(
        "stalls in the middle of a reply",
        "stall:text",
        "timed out",
        TOO_LATE,
        timeouts={"idle": _SOON},
    ),
    _begun(
        "never ends",
        "tick:0.05",
        "timed out",
        TOO_LATE,
        timeouts={"total": _SOON, "first_event": _SOON},
    ),
    _fine("sends comments before a reply", "comments:0.01:count=5"),
    _fine("sends pings before a reply", "pings:0.01:count=5"),
]

_CUTS: Final = [
    Fault(what="ends after the response head", plan="cut:start", tries=("broken off",), error=BAD),
    Fault(
        what="resets after its head",
        plan="cut:start:reset",
        tries=("broken off",),
        error=BAD,
    ),
    Fault(
        what="ends after the first frame",
        plan="cut:begun",
        tries=("broken off",),
        error=BAD,
        mode=RequestMode.STREAM,
    ),
    Fault(
        what="ends before any text, with valid HTTP",
        plan="cut:begun:fin",
        tries=("broken off",),
        error=BAD,
        mode=RequestMode.STREAM,
    ),
    *(
        _begun(
            f"ends in the middle of a reply, {how}",
            f"cut:text:{cut}",
            "broken off",
            timeouts=_BROKEN,
        )
        for how, cut in (
            ("within the chunks", "chunked"),
            ("short of its length", "length"),
            ("with valid HTTP", "fin"),
            ("with a reset", "reset"),
            ("with a reset after valid HTTP", "reset_close"),
            ("with a chunk without a size", "garbled"),
        )
    ),
    _begun("ends before the terminal event", "cut:end", "broken off"),
    *(
        Fault(
            what=f"ends in the middle of the body, {how}",
            plan=f"cut:text:{cut}",
            tries=("broken off",),
            error=BAD,
            mode=RequestMode.WHOLE,
            timeouts=_BROKEN,
        )
        for how, cut in (
            ("within the chunks", "chunked"),
            ("short of its length", "length"),
            ("with a reset", "reset"),
            ("with a reset after valid HTTP", "reset_close"),
            ("with a chunk without a size", "garbled"),
        )
    ),
    Fault(
        what="ends in the middle of the body, with valid HTTP",
        plan="cut:text:fin",
        tries=("unreadable",),
        error=BAD,
        mode=RequestMode.WHOLE,
    ),
]

_EVENTS: Final = [
    *(
        Fault(
            what=f"reports overload in a 200, {when}",
            plan=f"error:{place}:overloaded",
            tries=("overloaded", "overloaded"),
            error=UNSTABLE,
            mode=mode,
        )
        for place, when, mode in (
            ("start", "before anything else", RequestMode.BOTH),
            ("begun", "when it has opened a reply", RequestMode.STREAM),
            ("opening", "before the first text", RequestMode.STREAM),
        )
    ),
    Fault(
        what="reports an internal error in a 200",
        plan="error:start:server",
        tries=("server error",),
        error=UNSTABLE,
    ),
    Fault(
        what="reports too many requests in a 200",
        plan="error:start:rate_limit",
        tries=("rate limited",),
        error=NO_ACCOUNTS,
        effect=AccountPenalty.RATE_LIMITED,
        closed=1,
    ),
    Fault(
        what="reports an invalid key in a 200",
        plan="error:start:key",
        tries=("key refused",),
        error=FORBIDDEN,
        effect=AccountPenalty.AUTH_FAILED,
        closed=1800,
    ),
    _clients(
        "reports in a 200 that the prompt is too long",
        "error:start:context",
        refused(400, "context_length_exceeded", ERROR_TEXTS["context"].message),
        "context overflow",
    ),
    _clients(
        "reports a content policy violation in a 200",
        "error:start:policy",
        refused(400, "content_policy_violation", ERROR_TEXTS["policy"].message),
        "content policy",
    ),
    _begun(
        "reports an internal error in the middle of a reply",
        "error:text:server",
        "server error",
        UNSTABLE,
        passed_on=ERROR_TEXTS["server"].message,
    ),
    _begun(
        "reports overload in the middle of a reply",
        "error:text:overloaded",
        "overloaded",
        UNSTABLE,
        passed_on=ERROR_TEXTS["overloaded"].message,
    ),
    _begun(
        "reports an invalid key in the middle of a reply",
        "error:text:key",
        "key refused",
        FORBIDDEN,
    ),
    _begun(
        "reports too many requests in the middle of a reply",
        "error:text:rate_limit",
        "rate limited",
        NO_ACCOUNTS,
    ),
]

_ODD: Final = [
    Fault(
        what="sends an empty reply without usage",
        plan="empty:reply",
        tries=("empty reply",),
        error=EMPTY,
    ),
    _fine("sends an empty reply with usage", "empty:usage", text=""),
    Fault(
        what="sends a stream of nothing",
        plan="empty:bytes",
        tries=("empty reply",),
        error=EMPTY,
        mode=RequestMode.STREAM,
    ),
    Fault(
        what="sends a body of nothing",
        plan="empty:bytes",
        tries=("unreadable",),
        error=BAD,
        mode=RequestMode.WHOLE,
    ),
    Fault(
        what="sends a body that is no JSON",
        plan="malformed:text",
        tries=("unreadable",),
        error=BAD,
        mode=RequestMode.WHOLE,
    ),
    _begun(
        "sends an event of 17 MiB",
        "huge",
        "too large",
        EVENT_TOO_LARGE,
    ),
    _fine("sends an event of 2 MiB", f"huge:size={2**21}", mode=RequestMode.STREAM, text=None),
    Fault(
        what="sends a body above the limit",
        plan=f"huge:size={5 * 2**20}",
        by=By.NONE,
        tries=("too large",),
        error=REPLY_TOO_LARGE,
        mode=RequestMode.WHOLE,
    ),
    Fault(
        what="answers with a page",
        plan="page",
        tries=("a page, no reply",),
        error=BAD,
        effect=AccountPenalty.CIRCUIT_OPEN,
        closed=300,
    ),
    *(
        _fine(f"compresses the reply without request: {coding}", f"encoded:{coding}")
        for coding in ("gzip", "deflate")
    ),
    Fault(
        what="compresses the reply with an unknown coding",
        plan="encoded:bad",
        tries=("broken off",),
        error=BAD,
    ),
    Fault(
        what="decompresses to more than the limit",
        plan=f"bomb:size={2**25}",
        by=By.NONE,
        tries=("too large",),
        error=REPLY_TOO_LARGE,
        mode=RequestMode.WHOLE,
    ),
    Fault(
        what="decompresses to an event above the limit",
        plan=f"bomb:size={2**25}",
        by=By.NONE,
        tries=("too large",),
        error=EVENT_TOO_LARGE,
        mode=RequestMode.STREAM,
    ),
    _fine("sends a header of 20 KB", "headers"),
    _fine("sends 200 headers", "headers:size=10:count=200"),
    Fault(
        what="sends 300 headers",
        plan="headers:size=10:count=300",
        tries=("unreadable",),
        error=BAD,
    ),
    *(_fine(f"sends {status} first", f"early:{status}") for status in (100, 102, 103)),
    _fine("reports no usage", "no_usage", counted=False),
    _fine("stops at the limit of tokens", "ok:max_tokens", text=None),
    _fine("streams a reply that was requested as a body", "streams_anyway", mode=RequestMode.WHOLE),
    _fine("sends a body for a requested stream", "whole_anyway", mode=RequestMode.STREAM),
    *(
        Fault(
            what=f"supports only streams: `{wording}`",
            plan=f"stream_only:{wording}",
            by=By.SAME,
            tries=("answers streams alone", _OK),
            effect=AccountPenalty.NONE,
            mode=RequestMode.WHOLE,
        )
        for wording in STREAM_ONLY
    ),
    *(
        _fine(f"formats the stream differently: {how}", f"ok:text:{shape}", mode=RequestMode.STREAM)
        for how, shape in (
            ("byte by byte", "byte"),
            ("CRLF, byte by byte", "crlf_byte"),
            ("lines end with CR", "cr"),
            ("a byte order mark", "bom"),
            ("comments between", "comments"),
            ("no space after the colon", "no_space"),
            ("no blank line at the end", "no_blank"),
        )
    ),
]

SECTIONS: Final[Mapping[str, list[Fault]]] = {
    "Connection": _LINE,
    "Statuses": _STATUSES,
    "Rate limits": _LIMITS,
    "Stalls": _SLOW,
    "Incomplete replies": _CUTS,
    "Errors in a 200": _EVENTS,
    "Unusual replies": _ODD,
}
FAULTS: Final = [fault for faults in SECTIONS.values() for fault in faults]
