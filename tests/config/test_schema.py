"""Units, defaults, the shipped files, and the demo configuration."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import orjson
import pytest

from gateway.config.channel import Traits
from gateway.config.document import ConfigError
from gateway.config.load import demo_config, load_config, parse_config
from gateway.config.schema import Config
from gateway.core.formats import Family, Format
from gateway.core.target import Target

ROOT = Path(__file__).parents[2]
KEYS = {name: "k" for name in ("CHAT_KEY", "CHAT_KEY_2", "MESSAGES_KEY", "RESPONSES_KEY")}

CHANNEL = """\
channels:
  - name: main
    format: chat
    base_url: http://host/v1
    models: [beta-5.4]
    accounts: [{name: a1, key: k1}]
"""


@pytest.mark.parametrize(
    ("text", "size"),
    [("5", 5), ("5B", 5), ("64MiB", 64 * 2**20), ("1.5 KiB", 1536), ("1GiB", 2**30)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_config(f"server: {{max_body: {text}}}").server.max_body == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5), ("0.5", 0.5), ("30s", 30), ("2m", 120), ("1 h", 3600), ("250ms", 0.25)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_config(f"server: {{drain_timeout: {text}}}").server.drain_timeout == seconds


@pytest.mark.parametrize("host", ["999.1.1.1", "1.2.3", "10.0.0.1:80", "a b", "", "::g", "a..b"])
def test_what_is_no_host_is_refused(host: str) -> None:
    """`999.1.1.1` was valid, and the start failed."""
    with pytest.raises(ConfigError, match=r"server\.host: is neither an IP address nor the name"):
        parse_config(f"server: {{host: '{host}'}}")


@pytest.mark.parametrize("host", ["999.1.1.1", "1.2.3"])
def test_what_is_no_host_of_an_upstream_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="is neither an IP address nor the name"):
        parse_config(CHANNEL.replace("//host", f"//{host}"))


@pytest.mark.parametrize("host", ["localhost", "::1", "0.0.0.0", "a-1.example.", "my_host"])
def test_hosts(host: str) -> None:
    assert parse_config(f"server: {{host: '{host}'}}").server.host == host


def test_server_options() -> None:
    server = parse_config(
        "server: {trusted_proxies: [10.0.0.0/8, '::1/128'], cors: off, version_headers: [X-V]}"
    ).server
    assert [str(network) for network in server.trusted_proxies] == ["10.0.0.0/8", "::1/128"]
    assert server.cors == ()
    assert server.version_headers == ("x-v",)
    assert server.beta_headers == ("anthropic-beta", "vendor-beta")
    cors = parse_config("server: {cors: ['https://app.example.org']}").server.cors
    assert cors == ("https://app.example.org",)


def test_channel_defaults() -> None:
    (channel,) = parse_config(CHANNEL).channels
    (account,) = channel.accounts
    assert (channel.priority, channel.weight, account.priority, account.weight) == (0, 1, 0, 1)
    assert account.concurrency is None
    assert (channel.stream, channel.on_disconnect, channel.affinity) == ("follow", "cancel", True)
    assert (channel.proxy, channel.version_header, channel.user_agent) == (None, None, None)
    assert channel.params == {}
    assert channel.timeouts.write == 60


def test_channel_options() -> None:
    options = """\
        proxy: http://127.0.0.1:3128/
        user_agent: example/1.0 (quiet)
        params: {stop: null, seed: 7, extra: {deep: [1.5, x, true]}}
        """
    (channel,) = parse_config(CHANNEL + indent(dedent(options), "    ")).channels
    assert (channel.proxy, channel.user_agent) == ("http://127.0.0.1:3128", "example/1.0 (quiet)")
    assert channel.params == {"stop": None, "seed": 7, "extra": {"deep": [1.5, "x", True]}}
    text = CHANNEL.replace("chat", "messages").replace("/v1", "")
    (channel,) = parse_config(text + '    version_header: "2023-06-01"\n').channels
    assert channel.version_header == "2023-06-01"


def test_failure_rules() -> None:
    text = "rules: [{blame: capacity, status: [400, 503], text: '(?i)no room', for: 2m}]"
    (rule,) = parse_config(text).rules
    assert (rule.blame, rule.status, rule.seconds) == ("capacity", (400, 503), 120)
    assert rule.text is not None
    assert rule.text.search("There is NO ROOM")
    assert (rule.type, rule.code) == (None, None)


def test_config_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().server.port = 1  # type: ignore[misc]


def test_default_catalog_matches_the_specification() -> None:
    table = [(model.id, model.family, model.multiplier, model.context) for model in Config().models]
    assert table == [
        ("beta-5.5", Family.BETA, 2.5, 1_100_000),
        ("beta-5.4", Family.BETA, 1.25, 400_000),
        ("beta-5.4-mini", Family.BETA, 0.375, None),
        ("alpha-opus-4-8", Family.ALPHA, 2.5, 1_000_000),
        ("alpha-opus-4-7", Family.ALPHA, 1.0, 1_000_000),
        ("alpha-opus-4-6", Family.ALPHA, 1.0, 1_000_000),
        ("alpha-fable-5", Family.ALPHA, 1.0, None),
        ("alpha-sonnet-4-6", Family.ALPHA, 1.5, 1_000_000),
        ("alpha-haiku-4-5-20251001", Family.ALPHA, 0.5, 200_000),
    ]


def test_default_catalog_traits() -> None:
    traits = {
        model.id: (model.max_output, model.traits.model_dump(mode="json", exclude_none=True))
        for model in Config().models
    }
    efforts = ["low", "medium", "high", "xhigh", "max"]
    no_xhigh = ["low", "medium", "high", "max"]
    newest = {"thinking": "adaptive", "efforts": efforts, "sampling": "neither", "prefill": False}
    older = {"thinking": "adaptive", "efforts": no_xhigh, "sampling": "one", "prefill": False}
    assert traits == {
        "beta-5.5": (None, {}),
        "beta-5.4": (None, {}),
        "beta-5.4-mini": (None, {}),
        "alpha-opus-4-8": (128_000, newest | {"system_turns": True}),
        "alpha-opus-4-7": (128_000, newest),
        "alpha-opus-4-6": (128_000, older),
        "alpha-fable-5": (128_000, newest | {"thinking": "always", "system_turns": True}),
        "alpha-sonnet-4-6": (128_000, older),
        "alpha-haiku-4-5-20251001": (
            64_000,
            {"thinking": "budget", "efforts": [], "sampling": "one"},
        ),
    }


def test_traits_are_target_fields() -> None:
    fields = {field.name for field in dataclasses.fields(Target)}
    others = {"model", "origin", "max_output", "encrypted_reasoning"}
    assert set(Traits.model_fields) == fields - others


def test_family_endpoints() -> None:
    families = parse_config("families: {alpha: {endpoints: [chat, messages]}}").families
    assert families.endpoints_for(Family.ALPHA) == (Format.CHAT, Format.MESSAGES)
    assert families.endpoints_for(Family.BETA) == tuple(Format)
    assert parse_config("").families.endpoints_for(Family.ALPHA) == tuple(Format)


def test_example_is_valid() -> None:
    config = load_config(ROOT / "config/channels.yaml", env=KEYS)
    assert {channel.format for channel in config.channels} == set(Format)
    assert config.warnings == ()


def test_example_has_every_option() -> None:
    text = (ROOT / "config/channels.yaml").read_text()
    missing = [name for name in _options(Config.model_json_schema()) if f"{name}:" not in text]
    assert missing == []


def test_example_shows_defaults() -> None:
    """Options of `server` that are commented out in the example have the value shown there."""
    lines = (ROOT / "config/channels.yaml").read_text().splitlines()
    commented = [line.partition("# ")[2] for line in lines if line.startswith("  # ")]
    defaults = [
        line for line in commented if not line.startswith(("public_url", "trusted_proxies"))
    ]
    text = "server:\n" + "\n".join(f"  {line}" for line in defaults)
    assert parse_config(text).server == Config().server


def test_json_schema_file_is_current() -> None:
    shipped = orjson.loads((ROOT / "config/channels.schema.json").read_bytes())
    assert shipped == Config.model_json_schema(), (
        "gateway check --schema > config/channels.schema.json"
    )


def test_json_schema_describes_every_option() -> None:
    schema = Config.model_json_schema()
    assert schema["title"]
    unexplained = [name for name, option in _options(schema).items() if not option["description"]]
    assert unexplained == []


def _options(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    sections = [schema, *schema["$defs"].values()]
    return {name: it for section in sections for name, it in section.get("properties", {}).items()}


def test_demo_config() -> None:
    config = demo_config(4711, Path("somewhere"))
    assert config.state_dir == Path("somewhere")
    (channel,) = config.channels
    assert (channel.format, channel.base_url) == (Format.CHAT, "http://127.0.0.1:4711/v1")
    assert list(channel.models) == [model.id for model in config.models]
    assert len(channel.accounts) == 1


def test_models_whose_multiplier_is_not_stated() -> None:
    """Of those that channels serve: the specification states no multiplier for some of them."""
    channel = {
        "name": "main",
        "format": "messages",
        "base_url": "https://upstream.test",
        "models": ["alpha-opus-4-7", "alpha-opus-4-8", "alpha-fable-5"],
        "accounts": [{"name": "a", "key": "key-for-tests"}],
    }
    config = parse_config(orjson.dumps({"channels": [channel]}).decode())
    assert config.warnings == (
        "Neither multiplier nor price is stated for alpha-opus-4-7, alpha-fable-5: usage is billed "
        "with multiplier 1.0. State the right one under models.",
    )
    models = [{"id": name, "family": "alpha", "multiplier": 1} for name in channel["models"]]
    stated = {"channels": [channel], "models": models}
    assert parse_config(orjson.dumps(stated).decode()).warnings == ()


PRICE = {"input": 3, "output": 15}


@pytest.mark.parametrize(
    ("models", "money", "named"),
    [
        ({"one": {"price": PRICE}, "two": {"price": PRICE}}, {}, []),
        ({"one": {"price": PRICE}, "two": {"multiplier": 2}}, {}, ["No price is stated for two:"]),
        ({"one": {"price": PRICE}, "two": {"multiplier": 2}}, {"unit_price": 0.001}, []),
        (
            {"one": {"price": PRICE}, "two": {}},
            {"unit_price": 0.001, "currency": "EUR"},
            ["Neither multiplier nor price is stated for two:", "No price is stated for two:"],
        ),
        ({"one": {"multiplier": 1}, "two": {"multiplier": 2}}, {}, []),
    ],
)
def test_models_without_a_price_where_others_have_one(
    models: dict[str, dict[str, Any]], money: dict[str, Any], named: list[str]
) -> None:
    channel = {
        "name": "main",
        "format": "messages",
        "base_url": "https://upstream.test",
        "models": list(models),
        "accounts": [{"name": "a", "key": "key-for-tests"}],
    }
    catalog = [{"id": id, "family": "alpha"} | fields for id, fields in models.items()]
    stated = {"channels": [channel], "models": catalog, "money": money}
    warnings = parse_config(orjson.dumps(stated).decode()).warnings
    assert [warning.startswith(text) for warning, text in zip(warnings, named, strict=True)] == [
        True
    ] * len(named)


@pytest.mark.parametrize(
    "price", [{"input": 3}, {"output": 3}, {"input": -1, "output": 1}, {"input": "3", "output": 1}]
)
def test_prices_that_are_not_valid(price: dict[str, Any]) -> None:
    model = {"id": "one", "family": "alpha", "price": price}
    with pytest.raises(ConfigError):
        parse_config(orjson.dumps({"models": [model]}).decode())


LATER = {"from": "2027-01-01", "input": 1, "output": 1}
LONG = {"tokens": 200_000, "input": 4, "output": 15}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"above": [LONG, LONG]}, "above: tokens must ascend"),
        ({"above": [LONG | {"tokens": 0}]}, "above[0].tokens: must be greater than"),
        ({"above": [{"tokens": 1, "input": 4}]}, "above[0].output: is missing"),
        ({"above": [LONG | {"cached": 1}]}, "above[0].cached: unknown key"),
        ({"above": [LONG | {"output": -1}]}, "above[0].output: must be greater than"),
        ({"service_tiers": {"prioriy": 2}}, "service_tiers.prioriy: must be 'priority', 'fast'"),
        ({"service_tiers": {"flex": -1}}, "service_tiers.flex: must be greater than"),
        ({"hours": [{"start": "25:00", "end": 1, "factor": 1}]}, "hours[0].start: must be"),
        ({"changes": [LATER, LATER]}, "changes: dates must ascend"),
        ({"changes": [{"input": 1, "output": 1}]}, "changes[0].from: is missing"),
        ({"changes": [LATER | {"from": "soon"}]}, "changes[0].from: must be a valid date"),
        ({"changes": [LATER | {"inputs": 1}]}, "changes[0].inputs: unknown key"),
        ({"abov": []}, "abov: unknown key; did you mean above?"),
    ],
)
def test_problems_of_prices_have_their_place(fields: dict[str, Any], problem: str) -> None:
    price = PRICE | fields
    model = {"id": "one", "family": "alpha", "price": price}
    channel = {
        "name": "main",
        "format": "messages",
        "base_url": "https://upstream.test",
        "models": ["one"],
        "prices": {"one": price},
        "accounts": [{"name": "a", "key": "key-for-tests"}],
    }
    with pytest.raises(ConfigError) as caught:
        parse_config(orjson.dumps({"models": [model], "channels": [channel]}).decode())
    texts = [str(each) for each in caught.value.problems]
    for place in ("models[0].price", "channels[0].prices.one"):
        assert any(f"{place}.{problem}" in text for text in texts), texts


def test_a_channel_states_prices_of_its_own_models() -> None:
    models = [{"id": id, "family": "alpha", "multiplier": 1} for id in ("one", "two", "three")]
    channel = {
        "name": "main",
        "format": "messages",
        "base_url": "https://upstream.test",
        "models": ["one", "two"],
        "prices": {"one": PRICE},
        "accounts": [{"name": "a", "key": "key-for-tests"}],
    }
    stated = {"models": models, "channels": [channel]}
    (warning,) = parse_config(orjson.dumps(stated).decode()).warnings
    assert warning.startswith("No price is stated for two: ")
    channel["prices"] = {"one": PRICE, "three": PRICE}
    with pytest.raises(ConfigError, match=r"channels\[0\].prices: the channel has no model three"):
        parse_config(orjson.dumps(stated).decode())
