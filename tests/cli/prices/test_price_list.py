"""`gateway prices import`: the listed prices, compared with their own calculator."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from itertools import product
from pathlib import Path
from typing import Any

import genai_prices
import orjson
import pytest
import yaml
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.cli.prices.price_list import PriceList
from gateway.config.document import ConfigError
from gateway.config.limits import DatedPrices, Money
from gateway.config.load import load_config
from gateway.config.schema import Model
from gateway.core.events import Usage
from gateway.core.formats import Family, Format
from gateway.quota.pricing import Part, price_periods
from gateway.wire.registry import CODECS
from gateway.wire.service_tier import stated_tier

CONFIG = """\
models:
  - {id: beta-5.4, family: beta, multiplier: 1}
  - {id: alpha-sonnet-4-6, family: alpha, price: {input: 1, output: 2}}
  - {id: beta-own, family: beta}
channels:
  - {name: one, format: responses, base_url: "https://api.openai.com/v1",
     models: {beta-5.4: gpt-5.4, alpha-sonnet-4-6: gpt-5.4, beta-own: nowhere-1},
     accounts: [{name: a, key: "${KEY}"}]}
  - {name: two, format: chat, base_url: "https://api.deepseek.com/v1",
     models: {beta-5.4: deepseek-chat}, accounts: [{name: a, key: "${KEY}"}]}
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["prices", "import", *map(str, arguments)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "channels.yaml"
    file.write_text(CONFIG)
    return file


def test_the_file_that_is_written_is_what_the_configuration_reads(file: Path) -> None:
    assert not (
        run("--config", file, "--dry-run").exit_code or file.with_name("prices.yaml").exists()
    )
    result = run("--config", file)
    assert result.exit_code == 0, result.output
    assert "add to" in result.stderr and "prices_file: prices.yaml" in result.stderr
    file.write_text(CONFIG + "prices_file: prices.yaml\n")
    config = load_config(file, resolve_secrets=False)
    listed = PriceList().find("https://api.openai.com/v1", "gpt-5.4")
    other = PriceList().find("https://api.deepseek.com", "deepseek-chat")
    assert listed is not None and other is not None
    assert config.models[0].price == listed.price
    assert config.models[1].price == DatedPrices(input=1.0, output=2.0), "stated by the file itself"
    assert config.models[2].price is None
    assert config.channels[1].prices == {"beta-5.4": other.price}
    rows = orjson.loads(run("--config", file, "--json").stdout)["prices"]
    assert [(row["model"], row["channel"], row["change"]) for row in rows] == [
        ("beta-5.4", None, "same"),
        ("beta-5.4", "two", "same"),
        ("alpha-sonnet-4-6", None, "stated in the configuration"),
        ("beta-own", None, "not in the list"),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("models: {beta-5.4: {input: 1}}", 'prices.yaml:1: models["beta-5.4"].output: is missing'),
        (
            "models: {beta-5.4: {inputs: 1}}",
            'prices.yaml:1: models["beta-5.4"].inputs: unknown key',
        ),
        ("model: {}", "prices.yaml:1: model: unknown key"),
        ("- 1", "prices.yaml:1: must be a mapping"),
        (None, "prices.yaml: cannot be read: "),
    ],
)
def test_problems_of_the_file_of_prices(file: Path, text: str | None, problem: str) -> None:
    file.write_text(CONFIG + "prices_file: prices.yaml\n")
    if text is not None:
        file.with_name("prices.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file, resolve_secrets=False)
    assert problem in str(caught.value)


MODELS = [
    ("https://api.openai.com/v1", "gpt-5.4"),
    ("https://api.openai.com/v1", "gpt-5.5"),
    ("https://api.openai.com/v1", "gpt-5-mini"),
    ("https://api.anthropic.com", "claude-sonnet-4-5"),
    ("https://api.anthropic.com", "claude-opus-4-6"),
    ("https://api.anthropic.com", "claude-haiku-4-5"),
    ("https://generativelanguage.googleapis.com", "gemini-3-pro-preview"),
    ("https://api.deepseek.com", "deepseek-chat"),
]
COUNTS = [
    *(
        (fresh, read, 0, 0, 777, 5)
        for fresh in (1, 150_000)
        for read in (0, 49_999, 50_000, 50_001)
    ),
    (272_000, 0, 0, 0, 3, 0),
    (272_000, 1, 0, 0, 3, 0),
    (100, 200, 300, 400, 500, 0),
    (1, 0, 100_000, 100_000, 9, 9),
]
DAYS = [datetime(2026, 3, 1, 5, tzinfo=UTC), datetime(2026, 11, 24, 20, tzinfo=UTC)]


def body(
    format: Format, counts: tuple[int, ...], searches: int, tier: str | None
) -> dict[str, Any]:
    """A reply in the form of the vendor."""
    fresh, read, written, hour, output, reasoning = counts
    if format is Format.MESSAGES:
        usage: dict[str, Any] = {
            "input_tokens": fresh,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written + hour,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written,
                "ephemeral_1h_input_tokens": hour,
            },
            "output_tokens": output,
            "server_tool_use": {"web_search_requests": searches},
        }
        usage |= {"service_tier": tier} if tier else {}
        message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": usage}
        return message | {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
    details: dict[str, Any] = {"cached_tokens": read}
    if format is Format.CHAT:
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        usage = {"prompt_tokens": fresh + read, "completion_tokens": output}
        usage["prompt_tokens_details"] = details
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        reply: dict[str, Any] = {"id": "c", "object": "chat.completion", "model": "m"}
        reply["usage"] = usage
        reply["choices"] = [choice | {"message": {"role": "assistant", "content": "Hi"}}]
    else:
        usage = {"input_tokens": fresh + read, "input_tokens_details": details}
        usage |= {"output_tokens": output}
        usage |= {"output_tokens_details": {"reasoning_tokens": reasoning}}
        search = {"type": "web_search_call", "status": "completed", "action": {"type": "search"}}
        items = [search | {"id": f"ws_{number}"} for number in range(searches)]
        reply = {"id": "r", "object": "response", "status": "completed", "model": "m"}
        reply |= {"output": items, "usage": usage}
    return reply | ({"service_tier": tier} if tier else {})


@pytest.mark.slow("reads the whole price list")
def test_costs_equal_those_of_the_calculator() -> None:
    """500 replies of three formats, by length, cache, tier, searches and date."""
    price_list, compared = PriceList(), 0
    for (url, name), counts, day in product(MODELS, COUNTS, DAYS):
        entry = price_list.find(url, name)
        assert entry is not None, name
        is_messages = "anthropic" in url
        for format, tier, searches in product(Format, (None, "priority", "flex"), (0, 2)):
            if (format is Format.MESSAGES) is not is_messages or (
                searches and format is Format.CHAT
            ):
                continue
            if (counts[2] or counts[3]) and not is_messages:
                continue
            if f"all of {tier}" in entry.left_out and (counts[1] or counts[0] > 200_000):
                continue  # cached or long input has another factor
            data = body(format, counts, searches, tier)
            _, usage = CODECS[format].read_usage(data)
            assert usage is not None
            model = Model(id="m", family=Family.BETA, price=entry.price)
            started = int(day.timestamp()) * 1_000_000
            periods = price_periods(model, "1", Money(), {})
            own = next(price for start, price in periods if start <= started)
            cost = own.cost(usage)
            if own.book is not None:
                cost, _ = own.cost_of([Part(usage, own.book, stated_tier(data), started)])
            fresh, read, written, hour, output, _ = counts
            expected = genai_prices.calc_price(
                genai_prices.Usage(
                    input_tokens=fresh + read + written + hour,
                    cache_read_tokens=read,
                    cache_write_tokens=written + hour,
                    cache_write_1h_tokens=hour,
                    output_tokens=output,
                    web_searches=searches,
                ),
                name,
                provider_api_url=url,
                genai_request_timestamp=day,
                price_context={"service_tier": tier} if tier else None,
            ).total_price
            micro = (expected * 10**6).quantize(Decimal(1), ROUND_HALF_UP)
            case = (name, counts, day, format, tier, searches)
            assert cost.usd == micro, (case, cost.usd, micro, own.description)
            compared += 1
    assert compared >= 500


def used(
    size: int, read: int = 0, written: int = 0, hour: int = 0, output: int = 0, searches: int = 0
) -> Usage:
    return Usage(
        input_tokens=size,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=hour,
        output_tokens=output,
        web_searches=searches,
    )


@pytest.mark.parametrize(
    ("price", "usage", "tier", "usd"),
    [
        # The vendors' price pages, added up by hand.
        ({"input": 3, "output": 15}, used(1000, output=1000), None, 18_000),
        ({"input": 3, "output": 15, "cache_read": 0.3}, used(1000, 900), None, 570),
        (
            {"input": 3, "output": 15, "cache_write": 3.75, "cache_write_1h": 6},
            used(1000, 0, 900, 400),
            None,
            300 + 1875 + 2400,
        ),
        ({"input": 5, "output": 25, "service_tiers": {"fast": 6}}, used(100), "fast", 3000),
        ({"input": 1.25, "output": 10, "cache_read": 0.125}, used(8, 8), None, 1),
        ({"input": 1.75, "output": 14}, used(1, output=1), None, 16),
        (
            {"input": 1.75, "output": 14, "service_tiers": {"priority": 2}},
            used(1, output=1),
            "priority",
            32,
        ),
        (
            {"input": 1.75, "output": 14, "service_tiers": {"batch": 0.5}},
            used(1_000_000, output=10_000),
            "batch",
            945_000,
        ),
        (
            {"input": 2, "output": 12, "above": [{"tokens": 200_000, "input": 4, "output": 18}]},
            used(200_001, output=100),
            None,
            800_004 + 1800,
        ),
        ({"input": 3, "output": 15, "searches": 10}, used(1, searches=3), None, 30_003),
    ],
)
def test_ten_lines_by_hand(price: dict[str, Any], usage: Usage, tier: str | None, usd: int) -> None:
    parsed = DatedPrices.model_validate_json(orjson.dumps(price))
    model = Model(id="m", family=Family.BETA, price=parsed)
    ((_, own),) = price_periods(model, "1", Money(), {})
    cost = own.cost(usage) if own.book is None else own.cost_of([Part(usage, own.book, tier, 0)])[0]
    assert cost.usd == usd


def test_the_file_names_the_release_of_the_list(file: Path) -> None:
    run("--config", file)
    text = file.with_name("prices.yaml").read_text()
    assert text.startswith("# Written by gateway prices import from genai-prices ")
    assert set(yaml.safe_load(text)) == {"models", "channels"}
