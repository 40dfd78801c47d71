"""The model list: what the key can use, in a body that every client library reads."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession

from gateway.admin.reload import ConfigSource
from gateway.config.limits import Money
from gateway.config.load import parse_config
from gateway.config.schema import Model
from gateway.core.formats import Family, Format
from gateway.daemon import run_daemon
from gateway.routing.catalog import Catalog
from gateway.server.proxy.model_entries import CODEX, LIST, LITELLM, rendered_entries
from tests.support.gateway import (
    ALPHA,
    BETA,
    RunningGateway,
    channel,
    gateway_config,
    run_gateway,
)

pytestmark = pytest.mark.shared_gateway

ALIASED = {"id": "beta-own", "family": "beta", "aliases": ["team/own-1"], "context": 1000}
SLASHED = {"id": "alpha/vendor:8b@2", "family": "alpha", "lifecycle": "deprecated"}
RETIRED = {"id": "alpha-old", "family": "alpha", "lifecycle": "retired"}
UNSERVED = {"id": "beta-planned", "family": "beta"}
DESCRIBED = {
    "id": "beta-text",
    "family": "beta",
    "display_name": "Text",
    "description": "For texts",
    "images": False,
    "context": 1000,
    "max_output": 500,
    "aliases": ["claude-text", "claude-*", "*-text-latest"],
    "traits": {"efforts": ["low"], "structured": False, "thinking": "none"},
    "price": {"input": 2, "output": 8},
}
LEVELS = ("low", "medium", "high", "xhigh", "max")


async def list_models(gateway: RunningGateway, query: str = "", key: str | None = None) -> Any:
    answer = await gateway.get(f"/v1/models{query}", key)
    return await answer.json()


def ids(body: Any) -> list[str]:
    return [entry["id"] for entry in body["data"]]


async def test_one_body_for_every_client_library(gateway: RunningGateway) -> None:
    answer = await gateway.get("/v1/models")
    assert answer.status == 200
    assert answer.content_type == "application/json"
    body = await answer.json()
    served = [model.id for model in parse_config("{}").models if model.id in (ALPHA, BETA)]
    assert ids(body) == served, "in the order of the catalog"
    assert {key: body[key] for key in ("object", "has_more", "first_id", "last_id")} == {
        "object": "list",
        "has_more": False,
        "first_id": served[0],
        "last_id": served[-1],
    }
    assert body["data"][0] == {
        "id": BETA,
        "object": "model",
        "type": "model",
        "created": 1767225600,
        "created_at": "2026-01-01T00:00:00Z",
        "owned_by": "beta",
        "display_name": "Beta 5.4",
        "description": None,
        "lifecycle": "active",
        "max_input_tokens": 400000,
        "max_tokens": None,
        "context_window": 400000,
        "max_output_tokens": None,
        "input_modalities": ["text", "image"],
        "capabilities": {
            "image_input": {"supported": True},
            "structured_outputs": {"supported": True},
            "effort": {"supported": True} | {level: {"supported": True} for level in LEVELS},
            "thinking": {
                "supported": True,
                "types": {
                    "adaptive": {"supported": False},
                    "enabled": {"supported": True},
                    "disabled": {"supported": True},
                    "between_tools": {"supported": False},
                },
            },
        },
    }
    stated = body["data"][1]["capabilities"]
    assert stated["thinking"]["types"]["adaptive"] == {"supported": True}
    assert stated["effort"]["xhigh"] == {"supported": False}, "of the default catalog"


@pytest.mark.parametrize(
    ("patterns", "usable"),
    [
        (["*"], [BETA, ALPHA]),
        (["alpha-*"], [ALPHA]),
        (["family:beta"], [BETA]),
        (["beta-5.5"], []),
        (["alpha-opus-*", "nothing"], []),
    ],
)
async def test_the_group_decides_which_models(
    gateway: RunningGateway, patterns: list[str], usable: list[str]
) -> None:
    body = await list_models(gateway, key=await gateway.key_for_models(*patterns))
    assert ids(body) == usable
    if not usable:
        assert body["first_id"] is None
        assert body["last_id"] is None


async def test_a_changed_group_applies_from_the_next_request(gateway: RunningGateway) -> None:
    key = await gateway.key_for_models("*")
    assert len(ids(await list_models(gateway, key=key))) == 2
    group = gateway.operations.list_groups()[-1].name
    await gateway.operations.update_group(group, ["beta-*"])
    assert ids(await list_models(gateway, key=key)) == [BETA]


async def test_only_what_exists_and_is_served(tmp_path: Path) -> None:
    models = [ALIASED, SLASHED, RETIRED, UNSERVED]
    served = {model["id"]: "upstream-model" for model in models[:3]}
    line = channel(Format.CHAT, "http://127.0.0.1:9", models=served)
    async with run_gateway(tmp_path, [line], models=models) as gateway:
        assert ids(await list_models(gateway)) == ["beta-own", "team/own-1", "alpha/vendor:8b@2"]
        for sent in ("beta-own", "team/own-1", "team%2Fown-1", "alpha/vendor:8b@2", "beta-own[1m]"):
            answer = await gateway.get(f"/v1/models/{sent}")
            assert answer.status == 200, sent
            assert (await answer.json())["id"] == sent.replace("%2F", "/")
        for sent in ("alpha-old", "beta-planned", "Beta-own", "beta-own/"):
            assert (await gateway.get(f"/v1/models/{sent}")).status == 404, sent


async def test_what_the_configuration_says_of_a_model(tmp_path: Path) -> None:
    line = channel(Format.CHAT, "http://127.0.0.1:9", models=["beta-text"])
    async with run_gateway(tmp_path, [line], models=[DESCRIBED]) as gateway:
        body = await list_models(gateway)
        assert ids(body) == ["beta-text", "claude-text"], "patterns are not listed"
        for entry in body["data"]:
            assert (entry["display_name"], entry["description"]) == ("Text", "For texts")
            assert (entry["context_window"], entry["max_output_tokens"]) == (1000, 500)
            assert entry["input_modalities"] == ["text"]
            capabilities = entry["capabilities"]
            assert not capabilities["image_input"]["supported"]
            assert not capabilities["structured_outputs"]["supported"]
            assert not capabilities["thinking"]["supported"]
            efforts = {level for level in LEVELS if capabilities["effort"][level]["supported"]}
            assert efforts == {"low"}
        for sent in ("claude-9", "claude-text[1m]", "any-text-latest", "claude-9[1m]"):
            assert (await (await gateway.get(f"/v1/models/{sent}")).json())["id"] == sent
        assert (await gateway.get("/v1/models/claude")).status == 404


async def test_the_list_of_litellm(tmp_path: Path) -> None:
    line = channel(Format.CHAT, "http://127.0.0.1:9", models=["beta-text"])
    async with run_gateway(tmp_path, [line], models=[DESCRIBED]) as gateway:
        await gateway.operations.create_group("half", ["*"], multiplier="0.5")
        _, key = await gateway.operations.create_key("half", "half")
        for path in ("/model/info", "/v1/model/info"):
            first, _ = (await (await gateway.get(path, key)).json())["data"]
            assert first["model_name"] == first["litellm_params"]["model"] == "beta-text"
            info = first["model_info"]
            assert (info["max_input_tokens"], info["max_output_tokens"]) == (1000, 500)
            assert (info["input_cost_per_token"], info["output_cost_per_token"]) == (1e-6, 4e-6)
            assert (info["supports_vision"], info["supports_reasoning"]) == (False, True)
        info = (await (await gateway.get("/model/info")).json())["data"][0]["model_info"]
        assert info["input_cost_per_token"] == 2e-6
        assert (await gateway.get("/model/info", "sk-wrong")).status == 401


async def test_the_list_of_codex(gateway: RunningGateway) -> None:
    """The fields without which Codex rejects the whole list."""
    body = await list_models(gateway, "?client_version=0.169.0")
    assert [entry["slug"] for entry in body["models"]] == ids(body)
    for entry in body["models"]:
        texts = ("slug", "display_name", "shell_type", "visibility", "base_instructions")
        assert all(isinstance(entry[name], str) and entry[name] for name in texts)
        assert entry["supported_in_api"] is True
        assert entry["support_verbosity"] is False
        assert isinstance(entry["priority"], int)
        assert entry["experimental_supported_tools"] == []
        assert entry["truncation_policy"].keys() == {"mode", "limit"}
        for level in entry["supported_reasoning_levels"]:
            assert level["effort"] in ("minimal", *LEVELS)
    assert "models" not in await list_models(gateway)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models?client_version=1", "/model/info"])
async def test_a_list_that_has_not_changed_is_not_sent_again(
    gateway: RunningGateway, path: str
) -> None:
    whole = await gateway.get(path)
    etag = whole.headers["etag"]
    for sent in (etag, f'"other", W/{etag}'):
        same = await gateway.get(path, **{"if-none-match": sent})
        assert (same.status, await same.read(), same.headers["etag"]) == (304, b"", etag)
    assert (await gateway.get(path, **{"if-none-match": '"other"'})).status == 200
    other = await gateway.get(path, await gateway.key_for_models("alpha-*"))
    assert other.headers["etag"] != etag
    assert [row.status for row in await gateway.rows(5)] == [200, 304, 304, 200, 200]


def test_entries_are_those_that_each_model_has() -> None:
    """However alike the models are."""
    traits: list[dict[str, Any]] = [{}, {"efforts": ("low",)}, {"structured": False}]
    texts = [{}, {"display_name": '50 % "off" %(name)b'}, {"description": "ü\n%s"}]
    models = [
        Model.model_validate(
            {"id": f"beta-{number}", "family": Family.BETA, "aliases": (f"x{number}", "y-*")}
            | {"traits": traits[number % 3], "context": 1000 + number % 2, "price": price}
            | texts[number // 3 % 3]
        )
        for number, price in enumerate([None, {"input": 1.0, "output": 2.0}] * 18)
    ]
    catalog = Catalog(models)
    for entry in (LIST, CODEX, LITELLM):
        rendered = rendered_entries(catalog, entry, "2")
        for model in models:
            assert [name for name, *_ in rendered[model.id]] == [model.id, model.aliases[0]]
            assert rendered[model.id] == rendered_entries(Catalog([model]), entry, "2")[model.id]
            for name, own, shared in rendered[model.id]:
                fields = orjson.loads(own + shared)
                assert name in (fields.get("id"), fields.get("slug"), fields.get("model_name"))
                assert model.description == fields.get("model_info", fields)["description"]


@pytest.mark.slow("10,000 models, of two configurations")
async def test_ten_thousand_models(tmp_path: Path) -> None:
    """No request renders a list: not the first one after a start, nor after a reload."""
    paths = ("/v1/models", "/v1/models?client_version=1", "/model/info")
    paths += ("/v1/models?limit=1000&after_id=beta-8999",)
    models = [
        Model.model_validate(
            {"id": f"beta-{n}", "family": Family.BETA, "aliases": (f"b{n}",), "context": 99 + n % 9}
        )
        for n in range(10_000)
    ]
    line = channel(Format.CHAT, "http://127.0.0.1:9", models=["beta-5.4"])
    config = parse_config(orjson.dumps(gateway_config(tmp_path, [line])).decode())
    names = {model.id: model.id for model in models}
    channels = (config.channels[0].model_copy(update={"models": names}),)
    config = config.model_copy(update={"models": tuple(models), "channels": channels})
    priced = config.model_copy(update={"money": Money(unit_price=0.001)})
    async with run_daemon(config, ConfigSource(None, lambda: priced)) as daemon:
        token, key = await daemon.operations.create_key("tests", "default")
        for money in (config.money, priced.money):
            assert daemon.runtime.config.money == money
            rendered = rendered_entries.cache_info().misses
            for path in paths:
                took = process_time()
                async with ClientSession(daemon.address) as http:
                    answer = await RunningGateway(daemon, token, key, http).get(path)
                took = process_time() - took  # some 30 ms, with the client
                assert len(orjson.loads(await answer.read())["data"]) in (1_000, 20_000)
                assert took < 0.5, path
            assert rendered_entries.cache_info().misses == rendered
            assert daemon.reloader is not None
            await daemon.reloader.reload()


async def test_pages(gateway: RunningGateway) -> None:
    first = await list_models(gateway, "?limit=1")
    assert (ids(first), first["has_more"]) == ([BETA], True)
    second = await list_models(gateway, f"?limit=1&after_id={BETA}")
    assert (ids(second), second["has_more"]) == ([ALPHA], False)
    assert ids(await list_models(gateway, f"?limit=5&before_id={ALPHA}")) == [BETA]
    assert ids(await list_models(gateway, f"?before_id={BETA}")) == []
    assert ids(await list_models(gateway, "?limit=1000")) == [BETA, ALPHA]


async def test_going_back_gives_the_page_next_to_the_cursor(tmp_path: Path) -> None:
    models = [{"id": f"beta-{number}", "family": "beta"} for number in range(5)]
    line = channel(Format.CHAT, "http://127.0.0.1:9", models=[model["id"] for model in models])
    async with run_gateway(tmp_path, [line], models=models) as gateway:
        body = await list_models(gateway, "?limit=2&before_id=beta-4")
        assert (ids(body), body["has_more"]) == (["beta-2", "beta-3"], True)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("?limit=0", "limit"),
        ("?limit=1001", "limit"),
        ("?limit=-1", "limit"),
        ("?limit=ten", "limit"),
        ("?limit=", "limit"),
        ("?limit=%D9%A1", "limit"),
        (f"?limit={'9' * 400}", "limit"),
        ("?after_id=nobody", "after_id"),
        ("?before_id=", "before_id"),
    ],
)
async def test_bad_pages(gateway: RunningGateway, query: str, param: str) -> None:
    answer = await gateway.get(f"/v1/models{query}")
    assert answer.status == 400
    error = (await answer.json())["error"]
    assert (error["param"], error["code"]) == (param, "invalid_value")
    assert error["message"].startswith(f"{param}: ")


@pytest.mark.parametrize("version", [None, "anthropic-version", "vendor-version"])
async def test_an_unknown_model_in_the_envelope_that_the_headers_ask_for(
    gateway: RunningGateway, version: str | None
) -> None:
    answer = await gateway.get("/v1/models/gpt", **({version: "2026-10-21"} if version else {}))
    assert answer.status == 404
    body = await answer.json()
    message = "The model 'gpt' does not exist"
    if version:
        assert body["type"] == "error"
        assert body["error"] == {"type": "not_found_error", "message": message}
        assert body["request_id"] == answer.headers["request-id"]
    else:
        assert body["error"] == {
            "message": message,
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
