"""Upstreams that fail behind a client of another format: told in its own form, and never hidden."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.server.format_pairs import TERMINAL, TRANSLATED_PAIRS, OpenGateway
from tests.support.formats.readers import check
from tests.support.gateway import request_body
from tests.support.upstream import (
    TRUNCATIONS,
    ScriptedUpstream,
    by_frame,
    event_stream,
    fixture_stream,
    json_response,
)

STATUSES = {
    400: (400, "invalid_request_error", "invalid_request_error"),
    401: (502, "server_error", "api_error"),
    404: (404, "invalid_request_error", "not_found_error"),
    413: (413, "invalid_request_error", "request_too_large"),
    422: (422, "invalid_request_error", "invalid_request_error"),
    429: (503, "server_error", "overloaded_error"),
    500: (503, "server_error", "overloaded_error"),
    529: (503, "server_error", "overloaded_error"),
}


@pytest.mark.parametrize(("client_format", "upstream_format"), TRANSLATED_PAIRS)
async def test_upstream_errors_in_the_clients_format(
    upstream: ScriptedUpstream, behind: OpenGateway, client_format: Format, upstream_format: Format
) -> None:
    error_body: dict[str, Any] = {"message": "No.", "type": "their_word"}
    if upstream_format is not Format.MESSAGES:
        error_body |= {"param": "no_such_field", "code": None}
    async with behind(upstream_format) as gateway:
        for status, (seen, chat_type, messages_type) in STATUSES.items():
            upstream.respond_with(json_response({"type": "error", "error": error_body}, status))
            for streams in (False, True):
                answer = await gateway.post(client_format, stream=streams)
                assert answer.status == seen, status
                error = (await answer.json())["error"]
                assert error["type"] == (
                    messages_type if client_format is Format.MESSAGES else chat_type
                )
                assert error.get("param") is None
                if seen < 500:
                    assert error["message"] == "No."
                assert "their_word" not in await answer.text()
        rows = await gateway.rows(2 * len(STATUSES))
        assert [row.upstream_status for row in rows[::2]] == [*STATUSES]
        assert {row.state for row in rows} == {ExchangeState.ERROR}


@pytest.mark.parametrize(("client_format", "upstream_format"), TRANSLATED_PAIRS)
async def test_an_error_as_the_first_event_is_an_http_error(
    upstream: ScriptedUpstream, behind: OpenGateway, client_format: Format, upstream_format: Format
) -> None:
    upstream.respond_with(by_frame(fixture_stream(upstream_format, "error_first")))
    async with behind(upstream_format) as gateway:
        answer = await gateway.post(client_format, stream=True)
        assert answer.status == 503
        assert (await gateway.row()).state is ExchangeState.ERROR


@pytest.mark.parametrize(("client_format", "upstream_format"), TRANSLATED_PAIRS)
async def test_an_error_in_the_middle_has_the_clients_format(
    upstream: ScriptedUpstream, behind: OpenGateway, client_format: Format, upstream_format: Format
) -> None:
    upstream.respond_with(by_frame(fixture_stream(upstream_format, "error_mid_stream")))
    async with behind(upstream_format) as gateway:
        answer = await gateway.post(client_format, stream=True)
        raw = await answer.read()
        assert answer.status == 200
        check(client_format, raw, errored=True)
        assert TERMINAL[client_format] not in raw
        row = await gateway.row()
        assert (row.state, row.status) == (ExchangeState.ERROR, 200)


@pytest.mark.parametrize(("client_format", "upstream_format"), TRANSLATED_PAIRS)
async def test_a_truncated_reply_never_looks_complete(
    upstream: ScriptedUpstream, behind: OpenGateway, client_format: Format, upstream_format: Format
) -> None:
    async with behind(upstream_format) as gateway:
        for ending in TRUNCATIONS.values():
            upstream.respond_with(by_frame(fixture_stream(upstream_format, "cut", ending=ending)))
            answer = await gateway.post(client_format, stream=True)
            raw = await answer.read()
            check(client_format, raw, errored=True)
            assert TERMINAL[client_format] not in raw
            assert b"Bad upstream response" in raw
        rows = await gateway.rows(len(TRUNCATIONS))
        assert {row.state for row in rows} == {ExchangeState.UPSTREAM_CUT}


@pytest.mark.parametrize(("client_format", "upstream_format"), TRANSLATED_PAIRS)
async def test_unreadable_bodies_are_bad_replies(
    upstream: ScriptedUpstream, behind: OpenGateway, client_format: Format, upstream_format: Format
) -> None:
    scripts = [
        json_response(b"[]"),
        json_response(b"<html>"),
        json_response({}),
        json_response({"choices": 5, "output": 5}),
    ]
    upstream.respond_with(*scripts)
    async with behind(upstream_format) as gateway:
        for _ in scripts:
            assert (await gateway.post(client_format)).status == 502
        upstream.respond_with(
            event_stream(b""), event_stream(b"data: {]\n\n"), event_stream(b": nothing\n\n")
        )
        for _ in range(3):
            assert (await gateway.post(client_format, stream=True)).status == 502
        rows = await gateway.rows(7)
        assert {row.state for row in rows} == {ExchangeState.ERROR}
        assert {row.error_code for row in rows} <= {
            "bad_upstream_response",
            "empty_upstream_response",
        }


CHAT_OVERFLOW = (
    "This model's maximum context length is 100 tokens. However, your messages resulted in 130 "
    "tokens."
)


@pytest.mark.parametrize(
    ("upstream_format", "error_body", "figures"),
    [
        (Format.MESSAGES, "prompt is too long: 130 tokens > 100 maximum", True),
        (Format.CHAT, CHAT_OVERFLOW, True),
        (Format.CHAT, "request (130 tokens) exceeds the available context size (100 tokens)", True),
        (Format.RESPONSES, "Your input exceeds the context window of this model.", False),
    ],
)
@pytest.mark.parametrize("client_format", Format)
async def test_a_prompt_that_is_too_long_has_the_text_that_clients_recognise(
    upstream: ScriptedUpstream,
    behind: OpenGateway,
    client_format: Format,
    upstream_format: Format,
    error_body: str,
    figures: bool,
) -> None:
    upstream.respond_with(
        json_response({"error": {"message": error_body, "param": "their_word"}}, 400)
    )
    async with behind(upstream_format) as gateway:
        answer = await gateway.post(client_format)
        assert answer.status == 400
        error = (await answer.json())["error"]
        assert error_body in error["message"]
        assert (await gateway.row()).error_code == "context_length_exceeded"
    if client_format is Format.MESSAGES:
        start = "prompt is too long" + (": 130 tokens > 100 maximum" if figures else "")
        assert error["message"].startswith(start)
    else:
        conversation = "messages" if client_format is Format.CHAT else "input"
        assert (error["code"], error["param"]) == ("context_length_exceeded", conversation)


@pytest.mark.parametrize("streams", [False, True])
async def test_a_reply_that_cannot_be_written_is_paid_and_no_failure_of_the_account(
    upstream: ScriptedUpstream, behind: OpenGateway, streams: bool
) -> None:
    """Parsing goes deeper than writing. The upstream did its work, so that its account stays."""
    block = b'{"type":"unknown","data":%b}' % (b"[" * 300 + b"]" * 300)
    upstream.respond_with(
        json_response(
            b'{"id":"reply_01","type":"message","role":"assistant","model":"upstream-model",'
            b'"content":[%b],"stop_reason":"end_turn","stop_sequence":null,'
            b'"usage":{"input_tokens":12,"output_tokens":4}}' % block
        )
    )
    async with behind(Format.MESSAGES) as gateway:
        for asked in range(1, 7):  # more often than a circuit allows failures
            answer = await gateway.post(Format.MESSAGES, stream=streams)
            assert answer.status == 502
            assert (await answer.json())["error"]["type"] == "api_error"
            assert len(upstream.requests) == asked
        row, *_ = await gateway.rows()
        assert (row.state, row.end_reason) == (ExchangeState.ERROR, "upstream_unwritable")
        assert (row.input_tokens, row.output_tokens, row.usage_source) == (12, 4, "upstream")


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("upstream_format", [Format.CHAT, Format.MESSAGES])
async def test_settings_that_a_reply_cannot_repeat_are_refused_before_anything_is_sent(
    upstream: ScriptedUpstream, behind: OpenGateway, upstream_format: Format, streams: bool
) -> None:
    nested: Any = {}
    for _ in range(300):
        nested = {"anyOf": nested}
    fields = {name: nested for name in ("metadata", "reasoning", "text")}
    fields["tool_choice"] = {"type": "other", "nested": nested}
    fields["tools"] = [{"type": "function", "name": "f", "parameters": nested}]
    async with behind(upstream_format) as gateway:
        for name, value in fields.items():
            body = request_body(Format.RESPONSES, stream=streams) | {name: value}
            answer = await gateway.post(Format.RESPONSES, json.dumps(body).encode())
            assert answer.status == 400, name
            assert "Input is nested too deeply" in (await answer.json())["error"]["message"]
    assert not upstream.requests
