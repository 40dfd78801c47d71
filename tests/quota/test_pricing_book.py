"""Prices in dollars that depend on the length of the input, the service tier and the channel."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.config.limits import DatedPrices, Money
from gateway.config.schema import Model
from gateway.core.events import Usage
from gateway.core.formats import Family
from gateway.quota.pricing import Part, Price, price_periods

PRICE: dict[str, Any] = {
    "input": 2,
    "output": 10,
    "cache_read": 0.2,
    "cache_write": 2.5,
    "above": [
        {"tokens": 200_000, "input": 4, "output": 15},
        {"tokens": 500_000, "input": 8, "output": 20, "cache_read": 1},
    ],
    "service_tiers": {"priority": 2, "flex": 0.5},
}
CHEAP = {"input": 1, "output": 5}
DEAR = {"input": 3, "output": 50, "service_tiers": {"fast": 6}}


def parsed(fields: dict[str, Any]) -> DatedPrices:
    return DatedPrices.model_validate_json(orjson.dumps(fields))


def price(group: str = "1", own: dict[str, Any] | None = PRICE, **channels: Any) -> Price:

    model = Model(id="one", family=Family.ALPHA, price=parsed(own) if own else None)
    prices = {name: parsed(fields) for name, fields in channels.items()}
    return Price.for_model(model, group, Money(web_search_price=10), prices)


def cost(
    own: Price, *requests: tuple[Usage, str | None], channel: str = "", time: int = 0
) -> tuple[int, str]:
    assert own.book is not None
    book = own.book.channels.get(channel, own.book)
    dollars, text = own.cost_of([Part(usage, book, tier, time) for usage, tier in requests])
    return dollars.usd, text


@pytest.mark.parametrize(
    ("fresh", "read", "written", "output", "tier", "usd"),
    [
        (199_999, 0, 0, 10, None, 199_999 * 2 + 10 * 10),
        (200_000, 0, 0, 10, None, 200_000 * 2 + 10 * 10),
        (200_001, 0, 0, 10, None, 200_001 * 4 + 10 * 15),
        # Cached input counts as input: 1 fresh token makes the whole request long.
        (1, 200_000, 0, 10, None, 1 * 4 + 200_000 * 0.4 + 10 * 15),
        (1, 100_000, 100_000, 10, None, 1 * 4 + 100_000 * 0.4 + 100_000 * 5 + 10 * 15),
        (0, 100_000, 100_000, 10, None, 100_000 * 0.2 + 100_000 * 2.5 + 10 * 10),
        (1, 500_000, 0, 10, None, 1 * 8 + 500_000 * 1 + 10 * 20),
        (100, 0, 0, 10, "priority", 2 * 300),
        (100, 0, 0, 10, "fast", 2 * 300),
        (100, 0, 0, 10, "flex", 150),
        (100, 0, 0, 10, "default", 300),
        (100, 0, 0, 10, "standard", 300),
        (100, 0, 0, 10, "unheard of", 300),
        (200_001, 0, 0, 10, "priority", 2 * (200_001 * 4 + 10 * 15)),
        (3, 0, 0, 0, "flex", 3),
        (0, 5, 0, 0, "flex", 0.5),  # half a millionth is rounded up
    ],
)
def test_costs(
    fresh: int, read: int, written: int, output: int, tier: str | None, usd: float
) -> None:
    usage = Usage(
        input_tokens=fresh + read + written,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=output,
    )
    assert cost(price(), (usage, tier))[0] == int(usd + 0.5)
    assert cost(price("0.5"), (usage, tier))[0] == int(usd / 2 + 0.5)


def test_searches_have_no_service_tier() -> None:
    usage = Usage(input_tokens=100, web_searches=3)
    assert cost(price(), (usage, "priority"))[0] == 2 * 200 + 30_000


def test_requests_of_one_reply_have_their_own_lengths_and_tiers() -> None:
    half = Usage(input_tokens=150_000)
    usd, text = cost(price(), (half, None), (half, "priority"))
    assert usd == 150_000 * 2 + 150_000 * 4
    assert text == (
        "model 1, group 1; USD per million tokens: input 2, output 10, cache read 0.2, cache write "
        "2.5, cache write 1h 2.5; USD per 1000 searches: 10; USD per million tokens: input 2, "
        "output 10, cache read 0.2, cache write 2.5, cache write 1h 2.5; USD per 1000 searches: "
        "10; service tier priority: times 2"
    )


def test_the_row_says_what_applies() -> None:
    long = cost(price(), (Usage(input_tokens=200_001), None))[1]
    assert "; USD per million tokens of requests with more than 200000 input tokens: " in long
    assert "input 4, output 15, cache read 0.4, cache write 5, cache write 1h 5; " in long
    other = cost(price(), (Usage(), "new; tier\n" * 9))[1]
    assert other.endswith(
        "; service tier 'new; tier\\nnew; tier\\nnew; tier\\nnew; t has no factor"
    )


def test_the_price_of_a_channel_wins() -> None:
    own, usage = price(cheap=CHEAP, dear=DEAR), Usage(input_tokens=300_000, output_tokens=10)
    assert cost(own, (usage, "priority"), channel="other")[0] == 2 * (300_000 * 4 + 10 * 15)
    assert cost(own, (usage, "priority"), channel="cheap")[0] == 300_000 * 1 + 10 * 5
    assert cost(own, (usage, "fast"), channel="dear")[0] == 6 * (300_000 * 3 + 10 * 50)
    alone = price(own=None, cheap=CHEAP)
    assert cost(alone, (usage, None), channel="cheap")[0] == 300_050
    assert cost(alone, (usage, None), channel="other")[0] == 0


@pytest.mark.parametrize(
    ("channels", "input_tokens", "usd"),
    [
        ({}, 100, 2 * (100 * 2 + 10 * 10)),
        ({}, 100_001, 2 * (100_001 * 4 + 10 * 15)),
        ({"cheap": CHEAP}, 100, 2 * (100 * 2 + 10 * 10)),
        ({"dear": DEAR}, 100, 6 * (100 * 3 + 10 * 50)),
    ],
)
def test_reservations_are_of_the_highest_price(
    channels: dict[str, Any], input_tokens: int, usd: int
) -> None:
    usage = Usage(input_tokens=input_tokens, output_tokens=10)
    assert price(**channels).highest_cost(usage).usd == usd


def test_prices_that_depend_on_nothing_are_as_before() -> None:
    flat = price(own=CHEAP)
    assert flat.book is None
    usage = Usage(input_tokens=7, output_tokens=1)
    assert flat.highest_cost(usage) == flat.cost(usage)


NIGHT = [{"start": "16:30", "end": "00:30", "factor": 0.5}]
HOUR = 3600 * 1_000_000


@pytest.mark.parametrize(
    ("changes", "usage", "tier", "time", "usd"),
    [
        ({"reasoning": 30}, Usage(output_tokens=10, reasoning_tokens=4), None, 0, 6 * 10 + 4 * 30),
        ({"reasoning": 30}, Usage(output_tokens=10, reasoning_tokens=4), "flex", 0, 90),
        ({"reasoning": 1}, Usage(output_tokens=3, reasoning_tokens=9), None, 0, 3),
        ({"searches": 25}, Usage(input_tokens=1, web_searches=2), "priority", 0, 4 + 50_000),
        ({"requests": 5}, Usage(input_tokens=1), "priority", 0, 4 + 5000),
        ({"requests": 5}, Usage(), None, 0, 0),
        ({"hours": NIGHT}, Usage(input_tokens=10), None, 16 * HOUR, 20),
        ({"hours": NIGHT}, Usage(input_tokens=10), None, 24 * HOUR + 17 * HOUR, 10),
        ({"hours": NIGHT}, Usage(input_tokens=10), "priority", HOUR // 3, 20),
        ({"hours": NIGHT}, Usage(input_tokens=10), None, HOUR // 2, 20),
        ({"hours": [{"start": 0, "end": 1440, "factor": 3}]}, Usage(input_tokens=1), None, 5, 6),
    ],
)
def test_other_kinds(
    changes: dict[str, Any], usage: Usage, tier: str | None, time: int, usd: int
) -> None:
    own = price(own=PRICE | changes)
    assert cost(own, (usage, tier), time=time)[0] == usd
    assert own.highest_cost(usage).usd >= usd


def test_the_price_of_the_date() -> None:
    later = [
        {"from": "1970-01-02", "input": 3, "output": 1},
        {"from": "1970-01-04", "input": 4, "output": 1, "requests": 1},
    ]
    model = Model(id="one", family=Family.ALPHA, price=parsed(CHEAP | {"changes": later}))
    own = parsed(CHEAP | {"changes": [{"from": "1970-01-03", "input": 9, "output": 1}]})
    periods = price_periods(model, "1", Money(), {"own": own})
    assert [start // HOUR for start, _ in periods] == [72, 48, 24, 0]
    usage, found = Usage(input_tokens=1000), []
    for start, each in periods:
        assert each.book is not None
        books = each.book, each.book.channels["own"]
        costs = [each.cost_of([Part(usage, book, None, start)])[0].usd for book in books]
        assert each.highest_cost(usage).usd >= max(costs)
        found.append(costs)
    assert found == [[5000, 9000], [3000, 9000], [3000, 1000], [1000, 1000]]
