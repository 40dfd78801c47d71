"""How much is left, in the words of each format's clients."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import ClientResponse

from gateway.core.formats import Format
from gateway.quota.limits import LimitStatus, LimitStatuses
from gateway.server.http.headers import format_duration, rate_limit_headers
from tests.server.key_limits import limit_group, limit_key, use_quota
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, fixture_stream, json_response

AT = int(datetime(2026, 11, 21, 12, 0, 0, 250_000, UTC).timestamp() * 1e6)
PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")


def limit_headers(answer: ClientResponse) -> dict[str, str]:
    """Those of the answer's headers, by their names in small letters."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return {name: value for name, value in headers.items() if name.startswith(PREFIXES)}


def remaining(format: Format, answer: ClientResponse, counted: str = "requests") -> tuple[int, int]:
    """The limit, and how much is left of it."""
    headers = answer.headers
    if format is Format.MESSAGES:
        name = f"anthropic-ratelimit-{counted}"
        return int(headers[f"{name}-limit"]), int(headers[f"{name}-remaining"])
    return (
        int(headers[f"x-ratelimit-limit-{counted}"]),
        int(headers[f"x-ratelimit-remaining-{counted}"]),
    )


def test_the_headers_of_chat_and_responses() -> None:
    gauges = LimitStatuses(LimitStatus(60, 59, 0.998), LimitStatus(150_000, 149_984, 361.2))
    expected = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "998ms",
        "x-ratelimit-limit-tokens": "150000",
        "x-ratelimit-remaining-tokens": "149984",
        "x-ratelimit-reset-tokens": "6m2s",
    }
    for format in (Format.CHAT, Format.RESPONSES):
        assert dict(rate_limit_headers(format, gauges, AT)) == expected


def test_the_headers_of_messages() -> None:
    gauges = LimitStatuses(LimitStatus(60, 0, 59.5), LimitStatus(9, 9, 0.0))
    assert dict(rate_limit_headers(Format.MESSAGES, gauges, AT)) == {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-11-21T12:01:00Z",
        "anthropic-ratelimit-tokens-limit": "9",
        "anthropic-ratelimit-tokens-remaining": "9",
        "anthropic-ratelimit-tokens-reset": "2026-11-21T12:00:01Z",
    }


def test_unlimited_resources_have_no_headers() -> None:
    assert list(rate_limit_headers(Format.CHAT, LimitStatuses(None, None), AT)) == []
    assert (
        len(list(rate_limit_headers(Format.CHAT, LimitStatuses(None, LimitStatus(1, 1, 0.0)), AT)))
        == 3
    )
    assert (
        len(
            list(
                rate_limit_headers(Format.MESSAGES, LimitStatuses(LimitStatus(1, 1, 0.0), None), AT)
            )
        )
        == 3
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0ms"),
        (0.0001, "1ms"),
        (0.12, "120ms"),
        (0.9999, "1000ms"),
        (1.0, "1s"),
        (1.01, "2s"),
        (59.0, "59s"),
        (59.5, "1m0s"),
        (60.0, "1m0s"),
        (359.7, "6m0s"),
        (3600.0, "60m0s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("format", Format)
async def test_remaining_counts_decrease(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, streamed: bool
) -> None:
    upstream.respond_with(fixture_stream(format) if streamed else fixture_reply(format))
    limit_key(gateway, requests_per_minute=3)
    left = []
    for _ in range(5):
        answer = await gateway.post(format, stream=streamed)
        left.append((answer.status, *remaining(format, answer)))
    assert left == [(200, 3, 2), (200, 3, 1), (200, 3, 0), (429, 3, 0), (429, 3, 0)]
    assert len(upstream.requests) == 3


@pytest.mark.parametrize("format", Format)
async def test_when_all_limits_are_free(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    """That of the request itself: it is the newest that counts."""
    upstream.respond_with(fixture_reply(format))
    limit_key(gateway, requests_per_minute=3)
    use_quota(gateway, ago=50)
    began = datetime.now(UTC)
    sent = limit_headers(await gateway.post(format))
    if format is Format.MESSAGES:
        assert set(sent) == {
            f"anthropic-ratelimit-requests-{each}" for each in ("limit", "remaining", "reset")
        }
        reset = datetime.fromisoformat(sent["anthropic-ratelimit-requests-reset"])
        assert 59 <= (reset - began).total_seconds() <= 63
    else:
        assert set(sent) == {
            f"x-ratelimit-{each}-requests" for each in ("limit", "remaining", "reset")
        }
        assert sent["x-ratelimit-reset-requests"] in ("1m0s", "59s")


@pytest.mark.parametrize("format", Format)
async def test_tokens_are_reserved_first_and_corrected_later(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_reply(format))
    limit_key(gateway, tokens_per_minute=10_000)
    limit, left = remaining(format, await gateway.post(format), "tokens")
    expected = 100 if format is Format.MESSAGES else 1_024  # max_tokens, or what is usual
    assert limit == 10_000
    assert 10_000 - expected - 20 <= left < 10_000 - expected
    await gateway.rows()
    _, left = remaining(format, await gateway.post(format, b"{"), "tokens")
    assert left == 10_000 - 16


async def test_the_tightest_limit_is_reported(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    limit_key(gateway, requests_per_minute=5, tokens_per_minute=90_000)
    limit_group(gateway, requests_per_minute=9, tokens_per_minute=80_000)
    answer = await gateway.post(Format.CHAT)
    assert remaining(Format.CHAT, answer) == (5, 4)
    assert remaining(Format.CHAT, answer, "tokens")[0] == 80_000
    other, key = await gateway.operations.create_key("other", "default")
    for _ in range(5):
        answer = await gateway.post(Format.CHAT, key=key)
    assert remaining(Format.CHAT, answer) == (9, 3)
    assert remaining(Format.CHAT, await gateway.post(Format.CHAT)) == (9, 2)
    await gateway.operations.update_key(
        other.id, group="default", limits={"requests_per_minute": 6}
    )
    assert remaining(Format.CHAT, await gateway.post(Format.CHAT, key=key)) == (9, 1)


async def test_the_gateways_limits_are_in_every_response(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    limits = {"requests_per_minute": 4, "tokens_per_minute": 70_000}
    async with run_gateway(tmp_path, channels(upstream.address), limits=limits) as gateway:
        _, key = await gateway.operations.create_key("other", "default")
        assert remaining(Format.CHAT, await gateway.post(Format.CHAT)) == (4, 3)
        answer = await gateway.post(Format.CHAT, key=key)
        assert remaining(Format.CHAT, answer) == (4, 2)
        assert remaining(Format.CHAT, answer, "tokens")[0] == 70_000


async def test_every_response_to_a_valid_key_has_them(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """Errors of any kind as well, and the list of models; what takes nothing changes nothing."""
    upstream.respond_with(fixture_reply("chat"))
    limit_key(gateway, requests_per_minute=9)
    answers = [
        (await gateway.get("/v1/models"), 200, 9),
        (await gateway.get("/v1/models/nobody"), 404, 9),
        (await gateway.post(Format.CHAT, b"{"), 400, 9),
        (await gateway.post(Format.CHAT, model="nobody"), 503, 9),
        (await gateway.post(Format.CHAT), 200, 8),
    ]
    upstream.respond_with(json_response({"error": {"message": "no"}}, 400))
    answers.append((await gateway.post(Format.CHAT), 400, 7))
    assert [(answer.status, *remaining(Format.CHAT, answer)) for answer, _, _ in answers] == [
        (status, 9, left) for _, status, left in answers
    ]
    messages = await gateway.post(Format.MESSAGES, b"{", headers={"user-agent": "x"})
    assert remaining(Format.MESSAGES, messages) == (9, 7)


async def test_bad_keys_get_no_rate_limit_headers(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    limits = {"requests_per_minute": 4}
    async with run_gateway(tmp_path, channels(upstream.address), limits=limits) as gateway:
        answer = await gateway.post(Format.CHAT, key="sk-" + "A" * 48)
        assert (answer.status, limit_headers(answer)) == (401, {})
        assert limit_headers(await gateway.get("/healthz")) == {}


@pytest.mark.parametrize("limits", [{}, {"concurrent": 5}, {"budget": 10**12}])
async def test_without_limits_per_minute_there_are_no_headers(
    gateway: RunningGateway, upstream: ScriptedUpstream, limits: dict[str, int]
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    limit_key(gateway, **limits)
    assert limit_headers(await gateway.post(Format.CHAT)) == {}


async def test_limits_of_the_model_list_have_the_clients_format(gateway: RunningGateway) -> None:
    limit_key(gateway, requests_per_minute=3)
    assert remaining(Format.CHAT, await gateway.get("/v1/models")) == (3, 3)
    named = await gateway.get("/v1/models", **{"anthropic-version": "2023-06-01"})
    assert remaining(Format.MESSAGES, named) == (3, 3)
    assert len(limit_headers(named)) == 3
