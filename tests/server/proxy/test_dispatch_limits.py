"""Limits: the errors, that rejected requests use nothing, and that reservations are released."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.quota.limits import HolderKind
from gateway.store.records import ExchangeState
from tests.server.key_limits import (
    NOTHING_IN_USE,
    ErrorReply,
    cancel,
    in_use,
    limit_group,
    limit_key,
    read_error,
    start_request,
    use_quota,
    wait_all_released,
)
from tests.support.gateway import RunningGateway, channel, channels, run_gateway
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    by_frame,
    fixture_reply,
    fixture_stream,
    json_response,
)

HOLDERS = {"key": "key tests", "group": "group default", "gateway": "the gateway"}
SILENT = Response(ending=Ending.STALLED)


@asynccontextmanager
async def limited(
    whose: str, upstream: ScriptedUpstream, state: Path, **limits: int
) -> AsyncIterator[RunningGateway]:
    """A gateway in which the key, its group or all together have these limits."""
    config: dict[str, Any] = {"limits": limits} if whose == "gateway" else {}
    async with run_gateway(state, channels(upstream.address), **config) as gateway:
        if whose == "key":
            limit_key(gateway, **limits)
        if whose == "group":
            limit_group(gateway, **limits)
        yield gateway


def too_many(format: Format, message: str, kind: str = "requests") -> ErrorReply:
    text = f"Too Many Requests: {message}"
    if format is Format.MESSAGES:
        return ErrorReply(429, "rate_limit_error", text)
    return ErrorReply(429, kind, text, "rate_limit_exceeded")


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("whose", HOLDERS)
async def test_requests_per_minute(
    upstream: ScriptedUpstream, tmp_path: Path, whose: str, format: Format
) -> None:
    upstream.respond_with(fixture_reply(format))
    async with limited(whose, upstream, tmp_path, requests_per_minute=2) as gateway:
        use_quota(gateway, ago=50)
        assert (await gateway.post(format)).status == 200
        for streamed in (False, True):
            answer = await gateway.post(format, stream=streamed)
            assert await read_error(answer) == too_many(
                format,
                f"{HOLDERS[whose]}: 2 of 2 requests per minute used; try again in 10 s",
            )
            assert answer.headers["retry-after"] == "10"
            assert "x-should-retry" not in answer.headers
        row = (await gateway.rows(3))[-1]
        assert (row.state, row.status, row.end_reason) == (ExchangeState.REJECTED, 429, "refused")
        assert (row.error_code, row.cost_micro) == ("rate_limit_exceeded", 0)
        assert (row.usage_source, row.input_tokens, row.channel) == ("none", 0, None)
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("whose", HOLDERS)
async def test_tokens_per_minute(
    upstream: ScriptedUpstream, tmp_path: Path, whose: str, format: Format
) -> None:
    upstream.respond_with(fixture_reply(format))
    async with limited(whose, upstream, tmp_path, tokens_per_minute=2000) as gateway:
        use_quota(gateway, ago=50, tokens=1500)
        use_quota(gateway, ago=20, tokens=450)
        answer = await gateway.post(format)
        error = await read_error(answer)
        match = re.search(r"may use ([\d,]+);", error.message)
        assert match is not None
        # The prompt's few tokens, and its max_tokens or the default.
        default_output = 100 if format is Format.MESSAGES else 1024
        assert default_output < int(match[1].replace(",", "")) < default_output + 20
        assert error == too_many(
            format,
            f"{HOLDERS[whose]}: 1,950 of 2,000 tokens per minute used, this request may use "
            f"{match[1]}; try again in 10 s",
            "tokens",
        )
        assert answer.headers["retry-after"] == "10"
    assert not upstream.requests


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("whose", HOLDERS)
async def test_concurrent_requests(
    upstream: ScriptedUpstream, tmp_path: Path, whose: str, format: Format
) -> None:
    upstream.respond_with(SILENT, fixture_reply(format))
    async with limited(whose, upstream, tmp_path, concurrent=1) as gateway:
        request = start_request(gateway)
        await upstream.wait_for_request()
        answer = await gateway.post(format)
        assert await read_error(answer) == too_many(
            format, f"{HOLDERS[whose]}: 1 of 1 concurrent request running"
        )
        assert answer.headers["retry-after"] == "1"
        await cancel(request)
        await wait_all_released(gateway)
        assert (await gateway.post(format)).status == 200


@pytest.mark.parametrize("format", Format)
async def test_requests_that_never_fit_are_not_to_be_retried(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    limit_key(gateway, tokens_per_minute=1)
    answer = await gateway.post(format, stream=True)
    error = await read_error(answer)
    assert (error.status, "over the limit of 1 token per minute" in error.message) == (429, True)
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize("limit", ["requests_per_minute", "tokens_per_minute", "concurrent"])
async def test_a_limit_of_zero_rejects_everything(
    gateway: RunningGateway, upstream: ScriptedUpstream, limit: str
) -> None:
    limit_key(gateway, **{limit: 0})
    answer = await gateway.post(Format.CHAT)
    assert (answer.status, answer.headers["x-should-retry"]) == (429, "false")
    assert not upstream.requests


async def test_the_limit_with_the_longest_wait_is_reported(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    limit_key(gateway, requests_per_minute=1)
    limit_group(gateway, tokens_per_minute=5000)
    other, _ = await gateway.operations.create_key("other", "default")
    use_quota(gateway, ago=50)
    use_quota(gateway, ago=20, tokens=4900, token=other)
    answer = await gateway.post(Format.CHAT)
    assert answer.headers["retry-after"] == "40"
    assert (
        "group default: 4,900 of 5,000 tokens per minute used" in (await read_error(answer)).message
    )
    assert not upstream.requests


async def test_rejected_requests_use_no_quota(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """All limits are checked before anything is taken of any."""
    upstream.respond_with(SILENT, fixture_reply("chat"))
    limit_key(gateway, requests_per_minute=3, tokens_per_minute=9000, concurrent=9, budget=10**12)
    limit_group(gateway, requests_per_minute=9, tokens_per_minute=99_000, concurrent=1)
    request = start_request(gateway)
    await upstream.wait_for_request()
    before = in_use(gateway)
    for _ in range(20):
        answer = await gateway.post(Format.CHAT)
        assert answer.status == 429
        assert answer.headers["x-ratelimit-remaining-requests"] == "2"
    assert in_use(gateway) == before
    assert len(upstream.requests) == 1
    await cancel(request)
    await wait_all_released(gateway)
    left = [(await gateway.post(Format.CHAT)).status for _ in range(3)]
    assert left == [200, 200, 429]
    rows = await gateway.rows(24)
    purse = gateway.daemon.runtime.quota.budget(HolderKind.KEY, gateway.token.id)
    assert purse.total == sum(row.cost_micro for row in rows) > 0


async def test_requests_rejected_for_other_reasons_use_no_quota(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    limit_key(gateway, requests_per_minute=1, tokens_per_minute=9000, concurrent=1)
    assert (await gateway.post(Format.CHAT, b"{")).status == 400
    assert (await gateway.post(Format.CHAT, model="nobody")).status == 503
    assert (await gateway.post(Format.CHAT, messages=7)).status == 400
    assert (await gateway.get("/v1/models")).status == 200
    upstream.respond_with(fixture_reply("chat"))
    assert (await gateway.post(Format.CHAT)).status == 200


async def test_changed_limits_apply_from_the_next_request(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    for limits, status in (
        ({"requests_per_minute": 1}, 200),
        ({"requests_per_minute": 1}, 429),
        ({"requests_per_minute": 2}, 200),
        ({"requests_per_minute": None}, 200),
    ):
        await gateway.operations.update_key(gateway.token.id, limits=limits)
        assert (await gateway.post(Format.CHAT)).status == status, limits
    await gateway.operations.update_group("default", limits={"concurrent": 0})
    assert (await gateway.post(Format.CHAT)).status == 429


async def test_keys_of_a_group_share_only_its_limits(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    limit_key(gateway, requests_per_minute=1)
    limit_group(gateway, requests_per_minute=3)
    _, second = await gateway.operations.create_key("second", "default")
    await gateway.operations.create_group("else", ("*",))
    _, third = await gateway.operations.create_key("third", "else")
    tasks = [gateway.key, gateway.key, second, second, second, third, third, third, third]
    statuses = [(await gateway.post(Format.CHAT, key=key)).status for key in tasks]
    assert statuses == [200, 429, 200, 200, 429, 200, 200, 200, 200]


async def _body(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply("chat"))
    assert (await gateway.post(Format.CHAT)).status == 200


async def _stream(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_stream("chat"))
    assert (await gateway.post(Format.CHAT, stream=True)).status == 200


async def _error(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({"error": {"message": "no"}}, 400))
    assert (await gateway.post(Format.CHAT)).status == 400


async def _cut(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_stream("chat", "cut", ending=Ending.TRUNCATED))
    assert (await gateway.post(Format.CHAT, stream=True)).status == 200


async def _overload(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({"error": {"message": "busy"}}, 500))
    assert (await gateway.post(Format.CHAT)).status == 503


async def _failover(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(
        json_response({"error": {"message": "no"}}, 401), fixture_reply("responses")
    )
    assert (await gateway.post(Format.CHAT)).status == 200
    assert len(upstream.requests) == 2


async def _left_before(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(SILENT)
    request = start_request(gateway)
    await upstream.wait_for_request()
    assert in_use(gateway) != NOTHING_IN_USE
    await cancel(request)


async def _left_within(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(by_frame(fixture_stream("chat", "cut", ending=Ending.STALLED)))
    answer = await start_request(gateway, stream=True)
    assert await answer.content.readany()
    assert in_use(gateway) != NOTHING_IN_USE
    answer.close()


async def _left_while_failing_over(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({"error": {"message": "busy"}}, 529), SILENT)
    request = start_request(gateway)
    await upstream.wait_for_request(2)
    await cancel(request)


async def _hurried(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    """A shutdown that can wait no longer ends it."""
    upstream.respond_with(by_frame(fixture_stream("chat", "cut", ending=Ending.STALLED)))
    answer = await start_request(gateway, stream=True)
    assert await answer.content.readany()
    gateway.daemon.abort()
    await answer.read()


async def _counted(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({"input_tokens": 7}))
    path = "/v1/messages/count_tokens"
    assert (await gateway.post(Format.MESSAGES, path=path)).status == 200


ENDINGS = (
    _body,
    _stream,
    _error,
    _cut,
    _overload,
    _failover,
    _left_before,
    _left_within,
    _left_while_failing_over,
    _hurried,
    _counted,
)


@pytest.mark.parametrize("way", ENDINGS, ids=lambda way: way.__name__)
async def test_leases_are_released_however_a_request_ends(
    gateway: RunningGateway,
    upstream: ScriptedUpstream,
    way: Callable[[RunningGateway, ScriptedUpstream], Awaitable[None]],
) -> None:
    limit_key(gateway, concurrent=1, budget=10**12, tokens_per_minute=10**6)
    limit_group(gateway, concurrent=1, budget_day=10**12)
    await way(gateway, upstream)
    await wait_all_released(gateway)
    (row,) = await gateway.rows()
    used = row.input_tokens + row.output_tokens
    answer = await gateway.post(Format.CHAT, b"{")
    assert answer.headers["x-ratelimit-remaining-tokens"] == str(10**6 - used)


async def test_a_token_count_takes_a_request_and_no_tokens(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(json_response({"input_tokens": 7}))
    limit_key(gateway, requests_per_minute=2, tokens_per_minute=1)
    path = "/v1/messages/count_tokens"
    answers = [await gateway.post(Format.MESSAGES, path=path) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[0].headers["anthropic-ratelimit-tokens-remaining"] == "1"
    assert len(upstream.requests) == 2


async def test_a_prewarm_counts_as_a_request(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with run_gateway(tmp_path, [channel(Format.CHAT, upstream.address)]) as gateway:
        limit_key(gateway, requests_per_minute=1, concurrent=1)
        answers = [await gateway.post(Format.MESSAGES, max_tokens=0) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 429]
        assert in_use(gateway) == NOTHING_IN_USE


async def test_many_concurrent_requests_never_exceed_the_limit(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat").with_changes(delay=0.3))
    limit_key(gateway, concurrent=7)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(gateway.post(Format.CHAT)) for _ in range(40)]
    statuses = [task.result().status for task in tasks]
    assert (statuses.count(200), statuses.count(429)) == (7, 33)
    assert len(upstream.requests) == 7
    assert in_use(gateway) == NOTHING_IN_USE
