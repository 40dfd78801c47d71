"""The numbers behind /metrics: what is counted where, and that clients cannot make them grow."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator

import pytest
from aiohttp import web

from gateway.app import build_app
from gateway.core.formats import Format
from gateway.store.records import AttemptRow, ExchangeState, RequestRow
from gateway.telemetry.metrics import (
    ENDPOINTS,
    OTHER,
    PATTERNS,
    Histogram,
    Metrics,
    Requests,
    Table,
    run_metrics,
)
from gateway.telemetry.observed_request import ObservedRequest
from tests.support.gateway import ACCOUNT, BETA, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, fixture_stream

ROW = RequestRow(
    id="req_1",
    started_at=0,
    token_id="tok_1",
    group_name="team",
    endpoint="/v1/chat/completions",
    format="chat",
    model="alias",
    channel="main",
    account="a1",
    upstream_model="up",
    lane="native",
    stream=True,
    client_address=None,
    user_agent=None,
    client_request_id=None,
    bytes_in=10,
    state=ExchangeState.OK,
    status=200,
    input_tokens=100,
    cache_read_tokens=60,
    cache_write_tokens=30,
    output_tokens=50,
    reasoning_tokens=20,
    first_event_us=400_000,
    total_us=2_000_000,
    bytes_out=20,
    upstream_format="messages",
    catalog_model=BETA,
    cost_micro=7_000_000,
    usd_micro=250_000,
)
ATTEMPT = AttemptRow(
    "main", "a1", "up", "messages", "native", "first", 0, 300_000, 1_900_000, 200, "ok"
)


def ended(row: RequestRow = ROW, *attempts: AttemptRow) -> ObservedRequest:
    return ObservedRequest(row, attempts or (ATTEMPT,), (), 0.0, 0.0, 1.9)


def test_a_request_is_counted_under_its_labels() -> None:
    metrics = Metrics()
    metrics.count(ended())
    ((labels, requests),) = metrics.requests.items()
    assert labels == (
        *("/v1/chat/completions", "chat", "messages", BETA, "team"),
        *("2xx", "", "ok"),
    )
    assert requests.count == 1
    assert (requests.bytes_in, requests.bytes_out, requests.cost_micro) == (10, 20, 7_000_000)
    latency = metrics.latencies["/v1/chat/completions", BETA, "true"]
    assert latency.duration.total == pytest.approx(2.0)
    assert latency.first_token.total == pytest.approx(0.4)
    assert latency.own_time.total == pytest.approx(0.1)
    assert metrics.attempts["main", "a1", "ok"].count == 1
    assert metrics.first_tokens["main", BETA].total == pytest.approx(0.3)
    assert not metrics.keys
    assert not metrics.waits


async def test_what_has_ended_is_counted_soon_and_once() -> None:
    metrics = Metrics()
    async with run_metrics(lambda: metrics):
        for number in range(1, 4):
            metrics.observe(ended())
            async with asyncio.timeout(5):
                while sum(row.count for row in metrics.requests.values()) < number:
                    await asyncio.sleep(0.02)
    metrics.observe(ended())
    metrics.count_ended()
    metrics.count_ended()
    assert [row.count for row in metrics.requests.values()] == [4]


def test_keys_are_counted_only_where_they_are_wanted() -> None:
    metrics = Metrics()
    metrics.with_keys = True
    metrics.count(ended())
    metrics.count(ended(ROW._replace(token_id="", status=401, state=ExchangeState.REJECTED)))
    assert {labels: row.count for labels, row in metrics.keys.items()} == {("tok_1", "ok"): 1}


def test_waits_and_retries_are_no_time_of_the_gateway() -> None:
    metrics = Metrics()
    exchange = ended()._replace(queue_seconds=0.06, upload_seconds=0.03)
    metrics.count(exchange)
    metrics.count(ended(ROW, ATTEMPT._replace(verdict="overloaded"), ATTEMPT))
    latency = metrics.latencies["/v1/chat/completions", BETA, "true"]
    assert latency.own_time.total == pytest.approx(0.01)
    assert sum(latency.own_time.counts) == 1
    assert sum(latency.duration.counts) == 2
    assert metrics.waits["team",].total == pytest.approx(0.06)
    assert metrics.attempts["main", "a1", "overloaded"].count == 1


@pytest.mark.parametrize(
    ("changes", "label", "value"),
    [
        ({"endpoint": "/v1/models/" + "x" * 5000}, 0, "/v1/models/{id}"),
        ({"endpoint": "/wp-login.php"}, 0, OTHER),
        ({"catalog_model": None, "model": "gpt-" + "9" * 500}, 3, OTHER),
        ({"catalog_model": None, "model": None}, 3, ""),
        ({"error_code": "an_upstreams_own_code"}, 6, OTHER),
        ({"error_code": "invalid_api_key"}, 6, "invalid_api_key"),
        ({"status": None}, 5, OTHER),
        ({"status": 99}, 5, OTHER),
        ({"status": 499}, 5, "4xx"),
    ],
)
def test_labels_that_clients_and_upstreams_could_choose(
    changes: dict[str, object], label: int, value: str
) -> None:
    metrics = Metrics()
    metrics.count(ended(ROW._replace(**changes)))  # type: ignore[arg-type]
    ((labels, _),) = metrics.requests.items()
    assert labels[label] == value


def test_tables_stay_bounded_and_say_what_they_folded() -> None:
    metrics = Metrics(capacity=100)
    metrics.with_keys = True
    chance = random.Random(7)

    def word() -> str:
        return f"{chance.getrandbits(64):x}"

    count = 3000
    for _ in range(count):
        row = ROW._replace(
            endpoint=f"/{word()}",
            group_name=word(),
            catalog_model=word(),
            format=word(),
            token_id=word(),
            error_code=word(),
            user_agent=word(),
        )
        attempt = ATTEMPT._replace(channel=word(), account=word(), verdict=word())
        metrics.count(ended(row, attempt)._replace(queue_seconds=0.1))
    for name in ("requests", "keys", "latencies", "attempts", "waits", "first_tokens"):
        table = getattr(metrics, name)
        assert len(table) <= 2 * table.capacity + 1, name
        assert dict(metrics.folded())[name] == table.folded > 0, name
    assert sum(row.count for row in metrics.requests.values()) == count
    assert sum(row.count for row in metrics.attempts.values()) == count
    assert sum(sum(wait.counts) for wait in metrics.waits.values()) == count


def test_a_full_table_keeps_what_is_bounded() -> None:
    table = Table(Requests, 2, reducible=(0,))
    for model in ("a", "b", "c", "d"):
        table[model, "2xx"].count += 1
    table["e", "5xx"].count += 1
    table["a", "2xx"].count += 1
    assert {labels: row.count for labels, row in table.items()} == {
        ("a", "2xx"): 2,
        ("b", "2xx"): 1,
        (OTHER, "2xx"): 2,
        (OTHER, "5xx"): 1,
    }
    table["f", "4xx"].count += 1  # twice its capacity
    assert table[OTHER, OTHER].count == 1


def test_bounds_belong_to_their_bucket() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.0, 0.1, 0.11, 1.0, 1.1):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == pytest.approx(2.31)


def test_the_endpoints_are_those_of_the_application(gateway: RunningGateway) -> None:
    def paths(app: web.Application) -> Iterator[str]:
        for resource in app.router.resources():
            if isinstance(resource, web.PlainResource | web.DynamicResource):
                yield resource.canonical

    known = ENDPOINTS | {label for _, label in PATTERNS}
    assert known >= {each for each in paths(build_app(gateway.daemon.runtime)) if "{" not in each}
    for path in paths(build_app(gateway.daemon.runtime)):
        if "{" in path and "anything" not in path:
            assert any(path.startswith(start) for start, _ in PATTERNS), path


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_real_request(
    gateway: RunningGateway, upstream: ScriptedUpstream, streamed: bool
) -> None:
    upstream.respond_with(fixture_stream("chat") if streamed else fixture_reply("chat"))
    await gateway.post(Format.CHAT, stream=streamed)
    await gateway.rows()
    metrics = gateway.daemon.runtime.metrics
    assert metrics is not None
    metrics.count_ended()
    ((labels, requests),) = metrics.requests.items()
    assert labels[:5] == ("/v1/chat/completions", "chat", "chat", BETA, "default")
    assert (requests.input_tokens, requests.output_tokens) == (12, 4)
    assert metrics.attempts["chat-main", ACCOUNT, "ok"].count == 1
    latency = metrics.latencies["/v1/chat/completions", BETA, str(streamed).lower()]
    assert sum(latency.first_token.counts) == streamed


async def test_the_time_between_events(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    stream = fixture_stream("chat")
    frames = [frame + b"\n\n" for frame in stream.body.split(b"\n\n") if frame]
    upstream.respond_with(stream.with_changes(chunks=tuple(frames), pause=0.06))
    await gateway.post(Format.CHAT, stream=True)
    metrics = gateway.daemon.runtime.metrics
    assert metrics is not None
    intervals = metrics.intervals[BETA,]
    assert sum(intervals.counts) >= 2
    assert intervals.total / sum(intervals.counts) == pytest.approx(0.06, abs=0.05)


async def test_a_stall_of_the_event_loop_is_measured() -> None:
    metrics = Metrics()
    async with run_metrics(lambda: metrics):
        await asyncio.sleep(0.15)
        time.sleep(0.4)  # the stall
        await asyncio.sleep(0.05)
    assert metrics.loop_lag.total >= 0.25
    assert sum(metrics.loop_lag.counts[-4:]) >= 1
