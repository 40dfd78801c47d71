"""Encrypted reasoning is requested only of models that encrypt it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.server.proxy.account_probe import probe_account
from tests.support.gateway import BETA, channel, run_gateway
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    fixture_reply,
    json_response,
)

ENCRYPTED = "reasoning.encrypted_content"
REFUSAL = {
    "error": {
        "message": "Encrypted content is not supported with this model.",
        "type": "invalid_request_error",
        "param": "include",
        "code": None,
    }
}

each_client = pytest.mark.parametrize("client", list(Format))


async def plain_model(request: ReceivedRequest) -> Response:
    """An upstream whose model does not reason."""
    if ENCRYPTED in (request.json.get("include") or ()):
        return json_response(REFUSAL, 400)
    return fixture_reply(Format.RESPONSES)


def lines(upstream: ScriptedUpstream, **traits: Any) -> list[dict[str, Any]]:
    return [channel(Format.RESPONSES, upstream.address, traits=traits)]


@each_client
async def test_a_model_without_efforts(
    upstream: ScriptedUpstream, tmp_path: Path, client: Format
) -> None:
    upstream.respond_with(plain_model)
    async with run_gateway(tmp_path, lines(upstream, efforts=[])) as gateway:
        answer = await gateway.post(client)
        assert answer.status == 200, await answer.read()
        assert (await gateway.row()).attempts == 1
    assert "include" not in upstream.last_request.json


@each_client
async def test_a_refusal_is_hidden_and_remembered(
    upstream: ScriptedUpstream, tmp_path: Path, client: Format
) -> None:
    upstream.respond_with(plain_model)
    async with run_gateway(tmp_path, lines(upstream)) as gateway:
        for _ in range(2):
            answer = await gateway.post(client)
            assert answer.status == 200, await answer.read()
        first, second = await gateway.rows(2)
    assert (first.attempts, second.attempts) == (2, 1)
    asked = [ENCRYPTED in (each.json.get("include") or ()) for each in upstream.requests]
    assert asked == [True, False, False]


async def test_a_try_of_the_account_asks_for_none(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(plain_model)
    async with run_gateway(tmp_path, lines(upstream)) as gateway:
        runtime = gateway.daemon.runtime
        router = runtime.current.router
        route = router.route(BETA, Format.RESPONSES, router.access_for(["*"]))
        result = await probe_account(runtime, route.candidates[0])
    assert result.ok, result.error
    assert upstream.last_request.json["store"] is False


async def test_a_client_that_asks_itself_gets_the_refusal(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(plain_model)
    async with run_gateway(tmp_path, lines(upstream)) as gateway:
        answer = await gateway.post(Format.RESPONSES, include=[ENCRYPTED], store=False)
        assert answer.status == 400
        assert "Encrypted content is not supported" in await answer.text()


@pytest.mark.parametrize(
    ("client", "fields"),
    [
        (Format.RESPONSES, {"reasoning": {"effort": "none"}}),
        (Format.CHAT, {"reasoning_effort": "none"}),
    ],
)
@pytest.mark.parametrize("asks", [True, False])
async def test_it_follows_the_effort(
    upstream: ScriptedUpstream, tmp_path: Path, client: Format, fields: dict[str, Any], asks: bool
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES))
    async with run_gateway(tmp_path, lines(upstream)) as gateway:
        answer = await gateway.post(client, **({} if asks else fields))
        assert answer.status == 200, await answer.read()
    assert upstream.last_request.json.get("include") == ([ENCRYPTED] if asks else None)
