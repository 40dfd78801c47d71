"""What cannot cross between formats: dropped and named, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.server.format_pairs import OpenGateway
from tests.support.gateway import ALPHA, BETA, RunningGateway, channel, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, fixture_stream


@pytest.mark.parametrize("streams", [False, True])
async def test_dropped_fields_are_named(
    upstream: ScriptedUpstream, behind: OpenGateway, streams: bool
) -> None:
    upstream.respond_with(fixture_stream("chat") if streams else fixture_reply("chat"))
    extra_fields = {"top_k": 5, "context_management": {"edits": []}}
    async with behind(Format.CHAT) as gateway:
        answer = await gateway.post(Format.MESSAGES, stream=streams, **extra_fields)
        assert answer.status == 200
        assert answer.headers["x-gateway-dropped"] == "context_management, top_k"
        assert (await gateway.row()).dropped == "context_management, top_k"
    assert not {"top_k", "context_management"} & set(upstream.last_request.json)


async def test_a_strict_client_forbids_dropped_fields(
    upstream: ScriptedUpstream, behind: OpenGateway
) -> None:
    async with behind(Format.CHAT) as gateway:
        strict = {"x-gateway-strict": "1"}
        answer = await gateway.post(Format.MESSAGES, headers=strict, top_k=5, foo=1)
        assert answer.status == 400
        error = (await answer.json())["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"].startswith("foo, top_k: would be lost")
        row = await gateway.row()
        assert (row.state, row.error_code) == (ExchangeState.REJECTED, "convert_request_failed")
        assert row.channel is None
        assert not upstream.requests

        upstream.respond_with(fixture_reply("chat"))
        answer = await gateway.post(Format.MESSAGES, headers=strict)
        assert answer.status == 200


async def test_nothing_is_dropped_between_equal_formats(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    for upstream_format in Format:
        upstream.respond_with(fixture_reply(upstream_format))
        strict = {"x-gateway-strict": "true"}
        answer = await gateway.post(upstream_format, headers=strict, top_k=5, foo={"bar": 1})
        assert answer.status == 200
        assert "x-gateway-dropped" not in answer.headers
        assert upstream.last_request.json["foo"] == {"bar": 1}
    rows = await gateway.rows(3)
    assert {(row.lane, row.dropped) for row in rows} == {("native", None)}


async def test_fields_that_cannot_be_translated_are_rejected(
    upstream: ScriptedUpstream, behind: OpenGateway
) -> None:
    async with behind(Format.MESSAGES) as gateway:
        answer = await gateway.post(Format.CHAT, n=2)
        assert answer.status == 400
        error = (await answer.json())["error"]
        assert (error["code"], error["param"]) == ("convert_request_failed", "n")
        assert (await gateway.row()).state is ExchangeState.REJECTED
    assert not upstream.requests


@pytest.mark.parametrize("upstream_format", Format)
@pytest.mark.parametrize("kind", ["create", "continue"])
async def test_a_thread_error_is_one_that_clients_recover_from(
    upstream: ScriptedUpstream, behind: OpenGateway, upstream_format: Format, kind: str
) -> None:
    async with behind(upstream_format, responses={"store": False}) as gateway:
        thread = {"type": kind, "previous_message_id": "msg_1"}
        answer = await gateway.post(Format.MESSAGES, thread=thread)
        assert answer.status == 400
        body_json = await answer.json()
        assert body_json["error"]["type"] == "invalid_request_error"
        assert body_json["error"]["details"] == {
            "error_code": "thread_unsupported_request",
            "unsupported": ["thread"],
        }
    assert not upstream.requests


@pytest.mark.parametrize("upstream_format", Format)
async def test_an_earlier_response_is_unknown_on_the_translated_lane(
    upstream: ScriptedUpstream, behind: OpenGateway, upstream_format: Format
) -> None:
    async with behind(upstream_format) as gateway:
        answer = await gateway.post(Format.RESPONSES, previous_response_id="resp_1")
        assert answer.status == 400
        assert (await answer.json())["error"] == {
            "message": "Previous response with id 'resp_1' not found.",
            "type": "invalid_request_error",
            "param": "previous_response_id",
            "code": "previous_response_not_found",
        }
    assert not upstream.requests


async def test_an_endpoint_can_exclude_a_family(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    families = {"alpha": {"endpoints": ["chat", "messages"]}}
    lines = [channel(upstream_format, upstream.address) for upstream_format in Format]
    async with run_gateway(tmp_path, lines, families=families) as gateway:
        answer = await gateway.post(Format.RESPONSES, model=ALPHA)
        assert answer.status == 500
        error = (await answer.json())["error"]
        assert error["message"] == "not implemented (convert_request_failed)"
        assert error["code"] == "convert_request_failed"
        assert not upstream.requests
        upstream.respond_with(fixture_reply("responses"))
        assert (await gateway.post(Format.RESPONSES, model=BETA)).status == 200


async def test_responses_needs_a_model_of_its_family(
    upstream: ScriptedUpstream, behind: OpenGateway
) -> None:
    async with behind(Format.RESPONSES) as gateway:
        key = await gateway.key_for_models("alpha-*")
        answer = await gateway.post(Format.RESPONSES, key=key, model=ALPHA)
        assert answer.status == 404
        assert (await answer.json())["error"]["message"] == (
            "Invalid URL (POST /v1/responses): this endpoint needs a key whose group may use "
            "a model of the family beta"
        )


async def test_responses_is_open_to_groups_with_models_of_its_family_that_have_no_channel(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """What a key may use does not depend on the channels, or on the catalog."""
    upstream.respond_with(fixture_reply("messages"))
    lines = [channel(Format.MESSAGES, upstream.address, models={ALPHA: "upstream-model"})]
    models = [{"id": ALPHA, "family": "alpha"}]
    async with run_gateway(tmp_path, lines, models=models) as gateway:
        for pattern in ("*", "beta-*", "family:beta", BETA):
            key = await gateway.key_for_models("alpha-*", pattern)
            answer = await gateway.post(Format.RESPONSES, key=key, model=ALPHA)
            assert answer.status == 200
            answer = await gateway.post(Format.RESPONSES, key=key, model=BETA)
            assert (answer.status, (await answer.json())["error"]["code"]) == (
                503,
                "model_not_found",
            )
        key = await gateway.key_for_models("family:alpha", "*sonnet*")
        assert (await gateway.post(Format.RESPONSES, key=key, model=ALPHA)).status == 404
