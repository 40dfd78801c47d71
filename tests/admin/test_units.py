"""Formatted units and prices."""

from __future__ import annotations

import pytest

from gateway.admin.units import format_cost, format_price, format_units
from gateway.config.limits import Money


@pytest.mark.parametrize(
    ("micro", "formatted"),
    [
        (0, "0"),
        (1, "0.000001"),
        (1_500_000, "1.5"),
        (999_000_000, "999"),
        (1_000_000_000, "1 000"),
        (12_345_678_000_000, "12 345 678"),
        (1_234_000_010, "1 234.00001"),
    ],
)
def test_units_are_exact(micro: int, formatted: str) -> None:
    assert format_units(micro).replace("\u202f", " ") == formatted


@pytest.mark.parametrize(
    ("micro", "formatted"),
    [
        (0, "0.00 EUR"),
        (1, "< 0.0001 EUR"),
        (50_000_000, "0.0001 EUR"),
        (61_728_500_000, "0.1235 EUR"),
        (500_000_000_000, "1.00 EUR"),
        (10**15, "2 000.00 EUR"),
    ],
)
def test_prices(micro: int, formatted: str) -> None:
    assert (format_price(micro, Money(unit_price=0.000002, currency="EUR")) or "").replace(
        "\u202f", " "
    ) == formatted


def test_units_without_a_price() -> None:
    assert format_price(5, Money()) is None
    assert format_cost(1_000_000, Money()) == "1 unit"
    assert format_cost(2_000_000, Money(unit_price=3)) == "2 units (6.00 USD)"
