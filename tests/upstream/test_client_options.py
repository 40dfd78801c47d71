"""What a channel's options make of a request, and how many requests an account may have."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from gateway.core.events import FailureKind
from gateway.core.formats import Format, Lane
from gateway.core.target import Target
from gateway.routing.router import Candidate
from gateway.upstream.client import AccountAtCapacity
from gateway.upstream.response import AttemptFailed
from tests.support.gateway import ACCOUNT, ALPHA, UPSTREAM_MODEL
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
)
from tests.upstream.client_requests import CANDIDATE, LIMIT, failure_of, open_client, send


async def test_the_user_agent(upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with open_client(upstream.address) as line:
        await send(line)
        assert upstream.last_request.headers["user-agent"].startswith("model-gateway/")
    async with open_client(upstream.address, user_agent="house/1 (quiet)") as line:
        await send(line)
        assert upstream.last_request.headers["user-agent"] == "house/1 (quiet)"


async def test_an_upstream_that_asks_for_no_key_gets_none(upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with open_client(upstream.address, accounts=[{"name": ACCOUNT, "key": ""}]) as line:
        await send(line)
        assert "authorization" not in upstream.last_request.headers


@pytest.mark.parametrize("sent", [{"anthropic-version": "2023-01-01", "anthropic-beta": "b"}, {}])
async def test_the_configured_version_replaces_the_clients(
    upstream: ScriptedUpstream, sent: dict[str, str]
) -> None:
    upstream.respond_with(fixture_reply("messages"))
    candidate = Candidate(
        "messages-main", ACCOUNT, Format.MESSAGES, Lane.NATIVE, ALPHA, Target(model=UPSTREAM_MODEL)
    )
    async with open_client(upstream.address, Format.MESSAGES, version_header="2030-12-31") as line:
        (await line.send(candidate, b"{}", sent, "")).close()
    assert upstream.last_request.headers.getall("anthropic-version") == ["2030-12-31"]
    assert upstream.last_request.headers.get("anthropic-beta") == sent.get("anthropic-beta")


async def test_the_channels_own_options(upstream: ScriptedUpstream) -> None:
    async with open_client(
        upstream.address, params={"seed": 1, "user": None}, stream="force"
    ) as line:
        options = line.channel(CANDIDATE)
    assert (options.params, options.stream) == ({"seed": 1, "user": None}, "force")


async def test_through_a_proxy(upstream: ScriptedUpstream) -> None:
    """The name of the upstream is the proxy's to find."""
    upstream.respond_with(fixture_reply("chat"))
    async with open_client("http://nowhere.invalid:81", proxy=upstream.address) as line:
        for _ in range(2):
            assert await send(line) == fixture_reply("chat").body
    assert upstream.last_request.target == "http://nowhere.invalid:81/v1/chat/completions"
    assert upstream.connections == 1


async def test_a_stale_connection_to_a_proxy(upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply("chat"), Response(raw=b""), fixture_reply("chat"))
    async with open_client("http://nowhere.invalid:81", proxy=upstream.address) as line:
        await send(line)
        assert (await failure_of(send(line))).kind is FailureKind.REUSED
        assert await send(line) == fixture_reply("chat").body
    assert [seen.connection for seen in upstream.requests] == [1, 1, 2]


REUSES = {"across_keys": [1, 1, 1, 1, 1], "within_key": [1, 2, 1, 3, 4], "never": [1, 2, 3, 4, 5]}


@pytest.mark.parametrize(("reuse", "connections"), REUSES.items(), ids=REUSES)
async def test_requests_that_share_a_connection(
    upstream: ScriptedUpstream, reuse: str, connections: list[int]
) -> None:
    """Under `within_key` a request of no key, as a probe, is followed by none."""
    upstream.respond_with(fixture_reply("chat"))
    async with open_client(upstream.address, reuse=reuse) as line:
        for key in ("a", "b", "a", None, None):
            async with await line.send(CANDIDATE, b"{}", {}, "", key_id=key) as response:
                await response.read_body(LIMIT)
        opened, idle = line.connections
        assert opened == idle == {"across_keys": 1, "within_key": 2, "never": 0}[reuse]
    assert [seen.connection for seen in upstream.requests] == connections


async def test_an_unreachable_proxy(unused_tcp_port: int) -> None:
    proxy = f"http://127.0.0.1:{unused_tcp_port}"
    async with open_client("http://nowhere.invalid:81", proxy=proxy) as line:
        assert (await failure_of(send(line))).kind is FailureKind.CONNECT


async def test_a_proxy_that_refuses(upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({}, 407))
    async with open_client("https://nowhere.invalid", proxy=upstream.address) as line:
        assert (await failure_of(send(line))).kind is FailureKind.CONNECT


async def test_a_proxy_that_is_silent(upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({}).with_changes(delay=30))
    fields = {"proxy": upstream.address, "timeouts": {"connect": 0.2}}
    async with open_client("https://nowhere.invalid", **fields) as line:
        failure = await failure_of(asyncio.wait_for(send(line), 5))
        assert failure.kind is FailureKind.CONNECT


def limited(most: int | None) -> dict[str, Any]:
    return {"accounts": [{"name": ACCOUNT, "key": "k", "concurrency": most}]}


async def test_concurrency_of_an_account_is_limited(upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply("chat").with_changes(ending=Ending.STALLED))
    async with open_client(upstream.address, **limited(2)) as line:
        answers = []
        for _ in range(2):
            assert not line.at_capacity(CANDIDATE.account_ref)
            answers.append(await line.send(CANDIDATE, b"{}", {}, ""))
        assert line.at_capacity(CANDIDATE.account_ref)
        with pytest.raises(AccountAtCapacity):
            await line.send(CANDIDATE, b"{}", {}, "")
        assert len(upstream.requests) == 2
        for answer in answers:
            answer.close()
            assert not line.at_capacity(CANDIDATE.account_ref)


async def test_a_request_counts_from_its_start(upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply("chat").with_changes(delay=30))
    async with open_client(upstream.address, **limited(1)) as line:
        sending = asyncio.ensure_future(line.send(CANDIDATE, b"{}", {}, ""))
        await upstream.wait_for_request()
        assert line.at_capacity(CANDIDATE.account_ref)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert not line.at_capacity(CANDIDATE.account_ref)


@pytest.mark.parametrize(
    "script",
    [
        fixture_reply("chat"),
        fixture_reply("chat").with_changes(ending=Ending.TRUNCATED),
        fixture_stream("chat"),
        json_response({}, 500),
        json_response({}, 302),
        Response(raw=b""),
        Response(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"),
    ],
    ids=["whole", "cut", "stream", "error", "redirect", "nothing", "in one piece"],
)
async def test_every_end_releases_the_slot(upstream: ScriptedUpstream, script: Response) -> None:
    upstream.respond_with(script)
    async with open_client(upstream.address, **limited(1)) as line:
        for _ in range(3):
            with suppress(AttemptFailed):
                await send(line)
            assert not line.at_capacity(CANDIDATE.account_ref)


async def test_other_endpoints_do_not_count(upstream: ScriptedUpstream) -> None:
    upstream.respond_with(
        fixture_reply("chat").with_changes(ending=Ending.STALLED),
        json_response({"input_tokens": 1}),
    )
    async with open_client(upstream.address, **limited(1)) as line:
        answer = await line.send(CANDIDATE, b"{}", {}, "")
        assert line.at_capacity(CANDIDATE.account_ref)
        assert await line.post_json(CANDIDATE, "/other", b"{}", {}, "") == {"input_tokens": 1}
        assert line.at_capacity(CANDIDATE.account_ref)
        answer.close()
