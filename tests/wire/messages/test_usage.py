"""Token counts of messages upstreams: disjoint parts, in several reports."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import Usage
from gateway.wire.messages.usage import merge_usage, parse_usage, render_usage


def usage(*reports: Any) -> Usage | None:
    counts = None
    for report in reports:
        counts = merge_usage(counts, report)
    return parse_usage(counts)


def test_prompt_tokens_are_the_sum_of_their_parts() -> None:
    assert usage(
        {
            "input_tokens": 5,
            "cache_creation_input_tokens": 30,
            "cache_read_input_tokens": 100,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
            "output_tokens": 7,
            "output_tokens_details": {"thinking_tokens": 3},
            "server_tool_use": {"web_search_requests": 2},
        }
    ) == Usage(
        input_tokens=135,
        cache_read_tokens=100,
        cache_write_tokens=30,
        cache_write_1h_tokens=20,
        output_tokens=7,
        reasoning_tokens=3,
        web_searches=2,
    )


@pytest.mark.parametrize("nothing", [None, {}, [], "none", 7])
def test_no_usage(nothing: Any) -> None:
    assert usage(nothing) is None
    assert usage({"input_tokens": 3}, nothing) == Usage(input_tokens=3)


def test_zeros_only_are_no_usage() -> None:
    assert usage({"input_tokens": 0, "output_tokens": 0}) is None


@pytest.mark.parametrize("reported", [0, 20, None])
def test_hourly_cache_writes_never_exceed_all_cache_writes(reported: int | None) -> None:
    cache_writes = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}
    counted = usage(
        {"input_tokens": 5, "cache_creation_input_tokens": reported, "cache_creation": cache_writes}
    )
    assert counted == Usage(input_tokens=35, cache_write_tokens=30, cache_write_1h_tokens=20)


def test_last_count_wins() -> None:
    first = {"input_tokens": 9, "output_tokens": 1}
    assert usage(first, {"output_tokens": 4}, {"output_tokens": 6}) == Usage(
        input_tokens=9, output_tokens=6
    )


def test_nulls_and_zeros_are_ignored() -> None:
    first = {"input_tokens": 9, "cache_read_input_tokens": 90, "output_tokens": 1}
    last = {"input_tokens": 0, "cache_read_input_tokens": None, "output_tokens": 0}
    assert usage(first, last) == Usage(input_tokens=99, cache_read_tokens=90, output_tokens=1)


def test_fully_cached_prompt_replaces_the_estimate() -> None:
    last = {"input_tokens": 0, "cache_read_input_tokens": 100, "output_tokens": 4}
    assert usage({"input_tokens": 80, "output_tokens": 0}, last) == Usage(
        input_tokens=100, cache_read_tokens=100, output_tokens=4
    )


def test_invalid_counts_are_zero() -> None:
    assert usage({"input_tokens": -4, "output_tokens": "9"}) is None


def test_cached_and_fresh_counts_are_separate() -> None:
    usage = Usage(
        input_tokens=135,
        cache_read_tokens=100,
        cache_write_tokens=30,
        cache_write_1h_tokens=20,
        output_tokens=7,
        reasoning_tokens=3,
        web_searches=2,
    )
    assert render_usage(usage) == {
        "input_tokens": 5,
        "cache_creation_input_tokens": 30,
        "cache_read_input_tokens": 100,
        "output_tokens": 7,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        "output_tokens_details": {"thinking_tokens": 3},
        "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 0},
        "service_tier": "standard",
    }


@given(st.lists(st.integers(0, 1000), min_size=7, max_size=7))
def test_parts_never_exceed_totals(counts: list[int]) -> None:
    total, read, cache_writes, an_hour, output, reasoning, searches = counts
    report = render_usage(
        Usage(
            input_tokens=total,
            cache_read_tokens=read,
            cache_write_tokens=cache_writes,
            cache_write_1h_tokens=an_hour,
            output_tokens=output,
            reasoning_tokens=reasoning,
            web_searches=searches,
        )
    )
    parts = [report[f"{name}input_tokens"] for name in ("", "cache_creation_", "cache_read_")]
    assert sum(parts) == total
    assert min(parts) >= 0
    assert sum(report.get("cache_creation", {}).values()) in (0, parts[1])
    assert report.get("output_tokens_details", {}).get("thinking_tokens", 0) <= output
    if total or output:
        again = usage(report)
        assert again is not None
        assert (again.input_tokens, again.output_tokens) == (total, output)
