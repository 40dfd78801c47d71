"""Changes of the audit log in words."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.audit_words import changes_in_words

USD = 1_000_000


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            {"budget_usd_month": 20 * USD},
            {"budget_usd_month": 50 * USD},
            "monthly budget from $20.00 to $50.00",
        ),
        ({"budget": USD}, {"budget": 2_500_000}, "total budget from 1 unit to 2.5 units"),
        ({}, {"requests_per_minute": 1200}, "requests per minute set to 1\u202f200"),
        ({"expires_at": 0}, {}, "expiry 1970-01-01T00:00:00Z removed"),
        ({"models": ["a", "b"]}, {"models": []}, "models from a, b to none"),
        ({"probe": False}, {"probe": True}, "health checks only from no to yes"),
        (None, {"group": "default", "probe": False}, "group set to default"),
        ({"group": "default"}, None, "group default removed"),
        ({"x": {"deep": 1}}, {"x": "long …"}, 'x from {"deep":1} to long …'),
    ],
)
def test_words(before: dict[str, Any] | None, after: dict[str, Any] | None, words: str) -> None:
    assert list(changes_in_words(before, after)) == [words]


def test_nothing_changed() -> None:
    assert list(changes_in_words(None, None)) == []
