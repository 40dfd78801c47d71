"""Prices and costs, compared with fractions."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.limits import Rates
from gateway.config.schema import Model
from gateway.core.events import Usage
from gateway.core.formats import Family
from gateway.core.limits import Cost
from gateway.quota.pricing import MAX_COST, Price

FRESH = Usage(input_tokens=1)


def model(multiplier: float = 1.0, **rates: float) -> Model:
    return Model(id="alpha-1", family=Family.ALPHA, multiplier=multiplier, rates=Rates(**rates))


def price(multiplier: float = 1.0, group: str = "1", **rates: float) -> Price:
    return Price.for_model(model(multiplier, **rates), group)


def units(cost: Cost) -> int:
    assert cost.usd == 0
    return cost.units


def test_an_uncached_input_token_of_a_default_model_is_a_unit() -> None:
    assert units(price().cost(FRESH)) == units(price().input_cost(1)) == 1_000_000
    assert units(price().cost(Usage())) == units(price().input_cost(0)) == 0


@pytest.mark.parametrize(
    ("usage", "micro"),
    [
        (Usage(input_tokens=7), 7 * 15_000_000),
        (Usage(input_tokens=7, cache_read_tokens=7), 7 * 1_500_000),
        (Usage(input_tokens=7, cache_write_tokens=7), 7 * 18_750_000),
        (Usage(input_tokens=7, cache_write_tokens=7, cache_write_1h_tokens=7), 7 * 30_000_000),
        (Usage(input_tokens=7, cache_write_tokens=7, cache_write_1h_tokens=2), 153_750_000),
        (Usage(output_tokens=7), 7 * 75_000_000),
        (Usage(output_tokens=7, reasoning_tokens=5), 7 * 75_000_000),
        (Usage(web_searches=9), 0),
        (
            Usage(
                input_tokens=100,
                cache_read_tokens=50,
                cache_write_tokens=20,
                cache_write_1h_tokens=5,
                output_tokens=10,
            ),
            30 * 15_000_000 + 50 * 1_500_000 + 15 * 18_750_000 + 5 * 30_000_000 + 10 * 75_000_000,
        ),
    ],
)
def test_every_kind_of_token_has_its_price(usage: Usage, micro: int) -> None:
    own = price(2.5, "6", completion=5, cache_read=0.1, cache_write=1.25, cache_write_1h=2)
    assert units(own.cost(usage)) == micro
    assert units(own.input_cost(7)) == 7 * 15_000_000


def test_multipliers_are_exact_decimals() -> None:
    """A tenth is exact, although the float is a little more."""
    own = price(0.1, "0.1", cache_read=0.1)
    assert units(own.cost(Usage(input_tokens=500, cache_read_tokens=500))) == 500_000
    assert units(price(0.1, "0.000005").cost(FRESH)) == 1  # half a micro-unit
    assert units(price(0.3, "0.000005").input_cost(1)) == 2  # one and a half


@pytest.mark.parametrize(
    ("multiplier", "tokens", "micro"),
    [
        ("0.0000005", 1, 1),
        ("0.000000499999999", 1, 0),
        ("0.0000005", 3, 2),
        ("0.0000015", 1, 2),
        ("0.0000024", 1, 2),
        ("0.0000026", 1, 3),
        ("0.000001", 2, 2),
    ],
)
def test_halves_are_rounded_up_and_only_once(multiplier: str, tokens: int, micro: int) -> None:
    assert units(price(group=multiplier).cost(Usage(input_tokens=tokens))) == micro
    assert units(price(group=multiplier).input_cost(tokens)) == micro


def test_only_the_sum_is_rounded() -> None:
    own = price(group="0.0000004")
    parts = Usage(input_tokens=3, cache_read_tokens=1, cache_write_tokens=1, output_tokens=1)
    assert units(own.cost(parts)) == 2


def test_a_multiplier_of_0_costs_nothing() -> None:
    all_kinds = Usage(input_tokens=10, cache_read_tokens=3, output_tokens=10)
    assert units(price(0.0).cost(all_kinds)) == 0
    assert units(price(group="0").cost(all_kinds)) == 0
    assert units(price(completion=0, cache_read=0).cost(all_kinds)) == 7_000_000


@pytest.mark.parametrize(
    "usage",
    [
        Usage(cache_write_1h_tokens=9),
        Usage(input_tokens=2, cache_write_tokens=2, cache_write_1h_tokens=9),
    ],
)
def test_costs_are_never_negative(usage: Usage) -> None:
    """Not even for inconsistent usage: more 1h writes than writes."""
    assert units(price(cache_write=2, cache_write_1h=1).cost(usage)) == 0


@pytest.mark.parametrize(
    ("multiplier", "group", "cost"),
    [
        (1e-300, "1e6", 0),
        (5e-324, "1", 0),
        (1.0, "1e-999999999", 0),
        (1e-45, "1", 0),
        (0.12345678901234568, "1", 123457),
        (0.000001, "1.000000001", 1),
        (1e6, "1e6", 10**18),
    ],
)
def test_extreme_multipliers(multiplier: float, group: str, cost: int) -> None:
    own = price(multiplier, group)
    assert units(own.cost(FRESH)) == min(cost, MAX_COST)
    assert own.units.denominator < 10**120


def test_costs_are_limited() -> None:
    highest = price(1e6, "1000000", completion=1e6, cache_read=1e6)
    assert (
        units(highest.cost(Usage(output_tokens=10**9)))
        == units(highest.input_cost(10**9))
        == MAX_COST
    )
    assert MAX_COST == 100_000_000_000_000
    assert 92_000 * MAX_COST < 2**63
    just = price(group="100")
    assert units(just.cost(Usage(input_tokens=1_000_000))) == MAX_COST
    assert units(just.cost(Usage(input_tokens=999_999))) == MAX_COST - 10**8


@pytest.mark.parametrize("least", ["1e-45", "0.000000001"])
def test_small_multipliers(least: str) -> None:
    fine = price(1e6, least, completion=1e6)
    tokens = 10**34 if least == "1e-45" else 3
    assert units(fine.cost(Usage(output_tokens=tokens))) == round(tokens * Decimal(least) * 10**18)


@pytest.mark.parametrize(
    "text", ["", "many", "nan", "snan", "inf", "-1", "-0.1", "1000000.1", "1e7", "1e999999999999"]
)
def test_invalid_multipliers(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"^(not a number: '|a multiplier is from 0 to 1,000,000, not )"
    ) as message:
        price(group=text)
    assert text in str(message.value)


def test_the_maximum_multiplier_is_valid() -> None:
    assert units(price(group="1000000").input_cost(1)) == 10**12


@pytest.mark.parametrize(
    ("multiplier", "group", "rates", "text"),
    [
        (1.0, "1", {}, "model 1, group 1"),
        (
            *(2.5, "1", {"completion": 5, "cache_read": 0.1}),
            "model 2.5, group 1, completion 5, cache read 0.1",
        ),
        (
            *(100.0, "1.50", {"cache_write": 1.25, "cache_write_1h": 2}),
            "model 100, group 1.5, cache write 1.25, cache write 1h 2",
        ),
        (10.0, "0.000000001", {"completion": 0}, "model 10, group 1E-9, completion 0"),
        (1e6, "0.5", {}, "model 1000000, group 0.5"),
        (1e-300, "10", {}, "model 0, group 10"),
    ],
)
def test_descriptions(multiplier: float, group: str, rates: dict[str, float], text: str) -> None:
    assert price(multiplier, group, **rates).description == text


MULTIPLIERS = st.one_of(
    st.sampled_from([0.0, 1.0, 0.1, 0.25, 1.25, 2.5, 5.0, 0.375]),
    st.floats(0, 100, allow_nan=False),
    st.floats(1e-9, 1e-6),
)
GROUPS = st.one_of(
    st.sampled_from(["0", "1", "0.3", "1.5", "0.000000001", "0.0000005"]),
    st.decimals(0, 100, allow_nan=False, places=9).map(str),
)
COUNTS = st.one_of(st.integers(0, 9), st.integers(0, 2_000_000))


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    fresh, read, write, write_1h, output = (draw(COUNTS) for _ in range(5))
    return Usage(
        input_tokens=fresh + read + write + write_1h,
        cache_read_tokens=read,
        cache_write_tokens=write + write_1h,
        cache_write_1h_tokens=write_1h,
        output_tokens=output,
    )


@given(*[MULTIPLIERS] * 5, GROUPS, usages())
def test_costs_equal_exact_arithmetic(
    own: float, r: float, w5: float, w1: float, completion: float, group: str, usage: Usage
) -> None:
    def exactly(number: float | str) -> Fraction:
        return Fraction(Decimal(str(number)))

    tokens = (
        usage.fresh_input_tokens
        + usage.cache_read_tokens * exactly(r)
        + (usage.cache_write_tokens - usage.cache_write_1h_tokens) * exactly(w5)
        + usage.cache_write_1h_tokens * exactly(w1)
        + usage.output_tokens * exactly(completion)
    )
    micro = tokens * exactly(own) * exactly(group) * 1_000_000
    rounded = (2 * micro + 1) // 2
    rates = {"cache_read": r, "cache_write": w5, "cache_write_1h": w1, "completion": completion}
    cost = units(price(own, group, **rates).cost(usage))
    assert cost == min(rounded, MAX_COST)
    assert 0 <= cost < 2**63
