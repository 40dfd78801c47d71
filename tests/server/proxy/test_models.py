"""The model list: what the key can use, in a body that every client library reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import parse_config
from gateway.core.formats import Format
from tests.support.gateway import ALPHA, BETA, RunningGateway, channel, run_gateway

pytestmark = pytest.mark.shared_gateway

ALIASED = {"id": "beta-own", "family": "beta", "aliases": ["team/own-1"], "context": 1000}
SLASHED = {"id": "alpha/vendor:8b@2", "family": "alpha", "lifecycle": "deprecated"}
RETIRED = {"id": "alpha-old", "family": "alpha", "lifecycle": "retired"}
UNSERVED = {"id": "beta-planned", "family": "beta"}


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
        "lifecycle": "active",
        "max_input_tokens": 400000,
        "max_tokens": None,
    }


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
        assert ids(await list_models(gateway)) == ["beta-own", "alpha/vendor:8b@2"]
        for sent in ("beta-own", "team/own-1", "team%2Fown-1", "alpha/vendor:8b@2", "beta-own[1m]"):
            answer = await gateway.get(f"/v1/models/{sent}")
            assert answer.status == 200, sent
            assert (await answer.json())["id"] == sent.replace("%2F", "/")
        for sent in ("alpha-old", "beta-planned", "Beta-own", "beta-own/"):
            assert (await gateway.get(f"/v1/models/{sent}")).status == 404, sent


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
