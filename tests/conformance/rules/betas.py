"""Which values of `anthropic-beta` a messages vendor knows. Independent of who asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, get_args

from anthropic.types import AnthropicBetaParam

_OF_AGENTS: Final = {
    *("claude-code-20250219", "mid-conversation-system-2026-04-07"),
    *("advanced-tool-use-2025-11-20", "effort-2025-11-24", "prompt-caching-scope-2026-01-05"),
}
"""Values that agents send and the stock library does not name."""
_KNOWN: Final = {
    value for alternative in get_args(AnthropicBetaParam) for value in get_args(alternative)
} | _OF_AGENTS


def unknown_betas(headers: Iterable[str]) -> Iterator[str]:
    values = [value.strip() for header in headers for value in header.split(",")]
    for value in values:
        if value not in _KNOWN:
            yield f"anthropic-beta: Unexpected value {value!r}"
