"""Prices in US dollars, beside multipliers or instead of them."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.limits import DatedPrices, Money, Rates
from gateway.config.schema import Model
from gateway.core.events import Usage
from gateway.core.formats import Family
from gateway.core.limits import Cost
from gateway.quota.pricing import MAX_COST, Price

ALL_KINDS = Usage(
    input_tokens=1_000,
    cache_read_tokens=500,
    cache_write_tokens=200,
    cache_write_1h_tokens=50,
    output_tokens=100,
    web_searches=3,
)
SONNET = {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75, "cache_write_1h": 6}


def price(
    prices: dict[str, float] | None, group: str = "1", multiplier: float = 1.0, **money: Any
) -> Price:
    model = Model(
        id="alpha-1",
        family=Family.ALPHA,
        multiplier=multiplier,
        rates=Rates(completion=5),
        price=None if prices is None else DatedPrices(**prices),
    )
    return Price.for_model(model, group, Money(**money))


def test_every_kind_of_token_has_its_price() -> None:
    """300 fresh, 500 read, 150 and 50 written, 100 of output, in millionths."""
    micro = 300 * 3 + 500 * 0.3 + 150 * 3.75 + 50 * 6 + 100 * 15
    assert price(SONNET).cost(ALL_KINDS).usd == round(micro + 0.01)
    assert price(SONNET).input_cost(7).usd == 21


def test_units_are_independent_of_the_prices() -> None:
    for prices in (None, SONNET):
        assert price(prices, "0.5", 2.0).cost(Usage(output_tokens=3)).units == 15_000_000
    assert price(None).usd is None
    assert price(None).cost(ALL_KINDS).usd == price(None).input_cost(9).usd == 0


def test_absent_prices_of_the_cache_are_those_of_input() -> None:
    flat = price({"input": 2, "output": 8})
    assert flat.cost(ALL_KINDS).usd == 1_000 * 2 + 100 * 8
    written = price({"input": 2, "output": 8, "cache_write": 3})
    assert written.cost(ALL_KINDS).usd == 800 * 2 + 200 * 3 + 100 * 8


def test_the_multiplier_of_the_group_applies_and_that_of_the_model_does_not() -> None:
    assert price(SONNET, "0.5", 100.0).cost(Usage(input_tokens=1_000_000)).usd == 1_500_000


def test_without_a_price_dollars_are_those_of_the_units() -> None:
    own = price(None, "2", 1.5, unit_price=0.000002)
    assert own.cost(Usage(input_tokens=1_000, output_tokens=10)) == Cost(3_150_000_000, 6_300)
    assert own.description == ("model 1.5, group 2, completion 5; USD per million units: 2")
    assert price(SONNET, unit_price=7).cost(Usage(input_tokens=1)).usd == 3
    assert price(None, unit_price=7, currency="EUR").usd is None


@pytest.mark.parametrize(
    ("prices", "money", "usd"),
    [
        (SONNET, {"web_search_price": 10}, 30_000),
        (None, {"web_search_price": 10}, 30_000),
        (SONNET, {"web_searches": 5000, "unit_price": 0.002}, 30_000),
        (SONNET, {"web_searches": 5000, "unit_price": 0.002, "web_search_price": 1}, 3_000),
        (SONNET, {"web_searches": 5000}, 0),
        (SONNET, {"web_searches": 5000, "unit_price": 0.002, "web_search_price": 0}, 0),
    ],
)
def test_searches(prices: dict[str, float] | None, money: dict[str, float], usd: int) -> None:
    assert price(prices, **money).cost(Usage(web_searches=3)).usd == usd


@pytest.mark.parametrize(
    ("prices", "money", "text"),
    [
        (
            SONNET,
            {"unit_price": 3},
            "USD per million tokens: input 3, output 15, cache read 0.3, cache write 3.75, "
            "cache write 1h 6",
        ),
        (
            {"input": 0.25, "output": 2},
            {"web_search_price": 10},
            "USD per million tokens: input 0.25, output 2, cache read 0.25, cache write 0.25, "
            "cache write 1h 0.25; USD per 1000 searches: 10",
        ),
    ],
)
def test_the_row_says_the_prices(
    prices: dict[str, float], money: dict[str, float], text: str
) -> None:
    assert price(prices, **money).description == f"model 1, group 1, completion 5; {text}"


@pytest.mark.parametrize(
    ("dollars", "tokens", "usd"),
    [(0.5, 1, 1), (0.49, 1, 0), (0.075, 20, 2), (0.075, 19, 1), (1e6, 10**9, MAX_COST)],
)
def test_a_sum_is_rounded_once_to_millionths_half_up(dollars: float, tokens: int, usd: int) -> None:
    own = price({"input": dollars, "output": 0})
    assert own.cost(Usage(input_tokens=tokens)).usd == own.input_cost(tokens).usd == usd


DOLLARS = st.one_of(
    st.sampled_from([0.0, 0.075, 0.1, 0.25, 3.0, 15.0, 75.0]), st.floats(0, 1000, allow_nan=False)
)


FIVE_DOLLARS = st.tuples(*[DOLLARS] * 5)
FIVE_COUNTS = st.tuples(*[st.integers(0, 10**6)] * 5)


@given(FIVE_DOLLARS, st.decimals(0, 10, allow_nan=False, places=9), FIVE_COUNTS)
def test_costs_equal_exact_arithmetic(
    dollars: tuple[float, ...], group: Decimal, counts: tuple[int, ...]
) -> None:
    fresh, output, read, write, hour = dollars
    numbers = [Fraction(Decimal(repr(each))) for each in dollars]
    exact = sum(number * count for number, count in zip(numbers, counts, strict=True))
    own = price(
        {
            "input": fresh,
            "output": output,
            "cache_read": read,
            "cache_write": write,
            "cache_write_1h": hour,
        },
        str(group),
    )
    usage = Usage(
        input_tokens=counts[0] + counts[2] + counts[3] + counts[4],
        output_tokens=counts[1],
        cache_read_tokens=counts[2],
        cache_write_tokens=counts[3] + counts[4],
        cache_write_1h_tokens=counts[4],
    )
    assert own.cost(usage).usd == (2 * exact * Fraction(group) + 1) // 2
