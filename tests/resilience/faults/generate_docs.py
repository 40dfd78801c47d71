"""Writes docs/faults.md from the tables that the tests run through:

    python -m tests.resilience.faults.generate_docs
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gateway.routing.failure_policy import AccountPenalty
from tests.resilience.faults import client_faults
from tests.resilience.faults.client_faults import Misdeed
from tests.resilience.faults.outcomes import Asked, Told
from tests.resilience.faults.upstream_faults import SECTIONS, By, Fault
from tests.support.paths import ROOT

PAGE: Final = ROOT / "docs" / "faults.md"

_INTRODUCTION: Final = """\
# What goes wrong, and what comes of it

Every row is a test in all three formats (`tests/faults`), and this page is written from those
tests: `python -m tests.resilience.faults.generate_docs`. Codes are those of [errors.md](errors.md).

## Upstreams

Two accounts have the model, the first fails and the second is sound: "Client, of two" says whose
reply comes. Where nobody else may be asked, or no other account is there, the client is told what
stands under "Client, alone". "Verdicts" are the words that `gateway logs show` has for the
attempts at the account that fails: of two, and alone where that differs. No reply is ever put
together from two, and no stream that broke off looks complete.

Of 400, 404, 413 and 422 code and words are the upstream's own.

"Bill" is what the client's key pays, alone. A reply costs what its upstream has counted, and what
fails before it has begun costs nothing. One that breaks off is estimated, as one is that nobody
counts: a token for every four characters that were heard, and the prompt as messages tell it with
the frame that opens a reply, or as it was guessed. The row says which, as `usage_source`; with
`money.bill_estimates: false` nothing is estimated.
"""

_HEAD: Final = (
    "| An upstream | Asked for | Client, of two | Client, alone | Verdicts | Account | Bill |\n"
    "|---|---|---|---|---|---|---|\n"
)
_CLIENTS: Final = """\
## Clients

Nothing of this is blamed on an account, and nothing but what the last column says reaches one.

| A client | Asks for | Is told | Row | Bill | Upstream |
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
    yield from (_line(_client_cells(misdeed)) for misdeed in client_faults.MISDEEDS)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _cells(fault: Fault) -> Iterator[str]:
    only = "" if len(fault.formats) == 3 else f" ({', '.join(fault.formats)})"
    yield fault.what + only
    yield fault.asked.value
    told = _told(fault)
    yield {
        By.OTHER: "the other's reply",
        By.SAME: "the same account's reply",
        By.NOBODY: told,
    }[fault.by]
    alone = fault.alone_tries
    yield "its reply" if alone[-1] == "ok" else told
    yield _verdicts(fault.tries) + ("" if alone == fault.tries else f"; alone: {_verdicts(alone)}")
    yield _account(fault)
    yield fault.bill.value


def _told(fault: Fault) -> str:
    if fault.told is None:
        return ""
    told = f"in the stream: `{fault.told.code}`" if fault.in_band else spelled(fault.told)
    return f"{told}, in the upstream's words" if fault.passed_on else told


def spelled(told: Told) -> str:
    """Status, code and headers."""
    text = f"{told.status} `{told.code}`" if told.code else str(told.status)
    if told.retry_after is not None:
        text += f", again after {told.retry_after} s"
    return f"{text}, final" if told.final else text


def _verdicts(words: tuple[str, ...]) -> str:
    return ", ".join(words)


def _account(fault: Fault) -> str:
    seconds = f" for {_time(fault.closed)}" if fault.closed is not None else ""
    failed = [word for word in fault.tries if word not in ("ok", "answers streams alone")]
    match fault.effect:
        case AccountPenalty.NONE:
            return "as before"
        case AccountPenalty.FAILURE:
            return f"counts {len(failed)}"
        case AccountPenalty.RATE_LIMITED:
            return f"rate limited{seconds}"
        case AccountPenalty.CIRCUIT_OPEN:
            return f"circuit open{seconds}"
        case AccountPenalty.AUTH_FAILED:
            return f"auth failed{seconds}"


def _time(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 120 else f"{seconds:g} s"


def _client_cells(misdeed: Misdeed) -> Iterator[str]:
    yield misdeed.what
    yield misdeed.asked.value if misdeed.asked is not Asked.BOTH else "both"
    yield "nothing" if misdeed.told is None else spelled(misdeed.told)
    yield f"`{misdeed.state}`, {misdeed.status}" if misdeed.state else "none"
    yield misdeed.bill.value
    yield misdeed.upstream


if __name__ == "__main__":
    PAGE.write_text(page())
