"""A gateway with a month of usage: keys, groups, channels of every kind, and failures.

Old requests are written into the request log, the newest are real.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from aiohttp import ClientSession

from gateway.config.load import parse_config
from gateway.config.schema import Config
from gateway.core.formats import Format
from gateway.core.limits import MICRO_PER_UNIT
from gateway.daemon import Daemon, run_daemon
from gateway.runtime import unix_microseconds
from gateway.store.records import ExchangeState, LogEntry, RequestRow, Token, TokenState
from tests.store.sample_rows import attempt, failed_attempt, intent, settled
from tests.support.gateway import ACCOUNT, RunningGateway, request_body
from tests.support.simulator import run_simulator
from tests.support.upstream import (
    Response,
    by_frame,
    fixture_stream,
    json_response,
    scripted_upstream,
)

HOUR: Final = 3600 * 1_000_000
DAY: Final = 24 * HOUR

OVERLOADED: Final[Response] = json_response(
    {"error": {"type": "overloaded_error", "message": "All 64 slots of pool eu-3 are taken."}},
    503,
).with_changes(delay=0.14)
"""The response of the first channel."""
_REPLY: Final[Response] = by_frame(fixture_stream("messages")).with_changes(pause=0.02)

_UNIT_PRICE = 0.0001
_MODELS = {
    "alpha-sonnet-4-6": ("messages", "messages-main", "m1"),
    "alpha-opus-4-8": ("messages", "messages-main", "m2"),
    "beta-5.4": ("chat", "chat-spare", "c1"),
    "beta-5.4-mini": ("chat", "chat-spare", "c2"),
}
_FAILURES = (
    (503, "server_is_overloaded", 529, '{"type":"overloaded_error","message":"Overloaded"}'),
    (429, "rate_limit_exceeded", 429, "Requests to this deployment exceed its rate of 300."),
    (504, "upstream_timeout", None, "no event within 120 s"),
    (400, "context_length_exceeded", 400, "prompt is too long: 204211 tokens > 200000 maximum"),
)
_QUESTION = "Read this change and tell me what could go wrong with it. " + "One line of it. " * 900
_AGENTS = ("curl/8.5.0", "agent/2.1.4 (linux)", "library/3.52.0 python/3.12")


@dataclass(frozen=True, slots=True)
class SeededGateway:
    """Ids of requests: `succeeded` at the first attempt, `failed_over` on a second channel."""

    gateway: RunningGateway
    succeeded: str
    failed_over: str
    failed: str

    @property
    def token(self) -> Token:
        return self.gateway.token


@asynccontextmanager
async def seeded_gateway(state_dir: Path, days: int = 30) -> AsyncIterator[SeededGateway]:
    """Runs for the length of the block. The last `days` have requests."""
    async with AsyncExitStack() as stack:
        overloaded = await stack.enter_async_context(scripted_upstream(OVERLOADED))
        messages = await stack.enter_async_context(scripted_upstream(_REPLY))
        simulated = await stack.enter_async_context(run_simulator(pace=0.02))
        config = _config(state_dir, overloaded.address, simulated, messages.address)
        # Budgets are loaded from the request log at the start, so old requests come before it.
        async with run_daemon(config) as daemon:
            key = await _seed(daemon, days)
        daemon = await stack.enter_async_context(run_daemon(config))
        http = await stack.enter_async_context(ClientSession(daemon.address))
        (token,) = [
            token for token in await daemon.operations.list_keys() if token.name == "alice, laptop"
        ]
        gateway = RunningGateway(daemon, token, key, http)
        async with asyncio.timeout(30):
            seeded = SeededGateway(gateway, *await _send_requests(gateway))
        yield seeded


def _config(state_dir: Path, overloaded: str, simulated: str, messages: str) -> Config:
    beta, alpha = ["beta-5.4", "beta-5.4-mini"], ["alpha-sonnet-4-6", "alpha-opus-4-8"]
    channels = [
        _channel("chat-main", "chat", f"{overloaded}/v1", beta, "a1", priority=1),
        _channel("chat-spare", "chat", f"{simulated}/v1", beta, "c1", "c2"),
        _channel("messages-main", "messages", messages, alpha, "m1", "m2"),
        _channel("responses-lab", "responses", f"{overloaded}/v1", ["beta-5.5"], ACCOUNT),
    ]
    text = {
        "state_dir": str(state_dir),
        "channels": channels,
        "server": {"port": 0, "drain_timeout": 1},
        "money": {"unit_price": _UNIT_PRICE},
    }
    return parse_config(orjson.dumps(text).decode())


def _channel(
    name: str, format: str, address: str, models: list[str], *accounts: str, **more: Any
) -> dict[str, Any]:
    credentials = [{"name": account, "key": f"secret-of-{account}"} for account in accounts]
    return {"name": name, "format": format, "base_url": address, "models": models} | {
        "accounts": credentials,
        **more,
    }


async def _seed(daemon: Daemon, days: int) -> str:
    """Creates groups, keys and their requests until an hour ago; returns a key."""
    operations = daemon.operations
    monthly = {"budget_month": 2_000_000 * MICRO_PER_UNIT}
    await operations.create_group(
        "engineering", ("alpha-*", "beta-*"), multiplier="0.8", limits={"requests_per_minute": 600}
    )
    await operations.create_group("batch", ("beta-5.4-mini",), multiplier="0.5", limits=monthly)
    daily = {"budget_day": 150_000 * MICRO_PER_UNIT, "budget_month": 2_500_000 * MICRO_PER_UNIT}
    alice, key = await operations.create_key("alice, laptop", "engineering", limits=daily)
    tokens = [alice]
    for name, group, settings in (
        (
            "bob, workstation",
            "engineering",
            {"limits": {"budget_month": 1_500_000 * MICRO_PER_UNIT}},
        ),
        ("nightly evaluation", "batch", {"note": "owned by carol"}),
        ("support desk", "default", {"expires_at": unix_microseconds() + 90 * DAY}),
    ):
        token, _ = await operations.create_key(name, group, **settings)
        tokens.append(token)
    former, _ = await operations.create_key("intern 2026", "engineering")
    await operations.update_key(former.id, state=TokenState.DISABLED)
    for row, attempts, _ in _exchanges(tokens, days):
        daemon.runtime.recorder.record_settlement(row, attempts)
    return key


def _exchanges(tokens: list[Token], days: int) -> Iterator[LogEntry]:
    """More by day than by night; deterministic."""
    dice = random.Random(6)
    now = unix_microseconds()
    for hour in range(days * 24, 0, -1):
        at = now - hour * HOUR
        busy = 3 + 9 * (8 <= (at // HOUR) % 24 <= 18)
        for _ in range(dice.randrange(busy)):
            yield _exchange(dice, at + dice.randrange(HOUR * 9 // 10), tokens)


def _exchange(dice: random.Random, at: int, tokens: list[Token]) -> LogEntry:
    token = dice.choices(tokens, (5, 3, 2, 1))[0]
    model = (
        dice.choices(list(_MODELS), (6, 2, 3, 3))[0]
        if token.group != "batch"
        else ("beta-5.4-mini")
    )
    format, channel, account = _MODELS[model]
    id_ = f"req_{at:014x}{dice.getrandbits(40):010x}"
    where = {"channel": channel, "account": account, "upstream_model": model}
    prompt_tokens = dice.randrange(900, 24_000)
    waited = dice.randrange(280_000, 1_900_000)
    took = waited + dice.randrange(700_000, 9_000_000)
    opened = intent(0, token.id, id=id_, started_at=at, model=model, catalog_model=model, **where)
    opened = opened._replace(
        group_name=token.group,
        format=format,
        endpoint="/v1/messages" if format == "messages" else "/v1/chat/completions",
        user_agent=dice.choice(_AGENTS),
    )
    if dice.random() < 0.05:
        return _failure(dice, opened)
    reply_tokens = dice.randrange(60, 1800)
    units = (prompt_tokens // 8 + reply_tokens * 3) / 2
    ended = settled(
        opened,
        input_tokens=prompt_tokens,
        cache_read_tokens=int(prompt_tokens * dice.triangular(0.3, 0.95, 0.8)),
        cache_write_tokens=0,
        output_tokens=reply_tokens,
        reasoning_tokens=reply_tokens // 4,
        first_event_us=waited,
        total_us=took,
        cost_micro=int(units * MICRO_PER_UNIT),
        usd_micro=int(units * _UNIT_PRICE * 1_000_000),
        upstream_format=format,
        attempts=1,
    )
    attempt_row = attempt(format=format, first_event_us=waited, total_us=took, **where)
    return LogEntry(ended, (attempt_row,))


def _failure(dice: random.Random, opened: RequestRow) -> LogEntry:
    status, code, upstream_status, message = dice.choice(_FAILURES)
    attempt_row = failed_attempt(
        channel=opened.channel,
        account=opened.account,
        upstream_model=opened.upstream_model,
        format=opened.format,
        status=upstream_status,
        error=message,
        next="told the client",
    )
    failed = settled(
        opened,
        state=ExchangeState.ERROR,
        status=status,
        stop_reason=None,
        end_reason="upstream_said",
        input_tokens=0,
        cache_read_tokens=0,
        cache_write_tokens=0,
        output_tokens=0,
        reasoning_tokens=0,
        usage_source="none",
        first_event_us=None,
        total_us=dice.randrange(90_000, 2_000_000),
        error_code=code,
        upstream_status=upstream_status,
        upstream_error=message,
        attempts=1,
    )
    return LogEntry(failed, (attempt_row,))


async def _send_requests(gateway: RunningGateway) -> tuple[str, str, str]:
    """Three real requests: one that succeeds, one that fails over, one that fails."""
    turns = [{"role": "user", "content": _QUESTION}]
    ids = []
    for format, model, input_fields in (
        (Format.CHAT, "beta-5.4", {"messages": turns}),
        (Format.MESSAGES, "alpha-sonnet-4-6", {"messages": turns}),
        (Format.RESPONSES, "beta-5.5", {"input": _QUESTION}),
    ):
        body = request_body(format, model=model, stream=True, **input_fields)
        answer = await gateway.post(format, body, headers={"user-agent": _AGENTS[1]})
        ids.append(answer.headers["x-request-id"])
    # A client with a wrong base URL.
    await gateway.http.post("/v1/v1/messages", headers={"user-agent": _AGENTS[1]})
    await gateway.rows(len(ids))
    failed_over, succeeded, failed = ids
    return succeeded, failed_over, failed
