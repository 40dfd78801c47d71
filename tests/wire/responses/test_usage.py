"""Token counts of responses upstreams."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.events import Usage
from gateway.wire.responses.usage import parse_usage, render_usage


def test_counts() -> None:
    assert parse_usage(
        {
            "usage": {
                "input_tokens": 135,
                "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 30},
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 3},
                "total_tokens": 142,
            },
            "tool_usage": {"web_search": {"num_requests": 2}},
        }
    ) == Usage(
        input_tokens=135,
        cache_read_tokens=100,
        cache_write_tokens=30,
        output_tokens=7,
        reasoning_tokens=3,
        web_searches=2,
    )


@pytest.mark.parametrize("nothing", [None, {}, [], "none", 7])
def test_no_usage(nothing: Any) -> None:
    assert parse_usage({"usage": nothing}) is None
    assert parse_usage({"usage": nothing}, Usage(input_tokens=3)) == Usage(input_tokens=3)


def test_missing_details() -> None:
    assert parse_usage({"usage": {"input_tokens": 5, "output_tokens": 2}}) == Usage(
        input_tokens=5, output_tokens=2
    )


def test_parts_never_exceed_their_total() -> None:
    """Some upstreams count reasoning in addition to the output, or the cache to the input."""
    usage = Usage(
        input_tokens=10,
        cache_read_tokens=8,
        cache_write_tokens=8,
        output_tokens=3,
        reasoning_tokens=9,
    )
    assert render_usage(usage) == {
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 2},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 13,
        }
    }
