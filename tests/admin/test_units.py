"""Formatted units and prices."""

from __future__ import annotations

import pytest

from gateway.admin.units import format_amount, format_cost, format_price, format_units, format_usd
from gateway.config.limits import Money
from gateway.core.limits import Currency


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
    assert format_cost(1_000_000, 0, Money()) == "1 unit"
    assert format_price(5, Money(unit_price=3)) is None, "dollars are in the rows"
    assert format_cost(2_000_000, 0, Money(unit_price=3, currency="EUR")) == "2 units (6.00 EUR)"


@pytest.mark.parametrize(
    ("micro", "exact", "short"),
    [
        (0, "$0.00", "$0.00"),
        (1, "$0.000001", "< $0.0001"),
        (99, "$0.000099", "< $0.0001"),
        (123_456, "$0.123456", "$0.1235"),
        (2_500_000, "$2.50", "$2.50"),
        (1_234_567_891, "$1 234.567891", "$1 234.57"),
    ],
)
def test_dollars(micro: int, exact: str, short: str) -> None:
    assert format_amount(micro, Currency.USD).replace("\u202f", " ") == exact
    assert format_usd(micro).replace("\u202f", " ") == short
    assert format_cost(1_000_000, micro, Money()) == (
        f"1 unit ({format_amount(micro, Currency.USD)})" if micro else "1 unit"
    )
