"""Counting a prompt's tokens: by which upstream, the estimate otherwise, and the row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse
from anthropic import AsyncAnthropic

from gateway.core.formats import Format
from gateway.server.proxy import count_tokens
from gateway.store.records import ExchangeState
from gateway.wire.messages import parse_count_tokens
from tests.support.gateway import (
    ALPHA,
    BETA,
    UPSTREAM_KEY,
    UPSTREAM_MODEL,
    RunningGateway,
    channel,
    run_gateway,
)
from tests.support.shared_gateway import as_new, in_the_modules_loop
from tests.support.upstream import Ending, Response, ScriptedUpstream, json_response

pytestmark = pytest.mark.shared_gateway

PATH = "/v1/messages/count_tokens"
TURNS = [{"role": "user", "content": "How many tokens does this question have?"}]
BODY: dict[str, Any] = {"model": ALPHA, "messages": TURNS}
ESTIMATED = "x-gateway-estimated"
TOOL = {"name": "get_weather", "input_schema": {"type": "object", "properties": {}}}


async def ask(
    gateway: RunningGateway,
    path: str = PATH,
    key: str | None = None,
    headers: Any = None,
    **fields: Any,
) -> ClientResponse:
    return await gateway.post(Format.MESSAGES, BODY | fields, path=path, key=key, headers=headers)


async def counted(answer: ClientResponse) -> int:
    """The tokens of a sound answer of ours."""
    assert answer.status == 200, await answer.text()
    assert answer.content_type == "application/json"
    body = await answer.json()
    assert body.keys() == {"input_tokens"}
    assert type(body["input_tokens"]) is int
    return int(body["input_tokens"])


async def estimated(answer: ClientResponse) -> int:
    tokens = await counted(answer)
    assert answer.headers[ESTIMATED] == "true"
    assert 8 <= tokens <= 30
    return tokens


@in_the_modules_loop()
async def responses(
    gateway_of_module: RunningGateway, upstream: ScriptedUpstream
) -> AsyncIterator[RunningGateway]:
    """A gateway that only has a responses upstream."""
    lines = [channel(Format.RESPONSES, upstream.address)]
    async with as_new(gateway_of_module, lines) as gateway:
        yield gateway


@in_the_modules_loop()
async def chat(
    gateway_of_module: RunningGateway, upstream: ScriptedUpstream
) -> AsyncIterator[RunningGateway]:
    lines = [channel(Format.CHAT, upstream.address)]
    async with as_new(gateway_of_module, lines) as gateway:
        yield gateway


async def test_a_messages_upstream_counts(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(json_response({"input_tokens": 2095}))
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    answer = await ask(gateway, system=system, tools=[TOOL], unknown={"kept": [1]})
    assert await counted(answer) == 2095
    assert ESTIMATED not in answer.headers
    seen = upstream.last_request
    assert (seen.method, seen.target) == ("POST", PATH)
    assert seen.headers["x-api-key"] == UPSTREAM_KEY
    assert seen.headers["anthropic-version"] == "2023-06-01"
    assert seen.json == {
        "model": UPSTREAM_MODEL,
        "messages": TURNS,
        "system": system,
        "tools": [TOOL],
        "unknown": {"kept": [1]},
    }


async def test_the_beta_form(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    count_body = {"input_tokens": 70, "context_management": {"original_input_tokens": 900}}
    upstream.respond_with(json_response(count_body))
    management = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    answer = await ask(
        gateway,
        PATH + "?beta=true",
        headers={"anthropic-beta": "context-management-2025-06-27"},
        context_management=management,
    )
    assert await answer.json() == count_body
    assert upstream.last_request.target == PATH + "?beta=true"
    assert upstream.last_request.headers["anthropic-beta"] == "context-management-2025-06-27"
    assert upstream.last_request.json["context_management"] == management


async def test_a_responses_upstream_counts(
    responses: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(json_response({"object": "response.input_tokens", "input_tokens": 31}))
    answer = await ask(
        responses,
        PATH + "?beta=true",
        system="Be brief.",
        tools=[TOOL],
        metadata={"user_id": "u"},
        temperature=0.5,
        stream=True,
    )
    assert await counted(answer) == 31
    assert ESTIMATED not in answer.headers
    seen = upstream.last_request
    assert (seen.method, seen.target) == ("POST", "/v1/responses/input_tokens")
    assert seen.headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert "anthropic-version" not in seen.headers
    body = seen.json
    assert body["model"] == UPSTREAM_MODEL
    assert body["instructions"] == "Be brief."
    assert body["input"] and body["tools"]
    kept = {"model", "instructions", "input", "tools", "tool_choice", "parallel_tool_calls"}
    assert body.keys() <= kept | {"reasoning", "text", "truncation"}


async def test_a_translated_messages_upstream_counts(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    lines = [channel(Format.MESSAGES, upstream.address, lane="translated")]
    async with run_gateway(tmp_path, lines) as gateway:
        upstream.respond_with(json_response({"input_tokens": 12}))
        answer = await ask(gateway, max_tokens=7, metadata={"user_id": "u"}, tools=[TOOL])
        assert await counted(answer) == 12
    assert upstream.last_request.target == PATH
    assert upstream.last_request.headers["anthropic-version"] == "2023-06-01"
    assert upstream.last_request.json.keys() == {"model", "messages", "tools"}


async def test_for_a_chat_upstream_the_gateway_estimates(
    chat: RunningGateway, upstream: ScriptedUpstream
) -> None:
    few = await estimated(await ask(chat))
    assert upstream.requests == []
    more = await ask(chat, messages=[{"role": "user", "content": "word " * 4000}])
    assert 3900 <= await counted(more) <= 4500
    assert await counted(await ask(chat, tools=[TOOL])) > few
    management = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    answer = await ask(chat, PATH + "?beta=true", context_management=management)
    assert await estimated(answer) == few


async def test_an_estimate_follows_the_measured_usage(chat: RunningGateway) -> None:
    before = await counted(await ask(chat))
    long = parse_count_tokens(BODY | {"messages": [{"role": "user", "content": "word " * 9000}]})
    runtime = chat.daemon.runtime
    for _ in range(20):
        runtime.input_estimates.record(
            ALPHA, long, 3 * runtime.input_estimates.estimate(BETA, long)
        )
    assert await counted(await ask(chat)) == pytest.approx(3 * before, rel=0.1)
    assert await counted(await ask(chat, model=BETA)) == before


FAILURES: dict[str, Response] = {
    "404": json_response({"error": {"message": "not found", "type": "not_found_error"}}, 404),
    "405": json_response(b"Method Not Allowed", 405),
    "501": json_response({"error": {"message": "not supported", "type": "not_supported"}}, 501),
    "401": json_response({"error": {"message": "bad key", "type": "authentication_error"}}, 401),
    "429": json_response({"error": {"message": "slow down", "type": "rate_limit_error"}}, 429),
    "500": json_response({"error": {"message": "oops", "type": "api_error"}}, 500),
    "529": json_response({"error": {"message": "busy", "type": "overloaded_error"}}, 529),
    "redirect": json_response(b"", 302, location="http://127.0.0.1:1/"),
    "a page": json_response(b"<html>login</html>"),
    "a list": json_response([1]),
    "an empty body": json_response(b""),
    "no number": json_response({"input_tokens": "many"}),
    "no field": json_response({"tokens": 4}),
    "a flag": json_response({"input_tokens": True}),
    "a fraction": json_response({"input_tokens": 4.5}),
    "nothing": json_response({"input_tokens": 0}),
    "less": json_response({"input_tokens": -1}),
    "a flood": json_response({"input_tokens": 4, "more": "x" * 2**17}),
    "closed": Response(raw=b""),
    "garbage": Response(raw=b"SMTP ready\r\n\r\n"),
    "cut": json_response({"input_tokens": 4}).with_changes(ending=Ending.TRUNCATED),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_an_upstream_that_cannot_count_is_no_error(
    gateway: RunningGateway, upstream: ScriptedUpstream, failure: str
) -> None:
    upstream.respond_with(FAILURES[failure])
    await estimated(await ask(gateway))
    row = await gateway.row()
    assert (row.state, row.status, row.end_reason) == (ExchangeState.OK, 200, "complete")
    assert row.upstream_error is not None
    assert row.upstream_error.startswith("estimated, for the upstream")
    assert UPSTREAM_KEY not in row.upstream_error


@pytest.mark.parametrize("failure", ["404", "400", "no field", "closed"])
async def test_a_responses_upstream_that_cannot_count_is_no_error(
    responses: RunningGateway, upstream: ScriptedUpstream, failure: str
) -> None:
    """Not even 400: the body that it refuses is not the client's."""
    refusal = json_response({"error": {"message": "Unknown parameter", "param": "text"}}, 400)
    upstream.respond_with(FAILURES.get(failure, refusal))
    await estimated(await ask(responses))


async def test_prompts_that_cannot_be_translated_are_estimated(
    responses: RunningGateway, upstream: ScriptedUpstream
) -> None:
    block = {"type": "document", "source": {"type": "file", "file_id": "file_of_another_vendor"}}
    answer = await ask(responses, messages=[{"role": "user", "content": [block]}])
    assert await counted(answer) > 1000
    assert answer.headers[ESTIMATED] == "true"
    assert upstream.requests == []


async def test_a_silent_upstream_times_out(
    gateway: RunningGateway, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(count_tokens, "COUNT_TIMEOUT", 0.05)
    upstream.respond_with(json_response({"input_tokens": 4}).with_changes(delay=5))
    await estimated(await ask(gateway))
    async with asyncio.timeout(5):
        await upstream.last_request.disconnected.wait()


async def test_an_unreachable_upstream_is_no_error(tmp_path: Path) -> None:
    lines = [channel(Format.MESSAGES, "http://127.0.0.1:9")]
    async with run_gateway(tmp_path, lines) as gateway:
        await estimated(await ask(gateway))


async def test_the_clients_error_is_that_of_the_upstream(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    message = f"messages.0.content.0: odd, at {upstream.address}"
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    upstream.respond_with(json_response(error, 400))
    answer = await ask(gateway)
    assert answer.status == 400
    body = await answer.json()
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["error"]["message"].startswith("messages.0.content.0: odd")
    assert upstream.address not in body["error"]["message"]
    row = await gateway.row()
    assert (row.state, row.status, row.upstream_status) == (ExchangeState.ERROR, 400, 400)


async def test_rows(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({"input_tokens": 2095}))
    await ask(gateway)
    row = await gateway.row()
    assert (row.endpoint, row.format, row.model) == (PATH, "messages", ALPHA)
    assert (row.channel, row.upstream_model, row.lane) == (
        "messages-main",
        UPSTREAM_MODEL,
        "native",
    )
    assert (row.state, row.status, row.end_reason) == (ExchangeState.OK, 200, "complete")
    assert (row.input_tokens, row.output_tokens, row.usage_source) == (0, 0, "none")
    assert (row.upstream_error, row.stream) == (None, False)


async def test_a_row_without_an_upstream(chat: RunningGateway) -> None:
    await ask(chat)
    row = await chat.row()
    assert (row.state, row.status, row.end_reason) == (ExchangeState.OK, 200, "complete")
    assert (row.channel, row.input_tokens, row.model) == (None, 0, ALPHA)


INVALID_PROMPTS: dict[str, dict[str, Any]] = {
    "no model": {"model": None},
    "an unknown model": {"model": "gamma-1"},
    "a model out of reach": {"model": BETA},
    "no turns": {"messages": None},
    "an empty conversation": {"messages": []},
    "an odd role": {"messages": [{"role": "boss", "content": "Do it"}]},
    "an odd limit": {"max_tokens": -1},
    "a tool without a schema": {"tools": [{"name": "get_weather"}]},
}


@pytest.mark.parametrize("invalid", INVALID_PROMPTS)
async def test_errors_have_the_form_of_messages(
    gateway: RunningGateway, upstream: ScriptedUpstream, invalid: str
) -> None:
    key = await gateway.key_for_models("alpha-*")
    fields = {"max_tokens": 100} | INVALID_PROMPTS[invalid]
    ours = await ask(gateway, key=key, **fields)
    its = await ask(gateway, path="/v1/messages", key=key, **fields)
    assert ours.status == its.status >= 400
    body, expected = await ours.json(), await its.json()
    assert (body["type"], body["error"]) == ("error", expected["error"])
    assert ours.headers.get("x-should-retry") == its.headers.get("x-should-retry")
    assert upstream.requests == []


async def test_the_usual_checks_apply(gateway: RunningGateway) -> None:
    assert (await ask(gateway, key="sk-unknown")).status == 401
    unversioned = await gateway.http.post(
        PATH, json=BODY, headers={"authorization": f"Bearer {gateway.key}"}
    )
    assert unversioned.status == 400
    assert "anthropic-version" in (await unversioned.json())["error"]["message"]
    got = await gateway.get(PATH)
    assert got.status == 405
    assert (await got.json())["type"] == "error"


async def test_a_family_without_an_endpoint(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    lines = [channel(Format.MESSAGES, upstream.address)]
    families = {"alpha": {"endpoints": ["chat"]}}
    async with run_gateway(tmp_path, lines, families=families) as gateway:
        answer = await ask(gateway)
        assert answer.status == 500
        assert (await answer.json())["error"]["message"].startswith("not implemented")


async def test_the_official_client(
    anthropic: AsyncAnthropic, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(json_response({"input_tokens": 2095}))
    count = await anthropic.messages.count_tokens(
        model=ALPHA, messages=[{"role": "user", "content": "Hello"}], system="Be brief."
    )
    assert count.input_tokens == 2095
    beta = await anthropic.beta.messages.count_tokens(
        model=ALPHA,
        messages=[{"role": "user", "content": "Hello"}],
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
        betas=["context-management-2025-06-27"],
    )
    assert beta.input_tokens == 2095
    upstream.respond_with(FAILURES["404"])
    guess = await anthropic.messages.count_tokens(
        model=BETA, messages=[{"role": "user", "content": "Hello"}]
    )
    assert 4 <= guess.input_tokens <= 12
