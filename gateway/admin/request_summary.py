"""An exchange told in sentences: who was asked and why, what came of it, what was done then.

It must not know where rows come from, nor how a screen looks. Words of the ledger that it does not
know are told as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gateway.admin.units import format_cost, format_count, format_duration
from gateway.config import Money
from gateway.store.records import ExchangeState

RowFields = dict[str, Any]
"""A row of an exchange or of an attempt, by column."""

Section = tuple[str, Sequence[str]]
"""A sentence, and those that explain it."""

_NO_ANSWER: Final = 499
"""The status of a row whose client left before it got any."""

_BLAMED: Final = {
    "client": "the client's request is at fault",
    "account": "the account is at fault",
    "capacity": "nothing is at fault but the load",
    "transport": "the line is at fault",
    "upstream": "the upstream is at fault",
}
_EFFECTS: Final = {
    "none": "nothing counts against the account",
    "failure": "it counts as a failure of the account",
    "cool": "the account rests for a while",
    "open": "the account is not asked for this model for a while",
    "ban": "the account is not asked for a while",
}
_NEXT: Final = {
    "other account": "Then another account was asked.",
    "same account": "Then the same account was asked again.",
    "gave up": "Then the gateway gave up.",
    "told the client": "Then the client was told.",
}
_COUNTED: Final = {
    "upstream": "The upstream counted the tokens.",
    "estimated": "The tokens are estimated: no upstream told how many there were.",
}


def headline(row: RowFields, key: str, at: str) -> str:
    """Who asked for what, `at` what time; `key` is the name of the client's key."""
    asked = f"{key} asked {row['endpoint']} for {row['model'] or 'no model'}"
    return f"{asked} at {at}."


def sections(row: RowFields, attempts: Sequence[RowFields], money: Money) -> Iterator[Section]:
    """From the conversation's account to what it cost, in the order in which it happened."""
    if row["notes"]:
        yield f"What was odd and let pass: {row['notes']}.", ()
    if row["affinity"]:
        yield _affinity(row), ()
    for number, attempt in enumerate(attempts, 1):
        yield f"{number}. {_asked(attempt)}", tuple(_outcome(attempt))
    if not attempts:
        yield _intended(row), ()
    if row["state"] == ExchangeState.RUNNING:
        yield "It has not ended.", tuple(_expected(row, money))
        return
    yield _end(row), ()
    yield _cost(row, money), tuple(_reckoning(row))


def _affinity(row: RowFields) -> str:
    known = f"The conversation is known by its {row['affinity']}"
    kept = row["affinity_kept"]
    if kept is None:
        return f"{known}."
    if kept == "yes":
        return f"{known} and kept its account."
    return f"{known} and did not keep its account: {kept.removeprefix('no: ')}."


def _intended(row: RowFields) -> str:
    """What a row alone tells: of one that is open, or was written before attempts were."""
    if row["channel"] is None:
        return "No upstream was asked."
    return f"{row['channel']}/{row['account']} was asked for {row['upstream_model']}."


def _asked(attempt: RowFields) -> str:
    who = f"{attempt['channel']}/{attempt['account']} was asked for {attempt['upstream_model']}"
    how = f"({attempt['format']}, {attempt['lane']})"
    return f"{who} {how} after {format_duration(attempt['started_us'])}: {attempt['reason']}."


def _outcome(attempt: RowFields) -> Iterator[str]:
    yield _answer(attempt)
    if attempt["verdict"] != "ok":
        yield _verdict(attempt)
    if attempt["next"]:
        yield _NEXT.get(attempt["next"], f"Then: {attempt['next']}.")


def _answer(attempt: RowFields) -> str:
    took, first = format_duration(attempt["total_us"]), format_duration(attempt["first_event_us"])
    came = f"It answered {attempt['status']}" if attempt["status"] else "No answer came"
    said = f": {attempt['error']}" if attempt["error"] else "."
    event = f", its first event after {first}" if first else ""
    return f"{came} in {took}{event}{said}"


def _verdict(attempt: RowFields) -> str:
    blame, effect = attempt["blame"], attempt["effect"]
    meant = [_BLAMED.get(blame, blame), _EFFECTS.get(effect, effect)]
    because = " and ".join(each for each in meant if each)
    return f"Judged as {attempt['verdict']}" + (f": {because}." if because else ".")


def _end(row: RowFields) -> str:
    """What the client got."""
    if row["state"] == ExchangeState.INTERRUPTED:
        return "The gateway died before the end, so what the client got is not known: interrupted."
    status, code = row["status"], row["error_code"]
    got = str(status) if status and status != _NO_ANSWER else "nothing"
    told = f"{got} ({code})" if code else got
    first = format_duration(row["first_event_us"])
    event = f", the first event after {first}" if first else ""
    return f"The client got {told} in {format_duration(row['total_us'])}{event}: {row['state']}."


def _expected(row: RowFields, money: Money) -> Iterator[str]:
    if row["expected_input_tokens"]:
        tokens, micro = row["expected_input_tokens"], row["expected_micro"]
        yield (
            f"Its prompt is thought to be {format_count(tokens)} tokens and to cost"
            f" {format_cost(micro, money)}: that is billed should nothing more be known."
        )


def _cost(row: RowFields, money: Money) -> str:
    if row["usage_source"] == "none":
        return "No tokens were counted, and it cost nothing."
    read, written = row["cache_read_tokens"], row["cache_write_tokens"]
    hour = row["cache_write_1h_tokens"]
    kept = f", {format_count(hour)} of them for an hour" if hour else ""
    return (
        f"It cost {format_cost(row['cost_micro'], money)}:"
        f" {format_count(row['input_tokens'])} input tokens"
        f" ({format_count(read)} read from the cache, {format_count(written)} written to it{kept})"
        f" and {format_count(row['output_tokens'])} output tokens"
        f" ({format_count(row['reasoning_tokens'])} of reasoning)."
    )


def _reckoning(row: RowFields) -> Iterator[str]:
    """Whose figures these are, and what they were multiplied by."""
    if row["usage_source"] == "none":
        return
    yield _COUNTED.get(row["usage_source"], f"The tokens were counted by: {row['usage_source']}.")
    if row["tariff"]:
        yield f"Multiplied by: {row['tariff']}."
