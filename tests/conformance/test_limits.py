"""The stock libraries at a limit: they wait as they are told and succeed, they do not ask again
what is refused for good, and programs find in errors and headers what they need to know.

The waits are real, but short: the minute is nearly over when a test begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from inspect import isawaitable
from typing import Any, Final

import anthropic
import openai
import pytest
import pytest_asyncio

from gateway.core.formats import Format
from gateway.core.limits import FREE, MICRO_PER_UNIT
from gateway.quota.limits import ResourceRequest
from gateway.store.log.pages import LogFilter
from gateway.store.records import ExchangeState, Token
from tests.conformance.pairs import Clients
from tests.support.gateway import RunningGateway, request_body
from tests.support.timing import SLACK

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEXT: Final = "Hello"
SPAN: Final = 60.0


@dataclass(frozen=True, slots=True)
class Library:
    """A client of either kind in either library; the synchronous ones run in a thread."""

    gateway: RunningGateway
    clients: Clients
    openai: openai.OpenAI
    anthropic: anthropic.Anthropic

    async def ask(
        self, format: Format, key: str, *, sync: bool, stream: bool, retries: int = 0
    ) -> str:
        """All that came, as text."""
        client = self._client(format, sync).with_options(api_key=key, max_retries=retries)
        fields = request_body(format) | {"stream": stream}
        if sync:
            return await asyncio.to_thread(_ask, _endpoint(client, format), fields)
        answer = await _endpoint(client, format).create(**fields)
        return str([each async for each in answer] if stream else answer)

    async def headers(self, format: Format, key: str, *, sync: bool, stream: bool) -> Any:
        """Of a good answer, as programs get them."""
        client = self._client(format, sync).with_options(api_key=key)
        fields = request_body(format) | {"stream": stream}
        create = _endpoint(client, format).with_raw_response.create
        if sync:
            return await asyncio.to_thread(_headers, create, fields)
        raw = await create(**fields)
        if stream:
            chunks = raw.parse()
            async for _ in await chunks if isawaitable(chunks) else chunks:
                pass
        return raw.headers

    def _client(self, format: Format, sync: bool) -> Any:
        if format is Format.MESSAGES:
            return self.anthropic if sync else self.clients.anthropic
        return self.openai if sync else self.clients.openai


def _endpoint(client: Any, format: Format) -> Any:
    match format:
        case Format.CHAT:
            return client.chat.completions
        case Format.MESSAGES:
            return client.messages
        case Format.RESPONSES:
            return client.responses


def _ask(endpoint: Any, fields: dict[str, Any]) -> str:
    answer = endpoint.create(**fields)
    return str([*answer] if fields["stream"] else answer)


def _headers(create: Any, fields: dict[str, Any]) -> Any:
    raw = create(**fields)
    if fields["stream"]:
        for _ in raw.parse():
            pass
    return raw.headers


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def library(simulated: Clients) -> AsyncIterator[Library]:
    gateway = simulated.gateway
    with ExitStack() as stack:
        chat = openai.OpenAI(base_url=f"{gateway.address}/v1", api_key=gateway.key, timeout=10)
        messages = anthropic.Anthropic(base_url=gateway.address, api_key=gateway.key, timeout=10)
        yield Library(gateway, simulated, stack.enter_context(chat), stack.enter_context(messages))


async def key_with(gateway: RunningGateway, **limits: int) -> tuple[Token, str]:
    return await gateway.operations.create_key("limited", "default", limits=limits)


def attempts_before(gateway: RunningGateway, token: Token, seconds: float) -> None:
    """The key has made a request so long ago."""
    runtime = gateway.daemon.runtime
    now = asyncio.get_running_loop().time()
    holders = runtime.permit(token).holders
    at = runtime.now() - round(seconds * 1e6)
    runtime.quota.acquire(ResourceRequest(holders, at, 0, FREE), now - seconds).settle(0, FREE)


async def statuses(gateway: RunningGateway, token: Token, count: int) -> list[int | None]:
    """Of all requests with the key, in their order, once so many are settled."""
    async with asyncio.timeout(5):
        while True:
            rows = (await gateway.operations.list_requests(LogFilter(token_id=token.id))).rows
            if sum(row.state is not ExchangeState.RUNNING for row in rows) >= count:
                return [row.status for row in rows][::-1]
            await asyncio.sleep(0.005)


async def assert_one_attempt(gateway: RunningGateway, token: Token, error: Any) -> None:
    assert error.response.headers["x-should-retry"] == "false"
    assert error.response.request.headers["x-stainless-retry-count"] == "0"
    assert await statuses(gateway, token, 1) == [error.status_code]


def refused(format: Format) -> Any:
    """The class of error that stands for a limit."""
    return anthropic.RateLimitError if format is Format.MESSAGES else openai.RateLimitError


each_format = pytest.mark.parametrize("format", Format)
each_kind = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
each_way = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@each_kind
@each_format
async def test_a_retry_after_the_wait_succeeds(
    library: Library, format: Format, sync: bool
) -> None:
    gateway, loop = library.gateway, asyncio.get_running_loop()

    async def wait(stream: bool) -> None:
        token, key = await key_with(gateway, requests_per_minute=1)
        attempts_before(gateway, token, SPAN - 0.9)
        began = loop.time()
        reply = await library.ask(format, key, sync=sync, stream=stream, retries=2)
        assert 0.9 <= loop.time() - began < SLACK
        assert TEXT in reply
        assert await statuses(gateway, token, 2) == [429, 200]

    await asyncio.gather(wait(True), wait(False))


@each_way
@each_kind
@each_format
async def test_the_error_names_the_limit(
    library: Library, format: Format, sync: bool, stream: bool
) -> None:
    token, key = await key_with(library.gateway, requests_per_minute=1)
    attempts_before(library.gateway, token, SPAN - 30)
    with pytest.raises(refused(format)) as raised:
        await library.ask(format, key, sync=sync, stream=stream)
    error = raised.value
    text = "Too Many Requests: key limited: 1 of 1 request per minute used"
    assert text in error.message
    assert error.status_code == 429
    assert error.request_id == error.response.headers["request-id"]
    assert 28 <= int(error.response.headers["retry-after"]) <= 30
    assert "x-should-retry" not in error.response.headers
    if format is Format.MESSAGES:
        assert error.body["error"]["type"] == "rate_limit_error"
        assert error.response.headers["anthropic-ratelimit-requests-remaining"] == "0"
    else:
        assert (error.type, error.code) == ("requests", "rate_limit_exceeded")
        assert error.response.headers["x-ratelimit-remaining-requests"] == "0"
    assert await statuses(library.gateway, token, 1) == [429]


@each_way
@each_kind
@each_format
async def test_a_spent_budget_is_not_retried(
    library: Library, format: Format, sync: bool, stream: bool
) -> None:
    token, key = await key_with(library.gateway, budget_day=MICRO_PER_UNIT)
    of_messages = format is Format.MESSAGES
    kind = anthropic.PaymentRequiredError if of_messages else openai.RateLimitError
    with pytest.raises(kind) as raised:
        await library.ask(format, key, sync=sync, stream=stream, retries=2)
    error: Any = raised.value
    assert "key limited: daily budget of 1 unit" in error.message
    assert "resets at" in error.message
    if of_messages:
        assert error.body["error"]["type"] == "billing_error"
        assert error.status_code == 402
    else:
        assert error.code == error.type == "insufficient_quota"
    await assert_one_attempt(library.gateway, token, error)


@each_way
@each_kind
@each_format
async def test_requests_that_never_fit_are_not_retried(
    library: Library, format: Format, sync: bool, stream: bool
) -> None:
    token, key = await key_with(library.gateway, tokens_per_minute=1)
    with pytest.raises(refused(format)) as raised:
        await library.ask(format, key, sync=sync, stream=stream, retries=2)
    assert "over the limit" in raised.value.message
    await assert_one_attempt(library.gateway, token, raised.value)


@each_way
@each_kind
@each_format
async def test_replies_report_the_remaining_limits(
    library: Library, format: Format, sync: bool, stream: bool
) -> None:
    _, key = await key_with(library.gateway, requests_per_minute=5, tokens_per_minute=100_000)
    seen = [await library.headers(format, key, sync=sync, stream=stream) for _ in range(3)]
    order = "{0}-{1}" if format is Format.MESSAGES else "{1}-{0}"
    prefix = "anthropic" if format is Format.MESSAGES else "x"

    def told(kind: str, what: str) -> list[str]:
        name = f"{prefix}-ratelimit-{order.format(kind, what)}"
        return [headers[name] for headers in seen]

    assert told("requests", "limit") == ["5"] * 3
    assert told("requests", "remaining") == ["4", "3", "2"]
    assert told("tokens", "limit") == ["100000"] * 3
    assert all(90_000 < int(tokens) < 100_000 for tokens in told("tokens", "remaining"))
    for reset in (*told("requests", "reset"), *told("tokens", "reset")):
        assert 55 <= seconds(format, reset) <= 61


def seconds(format: Format, reset: str) -> float:
    """Until then, as a program reads it."""
    if format is Format.MESSAGES:
        return (datetime.fromisoformat(reset) - datetime.now(UTC)).total_seconds()
    minutes, found, rest = reset.rpartition("m")
    return int(minutes or 0) * 60 + int(rest.removesuffix("s")) if found else int(reset[:-1])
