"""Prints what a request cost line by line: tokens × rate × tier."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import orjson

from gateway.admin.units import format_count, format_exact_usd

_PRICES: Final = "USD per million tokens"
_SEARCHES: Final = "USD per 1000 searches: "
_REQUESTS: Final = "USD per 1000 requests: "
_GROUP: Final = re.compile(r"\bgroup ([0-9.E+-]+)")
_FACTOR: Final = re.compile(r"(.*): times ([0-9.E+-]+)")


def receipt_lines(usage: dict[str, Any], tariff: str | None) -> Iterator[str]:
    """Yields a line for each kind of usage in the fields of a row, with its part of the dollars.
    Nothing where the tariff has no prices, or those of several upstream requests."""
    multipliers, *prices = (tariff or "").split("; ")
    group = _GROUP.search(multipliers)
    levels = [each for each in prices if each.startswith(_PRICES)]
    if len(levels) != 1 or group is None:
        return
    stated = [each.rpartition(" ") for each in levels[0].partition(": ")[2].split(", ")]
    rates = {name: Decimal(rate) for name, _, rate in stated}
    factor, suffix = Decimal(group[1]), "" if group[1] == "1" else f" × {group[1]} (group)"
    of_tokens, shown = factor, suffix
    for text in prices:
        if found := _FACTOR.fullmatch(text):
            of_tokens *= Decimal(found[2])
            shown += f" × {found[2]} ({found[1]})"
    for kind, tokens in _kinds(usage, has_reasoning="reasoning" in rates):
        if tokens:
            dollars = tokens * rates.get(kind, Decimal(0)) * of_tokens / 10**6
            rate = f"{rates.get(kind, 0):f}"
            yield f"{format_count(tokens)} {kind} tokens × ${rate} / 1M{shown} = {_usd(dollars)}"
    for prefix, what, number in (
        (_SEARCHES, "searches", usage["web_searches"]),
        (_REQUESTS, "requests", 1),
    ):
        price = next((each.removeprefix(prefix) for each in prices if each.startswith(prefix)), "")
        if price and number:
            dollars = number * Decimal(price) * factor / 1000
            yield f"{number} {what} × ${price} / 1000{suffix} = {_usd(dollars)}"


def attempt_lines(receipt: str | None) -> Iterator[str]:
    """Yields what a failed attempt has cost, or each upstream request of one that took several,
    with its lines."""
    if not receipt:
        return
    kept = orjson.loads(receipt)
    if requests := kept.get("requests"):
        for number, each in enumerate(requests, 1):
            yield f"Request {number}: {format_exact_usd(each['usd_micro'])}."
            yield from receipt_lines(each["usage"], each["tariff"])
        return
    how = "reported by the upstream" if kept["source"] == "upstream" else "estimated"
    charged = "charged" if kept["charged"] else "not charged"
    yield f"Cost of this attempt: {format_exact_usd(kept['usd_micro'])}, {charged}; tokens {how}."
    yield from receipt_lines(kept["usage"], kept["tariff"])


def _kinds(usage: dict[str, Any], *, has_reasoning: bool) -> Iterator[tuple[str, int]]:
    read, written = usage["cache_read_tokens"], usage["cache_write_tokens"]
    hour, output = usage["cache_write_1h_tokens"], usage["output_tokens"]
    reasoning = min(usage["reasoning_tokens"], output) if has_reasoning else 0
    yield "input", max(0, usage["input_tokens"] - read - written)
    yield "cache read", read
    yield "cache write", written - hour
    yield "cache write 1h", hour
    yield "output", output - reasoning
    yield "reasoning", reasoning


def _usd(dollars: Decimal) -> str:
    text = f"{dollars.normalize():f}"
    return f"${text}"
