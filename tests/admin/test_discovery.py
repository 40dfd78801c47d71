"""Models of an upstream's own list: found, followed, kept for starts without it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.admin import discovery
from gateway.config.discovered import FILE_NAME
from gateway.core.formats import Format
from tests.admin.config_follower import ConfigFollower, follow_config
from tests.support.timing import own_time
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    fixture_reply,
    json_response,
)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "INTERVAL", 0.05)
    monkeypatch.setattr(discovery, "RETRY_INTERVAL", 0.05)
    monkeypatch.setattr(discovery, "_CHECK_INTERVAL", 0.02)


def listing(upstream: ScriptedUpstream, answer: Any) -> None:
    """The upstream lists `answer` or behaves so, and serves what is generated."""

    async def script(request: ReceivedRequest) -> Response:
        if request.method == "GET":
            return answer if isinstance(answer, Response) else json_response({"data": answer})
        return fixture_reply("chat")

    upstream.respond_with(script)


def local(upstream: ScriptedUpstream, **changes: Any) -> dict[str, Any]:
    base_url = f"{upstream.address}/v1"
    return {"preset": "ollama", "base_url": base_url, "models": "all"} | changes


async def listed(it: ConfigFollower) -> list[str]:
    answer = await it.gateway.get("/v1/models")
    return [model["id"] for model in (await answer.json())["data"]]


async def until_listed(it: ConfigFollower, *ids: str) -> None:
    async with asyncio.timeout(10):
        while await listed(it) != [*ids]:
            await asyncio.sleep(0.02)


async def test_models_appear_are_served_and_disappear(
    tmp_path: Path, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gateway.admin.discovery")
    listing(upstream, [{"id": "qwen3:8b", "context_length": 40960}, {"id": "llama3.2"}])
    async with follow_config(tmp_path, local(upstream), period=0.05) as it:
        await until_listed(it, "qwen3:8b", "llama3.2")
        assert {m.id: m.context for m in it.runtime.config.models}["qwen3:8b"] == 40960
        for client in Format:
            answer = await it.gateway.post(client, model="qwen3:8b")
            assert answer.status == 200, await answer.text()
        listing(upstream, [{"id": "llama3.2"}, {"id": "gemma"}])
        await until_listed(it, "llama3.2", "gemma")
    assert "2 models appeared: qwen3:8b, llama3.2" in caplog.text
    assert "1 models disappeared: qwen3:8b" in caplog.text


async def test_a_start_without_the_upstream_knows_what_was_found_last(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    listing(upstream, [{"id": "one"}])
    async with follow_config(tmp_path, local(upstream), period=0.05) as it:
        await until_listed(it, "one")
    listing(upstream, json_response({"error": "away"}, 503))
    async with follow_config(tmp_path, local(upstream), period=0.05) as it:
        assert await listed(it) == ["one"]
        await asyncio.sleep(0.2)
        assert await listed(it) == ["one"]
    moved = local(upstream, base_url=f"{upstream.address}/v2")
    async with follow_config(tmp_path, moved, period=0.05) as it:
        assert await listed(it) == [], "the list of another address"


async def test_patterns_choose_and_stated_models_stay(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    listing(upstream, [{"id": name} for name in ("openai/a", "qwen/b", "openai/c", "mine")])
    patterns = local(upstream, models=["mine"], discover=["openai/*"])
    async with follow_config(tmp_path, patterns, period=0.05) as it:
        await until_listed(it, "mine", "openai/a", "openai/c")
        renamed = local(upstream, models={"openai/a": "qwen/b"}, discover=["openai/*"])
        await it.reload(renamed)
        await until_listed(it, "openai/a", "openai/c")
        await it.gateway.post(Format.CHAT, model="openai/a")
        sent = [request for request in upstream.requests if request.method == "POST"]
        assert orjson.loads(sent[-1].body)["model"] == "qwen/b"


async def test_the_file_wins_over_the_list(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    listing(upstream, [{"id": "one", "context_length": 4096, "name": "One of the list"}])
    stated = [{"id": "one", "family": "beta", "multiplier": 2, "display_name": "One"}]
    async with follow_config(tmp_path, local(upstream), period=0.05, models=stated) as it:
        await until_listed(it, "one")
        (model,) = it.runtime.config.models
        found = (model.context, model.multiplier, model.display_name, model.family)
        assert found == (4096, 2, "One", "beta")


async def test_a_list_in_pages_with_the_headers_of_its_format(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async def script(request: ReceivedRequest) -> Response:
        assert request.headers["x-api-key"] == "secret-4471"
        assert request.headers["anthropic-version"]
        if "after_id=a" in request.target:
            return json_response({"data": [{"id": "b"}], "has_more": False, "last_id": "b"})
        return json_response({"data": [{"id": "a"}], "has_more": True, "last_id": "a"})

    upstream.respond_with(script)
    accounts = [{"name": "main", "key": "secret-4471"}]
    paged = {"preset": "anthropic", "base_url": upstream.address, "models": "all"}
    async with follow_config(tmp_path, paged | {"accounts": accounts}, period=0.05) as it:
        await until_listed(it, "a", "b")


@pytest.mark.parametrize(
    "answer",
    [
        [7, None, {"id": 3}, {"id": "has space"}, {"id": "x" * 200}, {}, {"id": "ok"}],
        [{"id": "ok", "context_length": -1, "pricing": {"prompt": "nan", "completion": {}}}],
        [{"id": "ok", "display_name": "\0", "max_model_len": 1e400}, {"id": "ok"}],
    ],
)
async def test_what_cannot_be_a_model_is_left_out(
    answer: Any, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    listing(upstream, json_response(orjson.dumps({"data": answer})))
    async with follow_config(tmp_path, local(upstream), period=0.05) as it:
        await until_listed(it, "ok")


@pytest.mark.parametrize(
    "answer",
    [
        json_response(b"<html>"),
        json_response([]),
        json_response({"data": {}}),
        json_response({"data": []}, 401),
        Response(raw=b""),
        Response(raw=b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n"),
    ],
)
async def test_a_list_that_cannot_be_read_changes_nothing(
    answer: Response, tmp_path: Path, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    listing(upstream, answer)
    stated = local(upstream, models=["stated"], discover=["*"])
    async with follow_config(tmp_path, stated, period=0.05) as it:
        async with asyncio.timeout(5):
            while "its list of models cannot be read" not in caplog.text:
                await asyncio.sleep(0.01)
        assert await listed(it) == ["stated"]
    assert not (tmp_path / "state" / FILE_NAME).exists()


@pytest.mark.slow("discovers thousands of models")
async def test_thousands_of_models_stall_nobody(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """The last name has its price from the list; requests go on meanwhile."""
    pricing = {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"}
    names = [f"vendor/model-{number}" for number in range(5_000)]
    listing(upstream, [{"id": name, "pricing": pricing} for name in names])
    async with follow_config(tmp_path, local(upstream), period=0.05) as it:
        longest = 0.0
        async with asyncio.timeout(20):
            while len(it.runtime.config.channels[0].models) < len(names):
                begun = own_time()
                await asyncio.sleep(0.001)
                longest = max(longest, own_time() - begun)
        assert longest < 0.5, "with the switches of threads that the interpreter does itself"
        price = it.runtime.config.models[-1].price
        assert price is not None
        assert (price.input, price.output, price.cache_read) == (3.0, 15.0, 0.3)
        assert (await it.gateway.post(Format.CHAT, model=names[-1])).status == 200
