"""The row that an exchange becomes, for every way in which it can end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState, RequestRow
from tests.support.gateway import ACCOUNT, UPSTREAM_MODEL, RunningGateway, request_body
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    by_frame,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.shared_gateway


def assert_row(row: RequestRow, **expected: Any) -> None:
    assert {name: getattr(row, name) for name in expected} == expected


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("format", Format)
async def test_a_reply(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, streamed: bool
) -> None:
    upstream.respond_with(fixture_stream(format) if streamed else fixture_reply(format))
    agent = {"user-agent": "agent/1", "x-request-id": "mine"}
    answer = await gateway.post(format, stream=streamed, headers=agent)
    row = await gateway.row()
    assert_row(
        row,
        id=answer.headers["request-id"],
        token_id=gateway.token.id,
        group_name="default",
        endpoint=answer.url.path,
        format=format.value,
        model=request_body(format)["model"],
        channel=f"{format}-main",
        account=ACCOUNT,
        upstream_model=UPSTREAM_MODEL,
        lane="native",
        stream=streamed,
        client_address="127.0.0.1",
        user_agent="agent/1",
        client_request_id="mine",
        state=ExchangeState.OK,
        status=200,
        stop_reason="end_turn",
        end_reason="complete",
        input_tokens=12,
        output_tokens=4,
        usage_source="upstream",
        bytes_out=len(await answer.read()),
        error_code=None,
        upstream_status=None,
        upstream_error=None,
    )
    assert row.bytes_in > 0
    assert row.first_event_us is not None
    assert 0 < row.first_event_us <= row.total_us
    token = await gateway.operations.get_key(gateway.token.id)
    assert (token.requests, token.input_tokens, token.output_tokens) == (1, 12, 4)


@pytest.mark.parametrize("format", Format)
async def test_cached_and_written_tokens(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    """The whole prompt, with cache reads as a part of it, whatever the format counts."""
    upstream.respond_with(
        fixture_reply(format, "cached_usage"), fixture_stream(format, "cached_usage")
    )
    await gateway.post(format)
    await gateway.post(format, stream=True)
    first, second = await gateway.rows(2)
    assert first.cache_read_tokens > 0
    assert first.input_tokens >= first.cache_read_tokens + first.cache_write_tokens
    counted = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
    assert_row(second, **{name: getattr(first, name) for name in counted})


async def test_rejected_before_an_attempt(gateway: RunningGateway) -> None:
    await gateway.post(Format.CHAT, b"{")
    row = await gateway.row()
    assert_row(
        row,
        state=ExchangeState.REJECTED,
        status=400,
        error_code="invalid_json",
        end_reason="refused",
        channel=None,
        model=None,
        usage_source="none",
        input_tokens=0,
    )


async def test_rejected_by_the_router(gateway: RunningGateway) -> None:
    await gateway.post(Format.CHAT, model="nobody")
    assert_row(
        await gateway.row(),
        state=ExchangeState.REJECTED,
        status=503,
        error_code="model_not_found",
        model="nobody",
        channel=None,
        upstream_error=None,
        error_message="model_not_found: no channel for model nobody in this group"
        " (no such model in the catalog)",
    )


async def test_rejected_by_the_upstream(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(
        json_response({"error": {"message": "spent", "type": "insufficient_quota"}}, 429)
    )
    await gateway.post(Format.CHAT)
    assert_row(
        await gateway.row(),
        state=ExchangeState.ERROR,
        status=503,
        error_code="no_available_accounts",
        end_reason="upstream_said",
        attempts=3,
        upstream_status=429,
        upstream_error='{"error":{"message":"spent","type":"insufficient_quota"}}',
    )


async def test_an_upstream_error_is_kept_within_bounds(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(json_response(b"\xff\x00\x1b[31m" + b"x" * 200_000, 500))
    await gateway.post(Format.CHAT)
    row = await gateway.row()
    assert row.upstream_error is not None
    assert len(row.upstream_error) <= 8192


@pytest.mark.parametrize("format", Format)
async def test_a_truncated_stream(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_stream(format, "cut", ending=Ending.TRUNCATED))
    answer = await gateway.post(format, stream=True)
    assert answer.status == 200
    assert_row(
        await gateway.row(),
        state=ExchangeState.UPSTREAM_CUT,
        status=200,
        error_code="bad_upstream_response",
        end_reason="upstream_cut",
        stop_reason=None,
    )


@pytest.mark.parametrize("format", Format)
async def test_an_error_event_within_a_stream(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_stream(format, "error_mid_stream"))
    await gateway.post(format, stream=True)
    row = await gateway.row()
    assert_row(
        row,
        state=ExchangeState.ERROR,
        status=200,
        error_code="no_available_accounts",
        end_reason="upstream_said",
        upstream_status=429,
    )
    assert "Rate limit reached" in (row.upstream_error or "")


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_whole_reply_that_is_no_reply(
    gateway: RunningGateway, upstream: ScriptedUpstream, streamed: bool
) -> None:
    upstream.respond_with(json_response(b"<html>maintenance</html>"))
    await gateway.post(Format.CHAT, stream=streamed)
    assert_row(
        await gateway.row(),
        state=ExchangeState.ERROR,
        status=502,
        end_reason="upstream_garbage",
        upstream_status=200,
        upstream_error="<html>maintenance</html>",
    )


@pytest.mark.parametrize(("streamed", "status"), [(False, 499), (True, 499), (True, 200)], ids=str)
async def test_a_client_that_disconnects(
    gateway: RunningGateway, upstream: ScriptedUpstream, streamed: bool, status: int
) -> None:
    silent = Response(ending=Ending.STALLED)
    begun = by_frame(fixture_stream("chat", "cut", ending=Ending.STALLED))
    upstream.respond_with(begun if status == 200 else silent)
    request = asyncio.ensure_future(
        gateway.http.post(
            "/v1/chat/completions",
            json=request_body(Format.CHAT, stream=streamed),
            headers={"x-api-key": gateway.key},
        )
    )
    seen = await upstream.wait_for_request()
    if status == 200:
        answer = await request
        assert await answer.content.readany()
        answer.close()
    else:
        request.cancel()
    await asyncio.wait_for(seen.disconnected.wait(), 1)
    assert_row(
        await gateway.row(),
        state=ExchangeState.CLIENT_GONE,
        status=status,
        end_reason="client_gone",
        channel="chat-main",
    )


async def test_the_row_is_running_until_the_reply_ends(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """The intent is on record before a byte leaves: a crash leaves a trace."""
    upstream.respond_with(by_frame(fixture_stream("chat", "cut", ending=Ending.STALLED)))
    answer = await gateway.http.post(
        "/v1/chat/completions",
        json=request_body(Format.CHAT, stream=True),
        headers={"x-api-key": gateway.key},
    )
    assert await answer.content.readany()
    row = await gateway.operations.get_request(answer.headers["request-id"])
    assert_row(row, state=ExchangeState.RUNNING, channel="chat-main", status=None)
    answer.close()
    await gateway.row()


async def test_a_long_user_agent_is_cut(gateway: RunningGateway) -> None:
    await gateway.post(Format.CHAT, b"{", headers={"user-agent": "a" * 4000})
    assert (await gateway.row()).user_agent == "a" * 300
