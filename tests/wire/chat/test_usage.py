"""Token counts of chat upstreams, and how reports that follow each other add up."""

from __future__ import annotations

import pytest

from gateway.core.events import Usage
from gateway.wire.chat.usage import parse_usage, render_usage

FULL = {
    "prompt_tokens": 100,
    "completion_tokens": 40,
    "total_tokens": 140,
    "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 20},
    "completion_tokens_details": {"reasoning_tokens": 30},
}


def test_prompt_tokens_include_cached_tokens() -> None:
    usage = parse_usage(FULL)
    assert usage == Usage(
        input_tokens=100,
        cache_read_tokens=60,
        cache_write_tokens=20,
        output_tokens=40,
        reasoning_tokens=30,
    )
    assert usage is not None
    assert (usage.fresh_input_tokens, usage.total_tokens) == (20, 140)


def test_last_count_wins() -> None:
    before = parse_usage(FULL)
    assert parse_usage({"completion_tokens": 50}, before) == Usage(
        input_tokens=100,
        cache_read_tokens=60,
        cache_write_tokens=20,
        output_tokens=50,
        reasoning_tokens=30,
    )
    assert parse_usage({"prompt_tokens": 0, "completion_tokens": 0}, before) == before


@pytest.mark.parametrize("nothing", [None, {}, [], "12", 7, {"prompt_tokens": "12"}])
def test_empty_usage_is_none(nothing: object) -> None:
    assert parse_usage(nothing) is None
    assert parse_usage(nothing, Usage(input_tokens=1)) == Usage(input_tokens=1)


def test_parts_never_exceed_totals() -> None:
    """Some upstreams count reasoning beside the completion, or the cache beside the prompt."""
    usage = Usage(
        input_tokens=10,
        cache_read_tokens=8,
        cache_write_tokens=8,
        output_tokens=3,
        reasoning_tokens=9,
    )
    rendered = render_usage(usage)
    assert rendered["total_tokens"] == 13
    assert rendered["prompt_tokens_details"]["cached_tokens"] == 8
    assert rendered["prompt_tokens_details"]["cache_write_tokens"] == 2
    assert rendered["completion_tokens_details"]["reasoning_tokens"] == 3
