"""Limits at the door: what a refusal says and that it takes nothing; what is taken returns."""

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
from tests.house import House, channel, channels, open_house
from tests.scripted import (
    Ending,
    Script,
    ScriptedUpstream,
    by_frame,
    reply,
    reply_stream,
    whole,
)
from tests.server.limiting import (
    NOBODY,
    Refused,
    all_given_back,
    ask_and_wait,
    end,
    in_hand,
    limit_group,
    limit_key,
    refused,
    spend,
)

HOLDERS = {"key": "key tests", "group": "group default", "gateway": "the gateway"}
SILENT = Script(ending=Ending.SILENT)


@asynccontextmanager
async def limited(
    whose: str, upstream: ScriptedUpstream, state: Path, **limits: int
) -> AsyncIterator[House]:
    """A house in which the key, its group or all together have these limits."""
    config: dict[str, Any] = {"limits": limits} if whose == "gateway" else {}
    async with open_house(state, channels(upstream.address), **config) as house:
        if whose == "key":
            limit_key(house, **limits)
        if whose == "group":
            limit_group(house, **limits)
        yield house


def too_many(spoken: Format, message: str, kind: str = "requests") -> Refused:
    text = f"Too Many Requests: {message}"
    if spoken is Format.MESSAGES:
        return Refused(429, "rate_limit_error", text)
    return Refused(429, kind, text, "rate_limit_exceeded")


@pytest.mark.parametrize("spoken", Format)
@pytest.mark.parametrize("whose", HOLDERS)
async def test_requests_per_minute(
    upstream: ScriptedUpstream, tmp_path: Path, whose: str, spoken: Format
) -> None:
    upstream.play(reply(spoken))
    async with limited(whose, upstream, tmp_path, requests_per_minute=2) as house:
        spend(house, ago=50)
        assert (await house.ask(spoken)).status == 200
        for streamed in (False, True):
            answer = await house.ask(spoken, stream=streamed)
            assert await refused(answer) == too_many(
                spoken,
                f"{HOLDERS[whose]} may make 2 requests per minute: all 2 are used, "
                "there is room again in 10 s",
            )
            assert answer.headers["retry-after"] == "10"
            assert "x-should-retry" not in answer.headers
        row = (await house.rows(3))[-1]
        assert (row.state, row.status, row.end_reason) == (ExchangeState.REJECTED, 429, "refused")
        assert (row.error_code, row.cost_micro) == ("rate_limit_exceeded", 0)
        assert (row.usage_source, row.input_tokens, row.channel) == ("none", 0, None)
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("spoken", Format)
@pytest.mark.parametrize("whose", HOLDERS)
async def test_tokens_per_minute(
    upstream: ScriptedUpstream, tmp_path: Path, whose: str, spoken: Format
) -> None:
    upstream.play(reply(spoken))
    async with limited(whose, upstream, tmp_path, tokens_per_minute=2000) as house:
        spend(house, ago=50, tokens=1500)
        spend(house, ago=20, tokens=450)
        answer = await house.ask(spoken)
        told = await refused(answer)
        wanted = re.search(r"may take ([\d,]+),", told.message)
        assert wanted is not None
        # The prompt's few tokens, and its max_tokens or as many as nobody knows better.
        most = 100 if spoken is Format.MESSAGES else 1024
        assert most < int(wanted[1].replace(",", "")) < most + 20
        assert told == too_many(
            spoken,
            f"{HOLDERS[whose]} may use 2,000 tokens per minute: 1,950 are used and this request "
            f"may take {wanted[1]}, there is room again in 10 s",
            "tokens",
        )
        assert answer.headers["retry-after"] == "10"
    assert not upstream.seen


@pytest.mark.parametrize("spoken", Format)
@pytest.mark.parametrize("whose", HOLDERS)
async def test_requests_at_once(
    upstream: ScriptedUpstream, tmp_path: Path, whose: str, spoken: Format
) -> None:
    upstream.play(SILENT, reply(spoken))
    async with limited(whose, upstream, tmp_path, concurrent=1) as house:
        asking = ask_and_wait(house)
        await upstream.asked()
        answer = await house.ask(spoken)
        assert await refused(answer) == too_many(
            spoken, f"{HOLDERS[whose]} may have 1 request at once: 1 is running"
        )
        assert answer.headers["retry-after"] == "1"
        await end(asking)
        await all_given_back(house)
        assert (await house.ask(spoken)).status == 200


@pytest.mark.parametrize("spoken", Format)
async def test_what_never_fits_is_not_to_be_tried_again(
    house: House, upstream: ScriptedUpstream, spoken: Format
) -> None:
    limit_key(house, tokens_per_minute=1)
    answer = await house.ask(spoken, stream=True)
    told = await refused(answer)
    assert (told.status, "it never fits; ask for less" in told.message) == (429, True)
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize("limit", ["requests_per_minute", "tokens_per_minute", "concurrent"])
async def test_a_limit_of_nothing_lets_nothing_pass(
    house: House, upstream: ScriptedUpstream, limit: str
) -> None:
    limit_key(house, **{limit: 0})
    answer = await house.ask(Format.CHAT)
    assert (answer.status, answer.headers["x-should-retry"]) == (429, "false")
    assert not upstream.seen


async def test_the_limit_that_takes_longest_is_told(
    house: House, upstream: ScriptedUpstream
) -> None:
    limit_key(house, requests_per_minute=1)
    limit_group(house, tokens_per_minute=5000)
    other, _ = await house.desk.mint_key("other", "default")
    spend(house, ago=50)
    spend(house, ago=20, tokens=4900, token=other)
    answer = await house.ask(Format.CHAT)
    assert answer.headers["retry-after"] == "40"
    assert "group default may use 5,000 tokens per minute" in (await refused(answer)).message
    assert not upstream.seen


async def test_refused_requests_take_nothing(house: House, upstream: ScriptedUpstream) -> None:
    """All limits are checked before anything is taken of any."""
    upstream.play(SILENT, reply("chat"))
    limit_key(house, requests_per_minute=3, tokens_per_minute=9000, concurrent=9, budget=10**12)
    limit_group(house, requests_per_minute=9, tokens_per_minute=99_000, concurrent=1)
    asking = ask_and_wait(house)
    await upstream.asked()
    before = in_hand(house)
    for _ in range(20):
        answer = await house.ask(Format.CHAT)
        assert answer.status == 429
        assert answer.headers["x-ratelimit-remaining-requests"] == "2"
    assert in_hand(house) == before
    assert len(upstream.seen) == 1
    await end(asking)
    await all_given_back(house)
    left = [(await house.ask(Format.CHAT)).status for _ in range(3)]
    assert left == [200, 200, 429]
    rows = await house.rows(24)
    purse = house.daemon.runtime.quota.purse(HolderKind.KEY, house.token.id)
    assert purse.total == sum(row.cost_micro for row in rows) > 0


async def test_what_is_refused_for_other_reasons_takes_nothing(
    house: House, upstream: ScriptedUpstream
) -> None:
    limit_key(house, requests_per_minute=1, tokens_per_minute=9000, concurrent=1)
    assert (await house.ask(Format.CHAT, b"{")).status == 400
    assert (await house.ask(Format.CHAT, model="nobody")).status == 503
    assert (await house.ask(Format.CHAT, messages=7)).status == 400
    assert (await house.get("/v1/models")).status == 200
    upstream.play(reply("chat"))
    assert (await house.ask(Format.CHAT)).status == 200


async def test_changed_limits_bind_on_the_next_request(
    house: House, upstream: ScriptedUpstream
) -> None:
    upstream.play(reply("chat"))
    for limits, status in (
        ({"requests_per_minute": 1}, 200),
        ({"requests_per_minute": 1}, 429),
        ({"requests_per_minute": 2}, 200),
        ({"requests_per_minute": None}, 200),
    ):
        await house.desk.change_key(house.token.id, limits=limits)
        assert (await house.ask(Format.CHAT)).status == status, limits
    await house.desk.set_group("default", limits={"concurrent": 0})
    assert (await house.ask(Format.CHAT)).status == 429


async def test_the_keys_of_a_group_share_its_limits_alone(
    house: House, upstream: ScriptedUpstream
) -> None:
    upstream.play(reply("chat"))
    limit_key(house, requests_per_minute=1)
    limit_group(house, requests_per_minute=3)
    _, second = await house.desk.mint_key("second", "default")
    await house.desk.add_group("else", ("*",))
    _, third = await house.desk.mint_key("third", "else")
    asked = [house.key, house.key, second, second, second, third, third, third, third]
    statuses = [(await house.ask(Format.CHAT, key=key)).status for key in asked]
    assert statuses == [200, 429, 200, 200, 429, 200, 200, 200, 200]


async def _whole(house: House, upstream: ScriptedUpstream) -> None:
    upstream.play(reply("chat"))
    assert (await house.ask(Format.CHAT)).status == 200


async def _stream(house: House, upstream: ScriptedUpstream) -> None:
    upstream.play(reply_stream("chat"))
    assert (await house.ask(Format.CHAT, stream=True)).status == 200


async def _error(house: House, upstream: ScriptedUpstream) -> None:
    upstream.play(whole({"error": {"message": "no"}}, 400))
    assert (await house.ask(Format.CHAT)).status == 400


async def _cut(house: House, upstream: ScriptedUpstream) -> None:
    upstream.play(reply_stream("chat", "cut", ending=Ending.TRUNCATED))
    assert (await house.ask(Format.CHAT, stream=True)).status == 200


async def _nobody_answers(house: House, upstream: ScriptedUpstream) -> None:
    upstream.play(whole({"error": {"message": "busy"}}, 500))
    assert (await house.ask(Format.CHAT)).status == 503


async def _failover(house: House, upstream: ScriptedUpstream) -> None:
    upstream.play(whole({"error": {"message": "no"}}, 401), reply("responses"))
    assert (await house.ask(Format.CHAT)).status == 200
    assert len(upstream.seen) == 2


async def _left_before(house: House, upstream: ScriptedUpstream) -> None:
    upstream.play(SILENT)
    asking = ask_and_wait(house)
    await upstream.asked()
    assert in_hand(house) != NOBODY
    await end(asking)


async def _left_within(house: House, upstream: ScriptedUpstream) -> None:
    upstream.play(by_frame(reply_stream("chat", "cut", ending=Ending.SILENT)))
    answer = await ask_and_wait(house, stream=True)
    assert await answer.content.readany()
    assert in_hand(house) != NOBODY
    answer.close()


async def _left_while_failing_over(house: House, upstream: ScriptedUpstream) -> None:
    upstream.play(whole({"error": {"message": "busy"}}, 529), SILENT)
    asking = ask_and_wait(house)
    await upstream.asked(2)
    await end(asking)


async def _hurried(house: House, upstream: ScriptedUpstream) -> None:
    """A shutdown that can wait no longer ends it."""
    upstream.play(by_frame(reply_stream("chat", "cut", ending=Ending.SILENT)))
    answer = await ask_and_wait(house, stream=True)
    assert await answer.content.readany()
    house.daemon.abort()
    await answer.read()


async def _counted(house: House, upstream: ScriptedUpstream) -> None:
    upstream.play(whole({"input_tokens": 7}))
    path = "/v1/messages/count_tokens"
    assert (await house.ask(Format.MESSAGES, path=path)).status == 200


ENDINGS = (
    _whole,
    _stream,
    _error,
    _cut,
    _nobody_answers,
    _failover,
    _left_before,
    _left_within,
    _left_while_failing_over,
    _hurried,
    _counted,
)


@pytest.mark.parametrize("way", ENDINGS, ids=lambda way: way.__name__)
async def test_what_is_taken_returns_however_it_ends(
    house: House,
    upstream: ScriptedUpstream,
    way: Callable[[House, ScriptedUpstream], Awaitable[None]],
) -> None:
    limit_key(house, concurrent=1, budget=10**12, tokens_per_minute=10**6)
    limit_group(house, concurrent=1, budget_day=10**12)
    await way(house, upstream)
    await all_given_back(house)
    (row,) = await house.rows()
    used = row.input_tokens + row.output_tokens
    answer = await house.ask(Format.CHAT, b"{")
    assert answer.headers["x-ratelimit-remaining-tokens"] == str(10**6 - used)


async def test_a_token_count_takes_a_request_and_no_tokens(
    house: House, upstream: ScriptedUpstream
) -> None:
    upstream.play(whole({"input_tokens": 7}))
    limit_key(house, requests_per_minute=2, tokens_per_minute=1)
    path = "/v1/messages/count_tokens"
    answers = [await house.ask(Format.MESSAGES, path=path) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[0].headers["anthropic-ratelimit-tokens-remaining"] == "1"
    assert len(upstream.seen) == 2


async def test_a_prompt_that_only_warms_a_cache_takes_a_request(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with open_house(tmp_path, [channel(Format.CHAT, upstream.address)]) as house:
        limit_key(house, requests_per_minute=1, concurrent=1)
        answers = [await house.ask(Format.MESSAGES, max_tokens=0) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 429]
        assert in_hand(house) == NOBODY


async def test_many_at_once_never_pass_the_limit(house: House, upstream: ScriptedUpstream) -> None:
    upstream.play(reply("chat").but(delay=0.3))
    limit_key(house, concurrent=7)
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(house.ask(Format.CHAT)) for _ in range(40)]
    statuses = [task.result().status for task in asked]
    assert (statuses.count(200), statuses.count(429)) == (7, 33)
    assert len(upstream.seen) == 7
    assert in_hand(house) == NOBODY
