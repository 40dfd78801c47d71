"""The loop of attempts: hidden failures, what is never repeated, pings."""

from __future__ import annotations

import asyncio
import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from aiohttp import ClientSession

from gateway.core.events import End, Fail
from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.reply import collect_reply
from gateway.store.records import ExchangeState
from gateway.wire.registry import CODECS
from tests.resilience.faults.upstream import FaultUpstream, fault_upstream
from tests.support.gateway import (
    ALPHA,
    PATHS,
    UPSTREAM_MODEL,
    RunningGateway,
    channel,
    request_body,
    run_gateway,
)
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
)
from tests.wire.stream_cases import decode

PINGS = {
    Format.CHAT: b": keepalive\n\n",
    Format.MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
    Format.RESPONSES: b": keepalive\n\n",
}
"""Before the reply has begun."""

each_format = pytest.mark.parametrize("format", list(Format))


def accounts(
    upstream: FaultUpstream, format: Format, *plans: str, **changes: Any
) -> list[dict[str, Any]]:
    """One channel for each plan, in this order."""
    return [
        {
            "name": f"c{number}",
            "format": format.value,
            "base_url": upstream.base_url(format, plan),
            "models": {ALPHA: UPSTREAM_MODEL, "beta-5.4": UPSTREAM_MODEL},
            "accounts": [{"name": "a", "key": f"key-{number}"}],
            "priority": -number,
            **changes,
        }
        for number, plan in enumerate(plans)
    ]


def gateway_before(
    folder: Path, channels: list[dict[str, Any]], **config: Any
) -> AbstractAsyncContextManager[RunningGateway]:
    return run_gateway(folder, channels, **config)


async def post_request(gateway: RunningGateway, format: Format, **fields: Any) -> tuple[int, bytes]:
    answer = await gateway.post(format, model="beta-5.4", **fields)
    return answer.status, await answer.read()


@each_format
async def test_pings_are_sent_before_the_commit(tmp_path: Path, format: Format) -> None:
    """The next account can still be tried: its complete reply follows."""
    async with (
        fault_upstream() as upstream,
        gateway_before(
            tmp_path,
            accounts(upstream, format, "stall:start", "ok", timeouts={"first_event": 0.6}),
            server={"commit_after": 0.2},
        ) as gateway,
    ):
        status, body = await post_request(gateway, format, stream=True)
        row = await gateway.row()
    assert status == 200
    assert body.startswith(PINGS[format])
    events = decode(CODECS[format].decoder(), body)
    assert sum(isinstance(event, End) for event in events) == 1
    assert [part.text for part in collect_reply(events).parts if isinstance(part, Text)] == [
        "Hello, world!"
    ]
    assert (row.state, row.status, row.attempts, row.channel) == (ExchangeState.OK, 200, 2, "c1")


@each_format
async def test_an_error_after_the_first_ping_is_a_frame(tmp_path: Path, format: Format) -> None:
    async with (
        fault_upstream() as upstream,
        gateway_before(
            tmp_path,
            accounts(upstream, format, "stall:head", timeouts={"first_event": 0.5}),
            server={"commit_after": 0.1},
        ) as gateway,
    ):
        status, body = await post_request(gateway, format, stream=True)
        row = await gateway.row()
    assert status == 200
    (fail,) = [event for event in decode(CODECS[format].decoder(), body) if isinstance(event, Fail)]
    assert fail.failure.message == "Service unavailable"
    assert (row.state, row.error_code) == (ExchangeState.ERROR, "upstream_timeout")


@each_format
async def test_pings_fill_silence_within_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    monkeypatch.setattr("gateway.server.http.client_stream.PING_INTERVAL", 0.1)
    async with (
        fault_upstream() as upstream,
        gateway_before(
            tmp_path, accounts(upstream, format, "stall:text", timeouts={"idle": 0.6})
        ) as gateway,
    ):
        _, body = await post_request(gateway, format, stream=True)
    events = decode(CODECS[format].decoder(), body)
    assert isinstance(events[-1], Fail)
    named = {Format.CHAT: b'"delta":{},', Format.RESPONSES: b"response.in_progress"}
    assert body.count(named.get(format, PINGS[format])) >= 3


@each_format
@pytest.mark.parametrize("streamed", [False, True])
async def test_upstreams_that_only_stream_are_detected(
    tmp_path: Path, format: Format, streamed: bool
) -> None:
    async with (
        fault_upstream() as upstream,
        gateway_before(tmp_path, accounts(upstream, format, "stream_only")) as gateway,
    ):
        for _ in range(2):
            status, _ = await post_request(gateway, format, stream=streamed)
            assert status == 200
        assert len(upstream.requests) == (2 if streamed else 3), "found out once"


@each_format
async def test_a_channel_can_force_streams(tmp_path: Path, format: Format) -> None:
    async with (
        fault_upstream() as upstream,
        gateway_before(tmp_path, accounts(upstream, format, "ok", stream="force")) as gateway,
    ):
        answer = await gateway.post(format, model="beta-5.4")
        reply = CODECS[format].parse_reply(await answer.json())
        assert upstream.requests[0].streamed
    assert [part.text for part in reply.parts if isinstance(part, Text)] == ["Hello, world!"]
    assert reply.usage is not None


@each_format
async def test_a_background_drain_reads_the_upstream_to_its_end(
    tmp_path: Path, format: Format
) -> None:
    """With `on_disconnect: drain` the cost of the reply is recorded all the same."""
    async with (
        fault_upstream() as upstream,
        gateway_before(
            tmp_path, accounts(upstream, format, "ok:pause=0.02", on_disconnect="drain")
        ) as gateway,
        ClientSession() as http,
    ):
        answer = await http.post(
            gateway.address + PATHS[format],
            json=request_body(format, stream=True, model="beta-5.4"),
            headers={"authorization": f"Bearer {gateway.key}", "anthropic-version": "2023-06-01"},
        )
        await answer.content.readany()
        answer.close()
        row = await gateway.row()
    assert row.state is ExchangeState.CLIENT_GONE
    assert row.output_tokens > 0


@pytest.mark.parametrize(
    ("patience", "source"), [(5, "upstream"), (0.1, "estimated")], ids=["waits", "hurries"]
)
async def test_a_shutdown_waits_for_background_drains(
    tmp_path: Path, patience: float, source: str
) -> None:
    """A background drain is settled before the database closes,
    and after the drain time by what was heard of it."""
    async with fault_upstream() as upstream, ClientSession() as http:
        before = accounts(upstream, Format.CHAT, "ok:pause=0.05", on_disconnect="drain")
        async with gateway_before(tmp_path, before, server={"drain_timeout": patience}) as gateway:
            answer = await http.post(
                gateway.address + PATHS[Format.CHAT],
                json=request_body(Format.CHAT, stream=True, model="beta-5.4"),
                headers={"authorization": f"Bearer {gateway.key}"},
            )
            await answer.content.readany()
            answer.close()
            async with asyncio.timeout(1):
                while not gateway.daemon.runtime.background_drains:
                    await asyncio.sleep(0.005)
        async with gateway_before(tmp_path, before) as gateway:
            row = await gateway.row()
    assert (row.state, row.usage_source) == (ExchangeState.CLIENT_GONE, source)
    assert row.output_tokens > 0


async def test_the_retry_budget_limits_requests_to_failing_upstreams(tmp_path: Path) -> None:
    """Every upstream fails: the retries stay a fifth of the requests."""
    requests = 400
    async with (
        fault_upstream() as upstream,
        gateway_before(tmp_path, accounts(upstream, Format.CHAT, *["refuse:500"] * 3)) as gateway,
    ):
        began = perf_counter()
        gate = asyncio.Semaphore(40)

        async def one() -> int:
            async with gate:
                status, _ = await post_request(gateway, Format.CHAT)
                return status

        statuses = await asyncio.gather(*(one() for _ in range(requests)))
        assert set(statuses) == {503}
        assert perf_counter() - began < 30
        assert len(upstream.requests) <= 1.25 * requests + 3


MODELS = [f"beta-{number}" for number in range(8)]


def two_accounts(format: Format, upstream: ScriptedUpstream) -> list[dict[str, Any]]:
    """One account after the other, with eight models."""
    line = channel(format, upstream.address) | {
        "models": {model: UPSTREAM_MODEL for model in MODELS},
        "accounts": [
            {"name": "first", "key": "key-0", "priority": 1},
            {"name": "second", "key": "key-1"},
        ],
    }
    return [line]


@pytest.mark.parametrize("status", [429, 401, 402])
@pytest.mark.parametrize("concurrent", [1, 40])
async def test_an_account_that_refuses_all_models_fails_no_request(
    upstream: ScriptedUpstream, tmp_path: Path, status: int, concurrent: int
) -> None:
    """Also those that were sent to it before it was known."""

    async def answer(request: ReceivedRequest) -> Response:
        if request.headers["authorization"] == "Bearer key-0":
            return json_response({"error": {"message": "no"}}, status, **{"retry-after": "60"})
        return fixture_reply(Format.CHAT)

    upstream.respond_with(answer)
    catalog = [{"id": model, "family": "beta"} for model in MODELS]
    channels = two_accounts(Format.CHAT, upstream)
    async with run_gateway(tmp_path, channels, models=catalog) as gateway:
        gate = asyncio.Semaphore(concurrent)

        async def one(number: int) -> int:
            async with gate:
                response = await gateway.post(Format.CHAT, model=MODELS[number % len(MODELS)])
                await response.read()
                return response.status

        statuses = await asyncio.gather(*map(one, range(80)))
    assert statuses == [200] * 80
    if concurrent == 1:
        refused = len(upstream.requests) - len(statuses)
        assert refused == (2 if status == 429 else 1), "a rate limit of two models is the account's"


async def test_responses_have_headers_of_the_exchange(tmp_path: Path) -> None:
    async with (
        fault_upstream() as upstream,
        gateway_before(
            tmp_path,
            accounts(upstream, Format.CHAT, "refuse:500", "ok"),
            server={"show_channel": True},
        ) as gateway,
    ):
        answer = await gateway.post(Format.CHAT, model="beta-5.4")
        assert answer.headers["x-gateway-attempts"] == "2"
        assert answer.headers["x-gateway-channel"] == "c1"
        assert answer.headers["server-timing"].startswith("gateway;dur=")
        (row,) = await gateway.rows()
        first, second = await gateway.operations.list_attempts(row.id)
    assert (first.channel, first.status, first.verdict, first.next) == (
        "c0",
        500,
        "server error",
        "other account",
    )
    assert (second.channel, second.status, second.verdict) == ("c1", 200, "ok")
    assert (row.affinity, row.affinity_kept) == ("prompt prefix", None)  # its first turn


@each_format
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_channel_without_the_model_is_passed_over(
    tmp_path: Path, format: Format, streamed: bool
) -> None:
    """All its accounts come after those of other channels."""
    async with fault_upstream() as upstream:
        before = accounts(upstream, format, "refuse:404", "ok")
        before[0]["accounts"] += [{"name": name, "key": f"key-{name}"} for name in "bcd"]
        async with gateway_before(tmp_path, before) as gateway:
            status, _ = await post_request(gateway, format, stream=streamed)
            row = await gateway.row()
    assert (status, row.attempts, row.channel) == (200, 2, "c1")


@pytest.mark.parametrize(
    ("plans", "code"),
    [
        (["refuse:404", "refuse:404"], "model_not_found"),
        (["refuse:404", "refuse:500"], "server_is_overloaded"),
        (["refuse:500", "refuse:404"], "server_is_overloaded"),
        (["refuse:404"] * 4, "model_not_found"),
        ([*["refuse:404"] * 4, "refuse:500"], "server_is_overloaded"),
    ],
)
async def test_a_model_is_unknown_only_where_every_channel_says_so(
    tmp_path: Path, plans: list[str], code: str
) -> None:
    """All of them are asked, however many there are."""
    async with (
        fault_upstream() as upstream,
        gateway_before(tmp_path, accounts(upstream, Format.CHAT, *plans)) as gateway,
    ):
        answer = await gateway.post(Format.CHAT, model="beta-5.4")
        error = (await answer.json())["error"]
    assert (answer.status, error["code"]) == (503, code)
    assert UPSTREAM_MODEL not in error["message"]


@each_format
@pytest.mark.parametrize("concurrent", [1, 20])
@pytest.mark.parametrize("second", ["ok", "refuse:404"])
async def test_a_channel_without_the_model_takes_no_retries(
    tmp_path: Path, format: Format, concurrent: int, second: str
) -> None:
    """Of 20 requests all get the reply, or the error that no channel has it: also once the circuits
    are open, which they are after five failures, so that less is asked."""
    async with fault_upstream() as upstream:
        channels = accounts(upstream, format, "refuse:404", second)
        async with gateway_before(tmp_path, channels) as gateway:
            gate, answers = asyncio.Semaphore(concurrent), set()

            async def one() -> None:
                async with gate:
                    answer = await gateway.post(format, model="beta-5.4")
                    unknown = b"model_not_found" in await answer.read()
                    answers.add((answer.status, unknown, answer.headers.get("x-should-retry")))

            await asyncio.gather(*(one() for _ in range(20)))
    assert answers == {(200, False, None) if second == "ok" else (503, True, "false")}
    if concurrent == 1:
        assert len(upstream.requests) == 25


async def test_a_channel_without_the_model_is_not_waited_for(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """The time to come back is that of the channels that may have it."""
    limited = json_response({"error": {"message": "slow down"}}, 429, **{"retry-after": "40"})
    upstream.respond_with(limited)
    async with fault_upstream() as lacking:
        other = channel(Format.CHAT, upstream.address, priority=-1)
        channels = [*accounts(lacking, Format.CHAT, "refuse:404"), other]
        async with run_gateway(tmp_path, channels) as gateway:
            for _ in range(2):
                answer = await gateway.post(Format.CHAT, model="beta-5.4")
                error = (await answer.json())["error"]
                assert (answer.status, error["code"]) == (503, "no_available_accounts")
                assert 30 < int(answer.headers["retry-after"]) <= 40
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("client_format", list(Format))
@each_format
async def test_errors_name_the_model_as_the_client_does(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, client_format: Format
) -> None:
    """In either lane, and in streams that have begun."""
    text = f"{UPSTREAM_MODEL} does not take a temperature"
    broken = fixture_stream(format, "error_mid_stream")
    (piece,) = broken.chunks
    named = piece.replace(b'"message":"', f'"message":"{text}'.encode())
    named = re.sub(rb'"(rate_limit_\w+|requests)"', b'"server_error"', named)
    upstream.respond_with(
        json_response({"error": {"message": text}}, 400), broken.with_changes(chunks=(named,))
    )
    async with run_gateway(tmp_path, [channel(format, upstream.address)]) as gateway:
        for _ in range(2):
            answer = await gateway.post(client_format, model=ALPHA, stream=True)
            body = await answer.text()
            assert UPSTREAM_MODEL not in body
            if answer.status == 400 or client_format is format:
                assert text.replace(UPSTREAM_MODEL, ALPHA) in body
