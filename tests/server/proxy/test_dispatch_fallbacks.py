"""Models that serve what the requested one cannot, before anything of a reply was sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.server.key_limits import limit_key
from tests.support.gateway import RunningGateway, channel, run_gateway
from tests.support.upstream import (
    Ending,
    ReceivedRequest,
    Respond,
    Response,
    ScriptedUpstream,
    event_stream,
    fixture_reply,
    fixture_stream,
    json_response,
)

FIRST, SECOND, THIRD = "beta-first", "beta-second", "alpha-third"
IMAGE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/cat.png"}}
OVERLOADED = json_response({"error": {"message": "down"}}, 503)


@asynccontextmanager
async def falling_back(
    tmp_path: Path, upstream: ScriptedUpstream, **second: Any
) -> AsyncIterator[RunningGateway]:
    """The second model is served in the client's format, the third in another one."""
    models = [
        {"id": FIRST, "family": "beta", "fallbacks": [SECOND, THIRD], "price": price(1)},
        {"id": SECOND, "family": "beta", "price": price(2)} | second,
        {"id": THIRD, "family": "alpha", "price": price(3)},
    ]
    lines = [
        channel(Format.CHAT, upstream.address, models={FIRST: "m1", SECOND: "m2"}),
        channel(Format.MESSAGES, upstream.address, models={THIRD: "m3"}),
    ]
    async with run_gateway(tmp_path, lines, models=models) as gateway:
        yield gateway


def price(dollars: int) -> dict[str, int]:
    return {"input": dollars, "output": dollars}


def by_model(**answers: Response) -> Respond:
    """The answers for upstream models; all others are overloaded."""

    async def respond(request: ReceivedRequest) -> Response:
        return answers.get(request.model, OVERLOADED)

    return respond


def sent_models(upstream: ScriptedUpstream) -> list[str]:
    return list(dict.fromkeys(request.model for request in upstream.requests))


@pytest.mark.parametrize("stream", [False, True])
async def test_the_first_fallback_that_serves_the_request(
    tmp_path: Path, upstream: ScriptedUpstream, stream: bool
) -> None:
    served = fixture_stream("chat") if stream else fixture_reply("chat")
    async with falling_back(tmp_path, upstream) as gateway:
        upstream.respond_with(by_model(m2=served))
        answer = await gateway.post(Format.CHAT, model=FIRST, stream=stream)
        assert (answer.status, answer.headers["x-gateway-model"]) == (200, SECOND)
        assert FIRST in await answer.text(), "the reply has the name that was requested"
        row = await gateway.row()
        assert (row.model, row.catalog_model, row.upstream_model) == (FIRST, SECOND, "m2")
        assert row.notes == f"served by the fallback {SECOND}: server_is_overloaded"
        assert "input 2" in str(row.tariff)
        assert row.usd_micro == 2 * (row.input_tokens + row.output_tokens)
        assert (row.state, row.error_code) == (ExchangeState.OK, None)
    assert sent_models(upstream) == ["m1", "m2"]


async def test_a_fallback_of_another_format(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with falling_back(tmp_path, upstream) as gateway:
        upstream.respond_with(by_model(m3=fixture_reply("messages")))
        answer = await gateway.post(Format.CHAT, model=FIRST)
        assert (answer.status, answer.headers["x-gateway-model"]) == (200, THIRD)
        assert (await answer.json())["model"] == FIRST


@pytest.mark.parametrize(
    ("second", "fields"),
    [
        ({"context": 100}, {"max_tokens": 100}),
        ({"context": 5}, {}),
        ({"images": False}, {"messages": [{"role": "user", "content": [IMAGE]}]}),
    ],
)
async def test_a_fallback_that_cannot_serve_the_request_is_passed_over(
    tmp_path: Path, upstream: ScriptedUpstream, second: dict[str, Any], fields: dict[str, Any]
) -> None:
    async with falling_back(tmp_path, upstream, **second) as gateway:
        upstream.respond_with(OVERLOADED)
        await gateway.post(Format.CHAT, model=FIRST, **fields)
    assert sent_models(upstream) == ["m1", "m3"]


async def test_a_fallback_that_the_key_may_not_use_is_passed_over(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with falling_back(tmp_path, upstream) as gateway:
        upstream.respond_with(OVERLOADED)
        key = await gateway.key_for_models(FIRST, THIRD)
        await gateway.post(Format.CHAT, model=FIRST, key=key)
    assert sent_models(upstream) == ["m1", "m3"]


@pytest.mark.parametrize("stream", [False, True])
async def test_without_any_the_client_gets_the_first_error(
    tmp_path: Path, upstream: ScriptedUpstream, stream: bool
) -> None:
    refused = json_response({"error": {"message": "what is that?"}}, 400)
    async with falling_back(tmp_path, upstream) as gateway:
        upstream.respond_with(by_model(m2=refused, m3=refused))
        answer = await gateway.post(Format.CHAT, model=FIRST, stream=stream)
        assert answer.status == 503
        assert "x-gateway-model" not in answer.headers
        row = await gateway.row()
        assert (row.catalog_model, row.error_code) == (FIRST, "server_is_overloaded")
        assert (row.upstream_status, row.notes, row.usd_micro) == (503, None, 0)
    assert sent_models(upstream) == ["m1", "m2", "m3"]


@pytest.mark.parametrize(
    "failure",
    [
        json_response({"error": {"message": "what is that?"}}, 400),
        json_response({"error": {"message": "it may have been served"}}, 504),
        event_stream(fixture_stream("chat").chunks[0], ending=Ending.RESET),
    ],
    ids=["the client's fault", "timed out there", "committed"],
)
async def test_what_no_other_model_may_serve(
    tmp_path: Path, upstream: ScriptedUpstream, failure: Any
) -> None:
    async with falling_back(tmp_path, upstream) as gateway:
        upstream.respond_with(failure)
        await gateway.post(Format.CHAT, model=FIRST, stream=True)
        assert (await gateway.row()).catalog_model == FIRST
    assert sent_models(upstream) == ["m1"]


async def test_one_request_of_the_limits(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with falling_back(tmp_path, upstream) as gateway:
        upstream.respond_with(by_model(m2=fixture_reply("chat")))
        limit_key(gateway, requests_per_minute=2, concurrent=1, budget_day=10**13)
        answers = [await gateway.post(Format.CHAT, model=FIRST) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 200]
