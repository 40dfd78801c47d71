"""Requests with large files reach the upstream as they are, on every lane."""

from __future__ import annotations

import base64
import zlib
from io import BytesIO
from random import Random
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from tests.resilience.chaos.client import headers as chaos_headers
from tests.server.format_pairs import PAIRS
from tests.support.gateway import RunningGateway, request_body, run_gateway
from tests.support.gateway import channel as channel_config
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

pytestmark = pytest.mark.shared_gateway

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x04\x00\x00\x00\x03\x00\x08\x02\x00\x00\x00"
END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
LARGE = base64.b64encode(PNG + Random(1).randbytes(1_500_000) + END).decode()
SMALL = base64.b64encode(PNG + END).decode()


def with_image(client_format: Format, data: str) -> dict[str, Any]:
    url = f"data:image/png;base64,{data}"
    match client_format:
        case Format.CHAT:
            image: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
        case Format.MESSAGES:
            source = {"type": "base64", "media_type": "image/png", "data": data}
            image = {"type": "image", "source": source}
        case Format.RESPONSES:
            image = {"type": "input_image", "image_url": url}
    turns = [{"role": "user", "content": [image]}]
    name = "input" if client_format is Format.RESPONSES else "messages"
    return request_body(client_format, **{name: turns})


@pytest.mark.parametrize(("client_format", "upstream_format"), PAIRS)
async def test_the_upstream_gets_the_whole_image(
    upstream: ScriptedUpstream, tmp_path: Any, client_format: Format, upstream_format: Format
) -> None:
    upstream.respond_with(fixture_reply(upstream_format))
    channels = [channel_config(upstream_format, upstream.address)]
    async with run_gateway(tmp_path, channels) as gateway:
        for data in (SMALL, LARGE):
            answer = await gateway.post(client_format, with_image(client_format, data))
            assert answer.status == 200, await answer.text()
        assert gateway.daemon.runtime.bodies.total == 0
    small, large = (request.body for request in upstream.requests)
    assert large.replace(LARGE.encode(), SMALL.encode()) == small


@pytest.mark.parametrize("chunked", [False, True])
async def test_compressed_and_chunked_bodies(
    gateway: RunningGateway, upstream: ScriptedUpstream, chunked: bool
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    body = with_image(Format.CHAT, LARGE)
    raw = orjson.dumps(body)
    if chunked:

        async def pieces() -> Any:
            yield raw[:700_000]
            yield raw[700_000:]

        headers = {"authorization": f"Bearer {gateway.key}", "content-type": "application/json"}
        sending = gateway.http.post("/v1/chat/completions", data=pieces(), headers=headers)
        answer = await sending
    else:
        answer = await gateway.post(
            Format.CHAT, zlib.compress(raw, 1), headers={"content-encoding": "deflate"}
        )
    assert answer.status == 200
    assert upstream.last_request.json["messages"] == body["messages"]


async def test_the_next_account_gets_it_too(upstream: ScriptedUpstream, tmp_path: Any) -> None:
    upstream.respond_with(json_response({"error": {}}, status=500), fixture_reply("chat"))
    accounts = [{"name": name, "key": name} for name in ("first", "second")]
    channels = [channel_config(Format.CHAT, upstream.address, accounts=accounts)]
    async with run_gateway(tmp_path, channels) as gateway:
        answer = await gateway.post(Format.CHAT, with_image(Format.CHAT, LARGE))
        assert answer.status == 200
    first, second = upstream.requests
    assert first.body == second.body
    assert LARGE.encode() in first.body


@pytest.mark.parametrize("client_format", list(Format))
async def test_base64_elsewhere_is_part_of_the_request(
    gateway: RunningGateway, upstream: ScriptedUpstream, client_format: Format
) -> None:
    """It is echoed, or read by the gateway: there a placeholder would be wrong."""
    upstream.respond_with(fixture_reply("chat" if client_format is Format.CHAT else client_format))
    body = request_body(client_format, metadata={"data": LARGE})
    answer = await gateway.post(client_format, body)
    assert answer.status == 200
    assert LARGE.encode() in upstream.last_request.body


async def test_an_error_tells_its_place_in_the_whole_body(gateway: RunningGateway) -> None:
    raw = orjson.dumps(with_image(Format.CHAT, LARGE)).replace(b'"user"', b"user")
    answer = await gateway.post(Format.CHAT, raw)
    assert answer.status == 400
    raw = orjson.dumps(with_image(Format.CHAT, LARGE))[:-1] + b",}"
    answer = await gateway.post(Format.CHAT, raw)
    message = (await answer.json())["error"]["message"]
    assert f"column {len(raw) - 1}" in message, message


async def test_counting_tokens_sends_the_whole_image(
    upstream: ScriptedUpstream, tmp_path: Any
) -> None:
    upstream.respond_with(json_response({"input_tokens": 7}))
    channels = [channel_config(Format.MESSAGES, upstream.address)]
    async with run_gateway(tmp_path, channels) as gateway:
        body = with_image(Format.MESSAGES, LARGE)
        headers = chaos_headers(gateway.key, "count")
        data, path = BytesIO(orjson.dumps(body)), "/v1/messages/count_tokens"
        answer = await gateway.http.post(path, data=data, headers=headers)
        assert await answer.json() == {"input_tokens": 7}
    assert upstream.last_request.json["messages"] == body["messages"]


@pytest.mark.large
@pytest.mark.parametrize("is_written", [False, True])
async def test_a_stored_request_has_the_whole_image(
    upstream: ScriptedUpstream, tmp_path: Any, is_written: bool
) -> None:
    upstream.respond_with(fixture_reply("responses"))
    channels = [channel_config(Format.RESPONSES, upstream.address)]
    async with run_gateway(tmp_path, channels) as gateway:
        first = with_image(Format.RESPONSES, LARGE)
        reply = await (await gateway.post(Format.RESPONSES, first)).json()
        if is_written:
            await gateway.daemon.runtime.responses.flush()
        follow = request_body(Format.RESPONSES, previous_response_id=reply["id"])
        answer = await gateway.post(Format.RESPONSES, follow)
        assert answer.status == 200, await answer.text()
        await gateway.daemon.runtime.responses.flush()
    assert upstream.last_request.json["input"][0] == first["input"][0]
