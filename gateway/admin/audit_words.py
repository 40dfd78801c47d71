"""The changes of an audit row in words: which field, from what, to what, in dollars and dates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from gateway.admin.units import DIMENSION_BUDGET_TITLES, WINDOW_TITLES, format_amount, format_count
from gateway.core.limits import BUDGET_SETTINGS, BUDGETS
from gateway.quota.budgets import format_utc

_TITLES: Final = {
    **{name: title.lower() for name, title in DIMENSION_BUDGET_TITLES.items()},
    "requests_per_minute": "requests per minute",
    "tokens_per_minute": "tokens per minute",
    "concurrent": "requests at once",
    "expires_at": "expiry",
    "probe": "health checks only",
} | {name: f"{WINDOW_TITLES[kind.window].lower()} budget" for name, kind in BUDGETS.items()}


def changes_in_words(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Iterator[str]:
    """Yields a text for each field: `monthly budget from $20.00 to $50.00`. A field that is missing
    on one side has had no value, or has none any more. Flags that a new record does not have are
    left out."""
    old, new = before or {}, after or {}
    for name in {**old, **new}:
        title = _TITLES.get(name, name.replace("_", " "))
        was, now = (_words(name, each[name]) if name in each else None for each in (old, new))
        if was is not None and now is not None:
            yield f"{title} from {was} to {now}"
        elif now is not None and new[name] is not False:
            yield f"{title} set to {now}"
        elif was is not None:
            yield f"{title} {was} removed"


def _words(name: str, value: Any) -> str:
    """Values that are too long for the log are stored as texts."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if name in BUDGET_SETTINGS:
            return format_amount(value, BUDGET_SETTINGS[name].currency)
        return format_utc(value) if name.endswith("_at") else format_count(value)
    if isinstance(value, list):
        return ", ".join(_words(name, each) for each in value) or "none"
    return value if isinstance(value, str) else orjson.dumps(value).decode()
