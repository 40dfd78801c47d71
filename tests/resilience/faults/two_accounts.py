"""A gateway before an upstream that fails: one model has two accounts, another only one.

Of the two the one that fails is asked first, and the one that stands by is sound. Independent of
which fault it is, nor what is to come of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from aiohttp import ClientResponse

from gateway.admin.operations import UnknownRequest
from gateway.config.load import parse_config
from gateway.core.formats import Format
from gateway.routing.health import Health, HealthReport
from gateway.routing.latency import LatencyTracker
from gateway.routing.retry_budget import RetryBudget
from gateway.runtime import Snapshot
from gateway.store.records import AttemptRow, ExchangeState, RequestRow
from tests.resilience.faults.unreachable import (
    closed_port,
    full_backlog,
    self_signed,
    talking_port,
    unknown_hosts,
)
from tests.resilience.faults.upstream import FaultUpstream, fault_upstream
from tests.support.gateway import ALPHA, BETA, UPSTREAM_MODEL, RunningGateway
from tests.support.timing import SLACK
from tests.support.upstream import ReceivedRequest

FAULTY, SOUND, ALONE = "faulty", "sound", "alone"
"""Names of accounts."""
POOLED, SINGLE = ALPHA, BETA
"""The model that two accounts have, and that of the lone one."""
SOUND_CASE = "text_unicode"
"""What the account that stands by says; nobody else says it."""
LIMIT = 4 * 2**20
"""Bytes of a body that a reply may have."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one request: for the client, in the ledger, and for the account that failed."""

    answer: ClientResponse
    row: RequestRow
    attempts: list[AttemptRow]
    report: HealthReport
    calls: list[ReceivedRequest]
    """At the account that failed."""

    @property
    def verdicts(self) -> tuple[str, ...]:
        return tuple(attempt.verdict for attempt in self.attempts)


@dataclass(frozen=True, slots=True)
class Pool:
    """`before` and `after` are the loop's times at which the requests began and had ended."""

    with_another: Outcome
    alone: Outcome
    before: float
    after: float
    sound_calls: list[ReceivedRequest]


@asynccontextmanager
async def line(name: str, upstream: FaultUpstream) -> AsyncIterator[str]:
    """The address of an upstream on such a line; without a name that of this one."""
    match name:
        case "":
            yield upstream.address
        case "closed":
            with closed_port() as port:
                yield f"http://127.0.0.1:{port}"
        case "unknown":
            with unknown_hosts() as host:
                yield f"http://{host}"
        case "full":
            async with full_backlog() as port:
                yield f"http://127.0.0.1:{port}"
        case "self-signed":
            with TemporaryDirectory() as folder:
                context, _ = self_signed(Path(folder))
                async with fault_upstream(context) as other:
                    yield other.address
        case "no TLS":
            async with talking_port(b"HTTP/1.1 400 No\r\n\r\n") as port:
                yield f"https://127.0.0.1:{port}"
        case "silent TLS":
            async with talking_port() as port:
                yield f"https://127.0.0.1:{port}"
        case _:
            raise ValueError(f"no such line: {name}")


async def settled(gateway: RunningGateway, request_id: str) -> RequestRow:
    """The row of an exchange, once it has ended."""
    async with asyncio.timeout(SLACK):
        while True:
            with suppress(UnknownRequest):  # the answer may be faster than the ledger
                row = await gateway.operations.get_request(request_id)
                if row.state is not ExchangeState.RUNNING:
                    return row
            await asyncio.sleep(0.002)


def pool_channels(
    format: Format, faulty: str, sound: str, timeouts: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Two accounts of one channel, or of two where these are to be had at different addresses; and
    one for itself."""
    if faulty == sound:
        pooled = [_channel("pool", format, faulty, POOLED, FAULTY, SOUND)]
    else:
        pooled = [
            _channel("first", format, faulty, POOLED, FAULTY) | {"priority": 1},
            _channel("second", format, sound, POOLED, SOUND),
        ]
    single = _channel("single", format, faulty, SINGLE, ALONE)
    return [channel | {"timeouts": dict(timeouts)} for channel in (*pooled, single)]


def _channel(name: str, format: Format, address: str, model: str, *accounts: str) -> dict[str, Any]:
    """The accounts in the order in which they are asked."""
    named = [
        {"name": account, "key": key(account), "priority": -rank}
        for rank, account in enumerate(accounts)
    ]
    return {
        "name": name,
        "format": format.value,
        "base_url": address,
        "models": {model: UPSTREAM_MODEL},
        "accounts": named,
    }


def key(account: str) -> str:
    return f"key-of-the-{account}-account"


@asynccontextmanager
async def arranged(
    gateway: RunningGateway,
    upstream: FaultUpstream,
    format: Format,
    *,
    plan: str = "ok",
    on: str = "",
    timeouts: Mapping[str, float] | None = None,
) -> AsyncIterator[None]:
    """As if the gateway had just been started before such an upstream: no connections, no state of
    any account. Chance is left out of it: nobody waits longer than told."""
    upstream.requests.clear()
    upstream.clear_plans()
    upstream.set_plan(plan)
    upstream.set_plan(f"ok:{SOUND_CASE}", key=key(SOUND))
    async with line(on, upstream) as address:
        end = "" if format is Format.MESSAGES else "/v1"
        accounts = pool_channels(format, address + end, upstream.address + end, timeouts or {})
        await _renew(gateway, accounts)
        yield
        await _renew(gateway, accounts)
    assert not upstream.errors


async def _renew(gateway: RunningGateway, accounts: list[dict[str, Any]]) -> None:
    written = {"channels": accounts, "server": {"max_response": LIMIT}}
    runtime = gateway.daemon.runtime
    before, runtime.current = (
        runtime.current,
        Snapshot(parse_config(orjson.dumps(written).decode())),
    )
    await before.upstream.close()
    runtime.health, runtime.retry_budget, runtime.latency = (
        Health(),
        RetryBudget(),
        LatencyTracker(),
    )
    runtime.stream_only.clear()
    runtime.random_float = lambda: 0.0


async def ask_both(
    gateway: RunningGateway,
    upstream: FaultUpstream,
    format: Format,
    *,
    stream: bool,
    warm: bool = False,
) -> Pool:
    """Asks for the model of two accounts and for that of one, at the same time; `warm`: each for
    the second time, and only this one counts."""
    loop = asyncio.get_running_loop()
    models = (POOLED, SINGLE)
    if warm:
        await asyncio.gather(
            *(gateway.post(format, model=model, stream=stream) for model in models)
        )
    before = loop.time()
    answers = await asyncio.gather(
        *(gateway.post(format, model=model, stream=stream) for model in models)
    )
    after = loop.time()
    rows = [await settled(gateway, answer.headers["request-id"]) for answer in answers]
    reports = {
        report.account_ref[1]: report for report in gateway.daemon.runtime.health.snapshot(0.0)
    }
    outcomes = [
        Outcome(
            answer,
            row,
            await gateway.operations.list_attempts(row.id),
            reports[account],
            upstream.requests_of(key=key(account)),
        )
        for answer, row, account in zip(answers, rows, (FAULTY, ALONE), strict=True)
    ]
    return Pool(outcomes[0], outcomes[1], before, after, upstream.requests_of(key=key(SOUND)))
