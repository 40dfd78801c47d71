"""Summarises a request in sentences: warnings, affinity, attempts, response, cost.

Stored values without a text of their own appear as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from gateway.admin.receipt import attempt_lines, receipt_lines
from gateway.admin.units import format_cost, format_count, format_duration
from gateway.store.records import DIMENSIONS, ExchangeState

if TYPE_CHECKING:  # commands start without what validates configurations
    from gateway.config.limits import Money

RowFields = dict[str, Any]
"""A row of a request or of an attempt, by column."""

Section = tuple[str, Sequence[str]]
"""A sentence and its details."""

_CLIENT_DISCONNECTED: Final = 499

_BLAME_TEXT: Final = {
    "client": "client error",
    "account": "account error",
    "capacity": "rate limited or overloaded",
    "transport": "network error",
    "upstream": "upstream error",
}
_PENALTY_TEXT: Final = {
    "none": "no penalty for the account",
    "failure": "counted as a failure of the account",
    "cool": "cooldown of the account for this model",
    "open": "circuit opened for this model",
    "ban": "account unavailable for all models",
}
_NEXT_TEXT: Final = {
    "other account": "Next: another account.",
    "same account": "Next: the same account again.",
    "told the client": "Next: the error is sent to the client.",
}
_USAGE_TEXT: Final = {
    "upstream": "Tokens reported by the upstream.",
    "estimated": "Tokens estimated: the upstream did not report all of them.",
}


def headline(row: RowFields, key: str, at: str) -> str:
    """`key` is the name of the client's key, `at` the formatted time."""
    model = f" for {row['model']}" if row["model"] else ""
    return f"{key} called {row['endpoint']}{model} at {at}."


def sections(
    row: RowFields,
    attempts: Sequence[RowFields],
    money: Money | None,
    searches: Sequence[RowFields] = (),
) -> Iterator[Section]:
    """Yields the sections in the order of the events."""
    if row["requests"] > 1:
        yield f"The last of {format_count(row['requests'])} requests that were refused alike.", ()
    if row["notes"]:
        yield f"Warnings: {row['notes']}.", ()
    stated = [f"{name.replace('_', ' ')} {row[name]}" for name in DIMENSIONS if row.get(name)]
    if stated:
        yield f"Stated by the client: {', '.join(stated)}.", ()
    if row["affinity"]:
        yield _affinity(row), ()
    for number, attempt in enumerate(attempts, 1):
        yield (
            f"{number}. {_candidate(attempt)}",
            (*_outcome(attempt), *attempt_lines(attempt.get("receipt"))),
        )
    if not attempts:  # it is running, or has none
        yield _upstream(row), ()
    if row["state"] == ExchangeState.RUNNING:
        yield "Still running.", tuple(_expected_cost(row, money))
        return
    if searches:
        number = len(searches)
        head = f"{number} web {'search' if number == 1 else 'searches'} by the gateway."
        yield head, tuple(map(_search, searches))
    yield _response(row), (f"{row['error_message']}.",) if row["error_message"] else ()
    yield _cost(row, money), tuple(_billing_details(row))


def _search(search: RowFields) -> str:
    count = search["results"]
    found = f"{count} result{'' if count == 1 else 's'}"
    outcome = search["error"] or found
    start, duration = format_duration(search["started_us"]), format_duration(search["total_us"])
    return f'"{search["query"]}" at {start}, {duration}: {outcome}.'


def _affinity(row: RowFields) -> str:
    kept = row["affinity_kept"]
    if kept is None:
        return f"Session affinity by {row['affinity']}."
    account = "kept" if kept == "yes" else f"not kept ({kept.removeprefix('no: ')})"
    return f"Session affinity by {row['affinity']}: account {account}."


def _upstream(row: RowFields) -> str:
    if row["channel"] is None:
        return "No upstream was called."
    return f"{row['channel']}/{row['account']} with {row['upstream_model']}."


def _candidate(attempt: RowFields) -> str:
    account = f"{attempt['channel']}/{attempt['account']} with {attempt['upstream_model']}"
    lane = f"({attempt['format']}, {attempt['lane']})"
    return f"{account} {lane} at {format_duration(attempt['started_us'])}: {attempt['reason']}."


def _outcome(attempt: RowFields) -> Iterator[str]:
    response = f"Response {attempt['status']}" if attempt["status"] else "No response"
    error = f": {attempt['error']}" if attempt["error"] else "."
    yield f"{response} {_timing(attempt)}{error}"
    if attempt["verdict"] != "ok":
        blame, penalty = attempt["blame"], attempt["effect"]
        texts = (_BLAME_TEXT.get(blame, blame), _PENALTY_TEXT.get(penalty, penalty))
        details = ", ".join(text for text in texts if text)
        yield f"Verdict: {attempt['verdict']}" + (f" ({details})." if details else ".")
    if attempt["next"]:
        yield _NEXT_TEXT.get(attempt["next"], f"Next: {attempt['next']}.")


def _timing(row: RowFields) -> str:
    first_event = format_duration(row["first_event_us"])
    ttft = f", TTFT {first_event}" if first_event else ""
    return f"in {format_duration(row['total_us'])}{ttft}"


def _response(row: RowFields) -> str:
    if row["state"] == ExchangeState.INTERRUPTED:
        return "Interrupted: the gateway exited before the end; the client's response is unknown."
    status, code = row["status"], row["error_code"]
    sent = str(status) if status and status != _CLIENT_DISCONNECTED else "none"
    error = f" ({code})" if code else ""
    return f"Response to the client: {sent}{error} {_timing(row)}: {row['state']}."


def _expected_cost(row: RowFields, money: Money | None) -> Iterator[str]:
    if row["expected_input_tokens"]:
        tokens = format_count(row["expected_input_tokens"])
        cost = format_cost(row["expected_micro"], row["expected_usd_micro"], money)
        yield f"Estimated prompt: {tokens} tokens, {cost}; billed if the usage stays unknown."


def _cost(row: RowFields, money: Money | None) -> str:
    if row["usage_source"] == "none":
        return "No tokens, no cost."
    hour, searches = row["cache_write_1h_tokens"], row["web_searches"]
    plural = "" if searches == 1 else "es"
    for_searches = f" and {format_count(searches)} web search{plural}" if searches else ""
    for_an_hour = f", {format_count(hour)} of them for an hour" if hour else ""
    return (
        f"Cost: {format_cost(row['cost_micro'], row['usd_micro'], money)} for"
        f" {format_count(row['input_tokens'])} input tokens"
        f" ({format_count(row['cache_read_tokens'])} read from the cache,"
        f" {format_count(row['cache_write_tokens'])} written to it{for_an_hour})"
        f" and {format_count(row['output_tokens'])} output tokens"
        f" ({format_count(row['reasoning_tokens'])} for reasoning){for_searches}."
    )


def _billing_details(row: RowFields) -> Iterator[str]:
    source = row["usage_source"]
    if source == "none":
        return
    yield _USAGE_TEXT.get(source, f"Tokens counted by: {source}.")
    yield from receipt_lines(row, row["tariff"])
    if row["tariff"]:
        multipliers, *prices = row["tariff"].split("; ")
        yield f"Multipliers: {multipliers}."
        yield from (f"{price}." for price in prices)
