"""What a channel's options make of a request, and how many requests an account may have."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from gateway.core.failure import FailureKind
from gateway.core.formats import Format, Lane
from gateway.core.target import Target
from gateway.routing.router import Candidate
from gateway.upstream.client import AccountAtCapacity, AttemptFailed
from tests.house import ACCOUNT, ALPHA, UPSTREAM_MODEL
from tests.scripted import Ending, Script, ScriptedUpstream, reply, reply_stream, whole
from tests.upstream.calling import CANDIDATE, ask, failure_of, line_to


async def test_what_the_gateway_calls_itself(upstream: ScriptedUpstream) -> None:
    upstream.play(reply("chat"))
    async with line_to(upstream.address) as line:
        await ask(line)
        assert upstream.last.headers["user-agent"].startswith("model-gateway/")
    async with line_to(upstream.address, user_agent="house/1 (quiet)") as line:
        await ask(line)
        assert upstream.last.headers["user-agent"] == "house/1 (quiet)"


@pytest.mark.parametrize("sent", [{"anthropic-version": "2023-01-01", "anthropic-beta": "b"}, {}])
async def test_a_version_in_place_of_the_clients(
    upstream: ScriptedUpstream, sent: dict[str, str]
) -> None:
    upstream.play(reply("messages"))
    candidate = Candidate(
        "messages-main", ACCOUNT, Format.MESSAGES, Lane.NATIVE, ALPHA, Target(model=UPSTREAM_MODEL)
    )
    async with line_to(upstream.address, Format.MESSAGES, version_header="2030-12-31") as line:
        (await line.send(candidate, b"{}", sent, "")).close()
    assert upstream.last.headers.getall("anthropic-version") == ["2030-12-31"]
    assert upstream.last.headers.get("anthropic-beta") == sent.get("anthropic-beta")


async def test_the_channels_own_options(upstream: ScriptedUpstream) -> None:
    async with line_to(upstream.address, params={"seed": 1, "user": None}, stream="force") as line:
        options = line.channel(CANDIDATE)
    assert (options.params, options.stream) == ({"seed": 1, "user": None}, "force")
    assert line.timeouts(CANDIDATE) is options.timeouts


async def test_through_a_proxy(upstream: ScriptedUpstream) -> None:
    """The name of the upstream is the proxy's to find."""
    upstream.play(reply("chat"))
    async with line_to("http://nowhere.invalid:81", proxy=upstream.address) as line:
        for _ in range(2):
            assert await ask(line) == reply("chat").body
    assert upstream.last.target == "http://nowhere.invalid:81/v1/chat/completions"
    assert upstream.connections == 1


async def test_a_stale_connection_to_a_proxy_is_replaced(upstream: ScriptedUpstream) -> None:
    upstream.play(reply("chat"), Script(instead=b""), reply("chat"))
    async with line_to("http://nowhere.invalid:81", proxy=upstream.address) as line:
        await ask(line)
        assert await ask(line) == reply("chat").body
    assert [seen.connection for seen in upstream.seen] == [1, 1, 2]


async def test_a_proxy_that_is_not_there(unused_tcp_port: int) -> None:
    proxy = f"http://127.0.0.1:{unused_tcp_port}"
    async with line_to("http://nowhere.invalid:81", proxy=proxy) as line:
        assert (await failure_of(ask(line))).kind is FailureKind.CONNECT


async def test_a_proxy_that_refuses(upstream: ScriptedUpstream) -> None:
    upstream.play(whole({}, 407))
    async with line_to("https://nowhere.invalid", proxy=upstream.address) as line:
        assert (await failure_of(ask(line))).kind is FailureKind.CONNECT


async def test_a_proxy_that_is_silent(upstream: ScriptedUpstream) -> None:
    upstream.play(whole({}).but(delay=30))
    fields = {"proxy": upstream.address, "timeouts": {"connect": 0.2}}
    async with line_to("https://nowhere.invalid", **fields) as line:
        failure = await failure_of(asyncio.wait_for(ask(line), 5))
        assert failure.kind is FailureKind.CONNECT


def limited(most: int | None) -> dict[str, Any]:
    return {"accounts": [{"name": ACCOUNT, "key": "k", "concurrency": most}]}


async def test_no_more_at_once_than_the_account_may_have(upstream: ScriptedUpstream) -> None:
    upstream.play(reply("chat").but(ending=Ending.SILENT))
    async with line_to(upstream.address, **limited(2)) as line:
        answers = []
        for _ in range(2):
            assert not line.at_capacity(CANDIDATE.place)
            answers.append(await line.send(CANDIDATE, b"{}", {}, ""))
        assert line.at_capacity(CANDIDATE.place)
        with pytest.raises(AccountAtCapacity):
            await line.send(CANDIDATE, b"{}", {}, "")
        assert len(upstream.seen) == 2
        for answer in answers:
            answer.close()
            assert not line.at_capacity(CANDIDATE.place)


async def test_a_request_counts_before_it_is_answered(upstream: ScriptedUpstream) -> None:
    upstream.play(reply("chat").but(delay=30))
    async with line_to(upstream.address, **limited(1)) as line:
        sending = asyncio.ensure_future(line.send(CANDIDATE, b"{}", {}, ""))
        await upstream.asked()
        assert line.at_capacity(CANDIDATE.place)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert not line.at_capacity(CANDIDATE.place)


@pytest.mark.parametrize(
    "script",
    [
        reply("chat"),
        reply("chat").but(ending=Ending.TRUNCATED),
        reply_stream("chat"),
        whole({}, 500),
        whole({}, 302),
        Script(instead=b""),
        Script(instead=b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"),
    ],
    ids=["whole", "cut", "stream", "error", "redirect", "nothing", "in one piece"],
)
async def test_however_it_ends_the_place_is_free_again(
    upstream: ScriptedUpstream, script: Script
) -> None:
    upstream.play(script)
    async with line_to(upstream.address, **limited(1)) as line:
        for _ in range(3):
            with suppress(AttemptFailed):
                await ask(line)
            assert not line.at_capacity(CANDIDATE.place)


async def test_other_questions_do_not_count(upstream: ScriptedUpstream) -> None:
    upstream.play(reply("chat").but(ending=Ending.SILENT), whole({"input_tokens": 1}))
    async with line_to(upstream.address, **limited(1)) as line:
        answer = await line.send(CANDIDATE, b"{}", {}, "")
        assert line.at_capacity(CANDIDATE.place)
        assert await line.post_json(CANDIDATE, "/other", b"{}", {}, "") == {"input_tokens": 1}
        assert line.at_capacity(CANDIDATE.place)
        answer.close()
