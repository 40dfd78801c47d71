"""For whom requests are, in their rows: of the stock libraries, in all formats, streamed or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.errors import InsufficientQuota
from gateway.store.records import DIMENSIONS, RequestRow
from tests.server.record.test_billing_tiers import MODELS, answer, only
from tests.support.gateway import RunningGateway, run_gateway
from tests.support.stock_clients import open_anthropic, open_openai
from tests.support.upstream import ScriptedUpstream, json_response

EVERYTHING = ("end-user", "session", "agent", "tag")
PAIRS = [(client, format) for client in Format for format in Format]
AGENT_USER = '{"device_id":"dev","account_uuid":"acc","session_id":"ses"}'


def stated(row: RequestRow) -> tuple[str | None, ...]:
    return tuple(getattr(row, name) for name in DIMENSIONS)


@pytest.fixture
async def gateway(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    lines = [only(format, upstream.address) for format in Format]
    async with run_gateway(tmp_path, lines, models=MODELS) as gateway:
        yield gateway


async def trust(gateway: RunningGateway, *trust: str) -> None:
    await gateway.operations.update_key(gateway.token.id, trust=trust or None)


async def ask(
    gateway: RunningGateway, client: Format, model: str, headers: dict[str, str], *, streamed: bool
) -> None:
    """A request as the stock library sends it, with its reply read."""
    options: dict[str, Any] = {"model": model, "stream": streamed, "extra_headers": headers}
    turns: Any = [{"role": "user", "content": "Hi"}]
    if client is Format.MESSAGES:
        async with open_anthropic(gateway) as anthropic:
            reply: Any = await anthropic.messages.create(
                max_tokens=9, messages=turns, metadata={"user_id": AGENT_USER}, **options
            )
            assert not streamed or [each async for each in reply]
        return
    async with open_openai(gateway) as openai:
        if client is Format.CHAT:
            reply = await openai.chat.completions.create(
                messages=turns, user="alice", prompt_cache_key="conversation", **options
            )
        else:
            reply = await openai.responses.create(
                input="Hi", safety_identifier="bob", prompt_cache_key="conversation", **options
            )
        assert not streamed or [each async for each in reply]


STATED = {
    Format.CHAT: ("alice", "conversation"),
    Format.MESSAGES: ("acc", "ses"),
    Format.RESPONSES: ("bob", "conversation"),
}


@pytest.mark.parametrize("streamed", [False, True])
async def test_stock_libraries_in_all_formats(
    gateway: RunningGateway, upstream: ScriptedUpstream, streamed: bool
) -> None:
    headers = {"x-gateway-tag": "nightly", "x-claude-code-request-class": "main"}
    for count, (client, format) in enumerate(PAIRS):
        upstream.respond_with(answer(format, streamed=streamed))
        await trust(gateway)
        await ask(gateway, client, f"model-{format}", headers, streamed=streamed)
        upstream.respond_with(answer(format, streamed=streamed))
        await trust(gateway, *EVERYTHING)
        await ask(gateway, client, f"model-{format}", headers, streamed=streamed)
        *_, untrusted, trusted = await gateway.rows(2 * count + 2)
        assert stated(untrusted) == (None, None, None, None)
        assert stated(trusted) == (*STATED[client], "main", "nightly")
        assert (trusted.state, trusted.notes) == ("ok", None)
        assert "x-gateway-tag" not in upstream.last_request.headers


async def test_refused_requests_state_themselves_too(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    await trust(gateway, "tag", "end-user=x-mail")
    await gateway.operations.update_key(gateway.token.id, limits={"budget": 0})
    headers = {"x-gateway-tag": "nightly", "x-mail": "a@example.org"}
    reply = await gateway.post(Format.CHAT, model="model-chat", headers=headers)
    assert reply.status == InsufficientQuota.status
    assert stated(await gateway.row()) == ("a@example.org", None, None, "nightly")


async def test_endpoints_that_pass_through(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    line = only(Format.CHAT, upstream.address) | {"endpoints": ["embeddings"]}
    async with run_gateway(tmp_path, [line], models=MODELS[:1]) as gateway:
        await trust(gateway, "end-user", "tag")
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        upstream.respond_with(json_response({"object": "list", "data": [], "usage": usage}))
        body = {"model": MODELS[0]["id"], "input": "Hi", "user": "alice"}
        tag = {"x-gateway-tag": "nightly"}
        reply = await gateway.post(Format.CHAT, body, path="/v1/embeddings", headers=tag)
        assert reply.status == 200, await reply.text()
        assert stated(await gateway.row()) == ("alice", None, None, "nightly")


async def test_end_users_are_hashed_where_the_configuration_says_so(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    key = "k" * 40
    logs = {"end_users": {"hash_key": key}}
    lines = [only(Format.CHAT, upstream.address)]
    async with run_gateway(tmp_path, lines, models=MODELS, logs=logs) as gateway:
        await trust(gateway, "end-user")
        for user in ("alice", "bob", "alice"):
            upstream.respond_with(answer(Format.CHAT))
            await gateway.post(Format.CHAT, model="model-chat", user=user)
        hashes = [row.end_user for row in await gateway.rows(3)]
        assert hashes[0] == hashes[2] != hashes[1]
        assert not any(name in str(hashes) for name in ("alice", "bob", "None"))
