"""Each cause alone and several at once: the parts of the difference add up to it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gateway.core.events import Usage
from gateway.quota.reconciliation import Billed, Cause, Own, explain
from gateway.quota.repricing import Terms

RATES = [Fraction(rate) for rate in (2, 10, Fraction(1, 5), Fraction(5, 2), 4, 10_000)]
FACTORS = {"priority": Fraction(2), "flex": Fraction(1, 2)}
USAGE = Usage(input_tokens=1000, cache_read_tokens=400, output_tokens=50)
COST = 600 * 2 + 80 + 500


def own(requests: int = 1, tier: str | None = None) -> Own:
    found, factor = Own(), FACTORS.get(tier or "", Fraction(1))
    terms = Terms(RATES, factor)
    for _ in range(requests):
        found.add(USAGE, int(COST * factor), terms)
    return found


def line(
    cost: int | Fraction | None = None,
    requests: int | None = 1,
    tier: str | None = None,
    **usage: int,
) -> Billed:
    counts = {name: getattr(USAGE, name) for name in Usage.__annotations__} | usage
    return Billed(Usage(**counts), requests, tier, None if cost is None else Fraction(cost))


def found(
    billed: list[Billed], own: Own | dict[str, Own], digits: int = 0
) -> dict[Cause, Fraction]:
    findings = explain(
        billed,
        own if isinstance(own, dict) else {"default": own},
        lambda tier: FACTORS.get(tier, Fraction(1)),
        lambda line: line.cost or Fraction(7),
        Fraction(digits),
    )
    sums: dict[Cause, Fraction] = {}
    for each in findings:
        sums[each.cause] = sums.get(each.cause, Fraction(0)) + each.cost
    return sums


@pytest.mark.parametrize(
    ("billed", "expected"),
    [
        (line(), {}),
        (line(COST), {}),
        (line(tier="default"), {}),
        (line(tier="priority"), {Cause.TIER: COST}),
        (line(COST // 2, tier="flex"), {Cause.TIER: -COST // 2}),
        (line(cache_read_tokens=300), {Cause.CACHE: 180}),
        (line(cache_write_tokens=100), {Cause.CACHE: 50}),
        (line(requests=None, cache_read_tokens=300), {Cause.CACHE: 180}),
        (line(output_tokens=60), {Cause.COUNT: 100}),
        (line(input_tokens=900, cache_read_tokens=300), {Cause.CACHE: 180, Cause.COUNT: -200}),
        (line(input_tokens=1100, requests=2), {Cause.NOT_OURS: 200}),
        (line(input_tokens=1100, requests=None), {Cause.NOT_OURS: 200}),
        (line(input_tokens=900, requests=None), {Cause.LOST: -200}),
        (line(COST + Fraction(1, 2)), {Cause.ROUNDING: Fraction(1, 2)}),
        (line(COST + 1), {Cause.PRICE: 1}),
        (line(2 * COST + 20, tier="priority"), {Cause.TIER: COST, Cause.PRICE: 20}),
    ],
)
def test_each_cause(billed: Billed, expected: dict[Cause, int]) -> None:
    assert found([billed], own()) == expected
    if billed.cost is not None:
        assert sum(expected.values()) == billed.cost - COST


def test_one_side_alone() -> None:
    assert found([line(), line(9)], {}) == {Cause.NOT_OURS: 7 + 9}
    assert found([], own(3)) == {Cause.LOST: -3 * COST}


def test_tiers_are_compared_as_they_are_mixed() -> None:
    mixed = {"priority": own(1, "priority"), "default": own()}
    same = [line(tier="priority"), line(tier="default")]
    assert found(same, mixed) == {}
    assert found([line(tier="priority"), line(tier="priority")], mixed) == {Cause.TIER: COST}
    assert found([line(tier="default")], mixed) == {Cause.LOST: -2 * COST}
    assert found([*same, line(tier="flex")], mixed) == {Cause.NOT_OURS: COST / 2}


def test_digits_that_the_bill_leaves_open() -> None:
    assert found([line(COST + 4000), line(COST)], own(2), digits=5000) == {Cause.ROUNDING: 4000}
