"""Writes docs/faults.md from the tables that the tests run through:

python -m tests.resilience.faults.generate_docs
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gateway.routing.failure_policy import AccountPenalty
from tests.resilience.faults import client_faults
from tests.resilience.faults.client_faults import ClientFault
from tests.resilience.faults.outcomes import ClientError, RequestMode
from tests.resilience.faults.upstream_faults import SECTIONS, By, Fault
from tests.support.paths import ROOT

PAGE: Final = ROOT / "docs" / "faults.md"

_INTRODUCTION: Final = """\
# Faults

Every row is a test in all three formats (`tests/resilience/faults`), and this page is generated
from those tests: `python -m tests.resilience.faults.generate_docs`. Codes are those of
[errors.md](errors.md).

## Upstreams

"Two accounts" is the result when the first account fails and the second works; "One account" the
result without a second account, or if failover is not allowed. "Verdicts" are those in
`gateway logs show` for the attempts on the failing account: with two accounts, and with one if they
differ. A reply is never combined from two, and an incomplete stream never looks complete.

For 400, 404, 413 and 422 code and message are the upstream's.

"Bill" is the charge with one account. A reply costs its reported usage, and a failure before the
reply has begun costs nothing. An incomplete reply, or one without reported usage, is estimated:
one output token per four characters received, and the input that the first frame of a messages
reply reports, or else its estimate. `usage_source` of the row says which; with
`money.bill_estimates: false` nothing is estimated.
"""

_HEAD: Final = (
    "| The upstream | Request | Two accounts | One account | Verdicts | Account | Bill |\n"
    "|---|---|---|---|---|---|---|\n"
)
_CLIENTS: Final = """\
## Clients

These faults do not affect the state of an account; the last column is what reaches the upstream.

| The client | Request | Response | Row | Bill | Upstream |
|---|---|---|---|---|---|
"""


def page() -> str:
    return "".join(_parts())


def _parts() -> Iterator[str]:
    yield _INTRODUCTION
    for title, faults in SECTIONS.items():
        yield f"\n### {title}\n\n{_HEAD}"
        yield from (_line(_cells(fault)) for fault in faults)
    yield f"\n{_CLIENTS}"
    yield from (_line(_client_cells(fault)) for fault in client_faults.CLIENT_FAULTS)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _cells(fault: Fault) -> Iterator[str]:
    only = "" if len(fault.formats) == 3 else f" ({', '.join(fault.formats)})"
    yield fault.what + only
    yield fault.mode.value
    outcome = _describe_outcome(fault)
    yield {
        By.OTHER: "the second account's reply",
        By.SAME: "the first account's reply",
        By.NONE: outcome,
    }[fault.by]
    alone = fault.alone_tries
    yield "its reply" if alone[-1] == "ok" else outcome
    yield _joined(fault.tries) + (
        "" if alone == fault.tries else f"; one account: {_joined(alone)}"
    )
    yield _account(fault)
    yield fault.bill.value


def _describe_outcome(fault: Fault) -> str:
    if fault.error is None:
        return ""
    text = f"in the stream: `{fault.error.code}`" if fault.in_band else describe_error(fault.error)
    return f"{text}, with the upstream's message" if fault.passed_on else text


def describe_error(error: ClientError) -> str:
    """Status, code and headers."""
    text = f"{error.status} `{error.code}`" if error.code else str(error.status)
    if error.retry_after is not None:
        text += f", retry after {error.retry_after} s"
    return f"{text}, no retry" if error.final else text


def _joined(options: tuple[str, ...]) -> str:
    return ", ".join(options)


def _account(fault: Fault) -> str:
    seconds = f" for {_time(fault.closed)}" if fault.closed is not None else ""
    failed = [word for word in fault.tries if word not in ("ok", "answers streams alone")]
    match fault.effect:
        case AccountPenalty.NONE:
            return "unchanged"
        case AccountPenalty.FAILURE:
            return f"{len(failed)} failure{'s' * (len(failed) > 1)}"
        case AccountPenalty.RATE_LIMITED:
            return f"rate limited{seconds}"
        case AccountPenalty.CIRCUIT_OPEN:
            return f"circuit open{seconds}"
        case AccountPenalty.AUTH_FAILED:
            return f"auth failed{seconds}"


def _time(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 120 else f"{seconds:g} s"


def _client_cells(fault: ClientFault) -> Iterator[str]:
    yield fault.what
    yield fault.mode.value if fault.mode is not RequestMode.BOTH else "both"
    yield "nothing" if fault.error is None else describe_error(fault.error)
    yield f"`{fault.state}`, {fault.status}" if fault.state else "none"
    yield fault.bill.value
    yield fault.upstream


if __name__ == "__main__":
    PAGE.write_text(page())
