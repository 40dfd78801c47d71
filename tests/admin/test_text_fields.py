"""One table reads and writes the settings of keys and groups for files, options and forms."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.text_fields import TEXT_FIELDS, format_fields, parse_field, short_name
from gateway.core.limits import BUDGETS, LIMIT_NAMES, Limits
from gateway.store.records import Group, Token

NOW = 1_790_000_000_000_000
DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("name", " none ", "none"),
        ("note", "none", None),
        ("note", "", None),
        ("expires_at", "30d", NOW + 30 * DAY),
        ("expires_at", "never", None),
        ("probe", "Yes", True),
        ("probe", "", False),
        ("models", "beta-*;family:alpha, x\r\ny", ["beta-*", "family:alpha", "x", "y"]),
        ("patterns", "", []),
        ("user_agents", "claude cli/1 (a, b; c)\n\n codex ", ["claude cli/1 (a, b; c)", "codex"]),
        ("tokens_per_minute", "100k", 100_000),
        ("budget", "0.5", 500_000),
        ("budget_day", "none", None),
        ("budget_usd", "$2.50", 2_500_000),
        ("budget_usd_week", "1k", 1_000_000_000),
    ],
)
def test_values_of_texts(name: str, text: str, value: Any) -> None:
    assert parse_field(name, text, NOW) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("probe", "perhaps", "must be yes or no"),
        ("concurrent", "0.5", "must be a whole number"),
        ("budget", "5X", "must be units"),
        ("budget", "$5", "must be units"),
        ("budget_usd", "5 dollars", "must be US dollars"),
        ("expires_at", "soon", "must be a date"),
    ],
)
def test_invalid_texts(name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_field(name, text, NOW)


def test_texts_of_values_are_short_and_absent_values_are_empty() -> None:
    limits = Limits(requests_per_minute=0, tokens_per_minute=250_000, budget=1_234_567_890_000)
    assert format_fields(limits, LIMIT_NAMES) == {
        "requests_per_minute": "0",
        "tokens_per_minute": "250k",
        "concurrent": "",
        "budget": "1234567.89",
    } | dict.fromkeys((name for name in BUDGETS if name != "budget"), "")


def test_every_field_belongs_to_a_record() -> None:
    fields = {*Token.__dataclass_fields__, *Group.__dataclass_fields__, *LIMIT_NAMES, "key"}
    assert set(TEXT_FIELDS) <= fields
    names = [short_name(name) for name in TEXT_FIELDS]
    assert len(set(names)) == len(names)
