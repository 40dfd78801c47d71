"""Token counts."""

from __future__ import annotations

from gateway.core.events import Usage


def test_fresh_input_excludes_cache_reads_and_writes() -> None:
    usage = Usage(input_tokens=100, cache_read_tokens=60, cache_write_tokens=15, output_tokens=7)
    assert (usage.fresh_input_tokens, usage.total_tokens) == (25, 107)


def test_fresh_input_is_never_negative() -> None:
    assert Usage(input_tokens=5, cache_read_tokens=9).fresh_input_tokens == 0
