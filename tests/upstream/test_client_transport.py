"""The transport of a channel beside its format: where its key, its query and its model are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from tests.support.gateway import UPSTREAM_KEY, UPSTREAM_MODEL, channel, request_body, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, fixture_stream

CREDENTIALS = {"authorization", "x-api-key", "api-key"}


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"auth": "bearer"}, {"authorization": f"Bearer {UPSTREAM_KEY}"}),
        ({"auth": "x-api-key"}, {"x-api-key": UPSTREAM_KEY}),
        ({"auth": "api-key"}, {"api-key": UPSTREAM_KEY}),
        ({"auth": "none"}, {}),
        (
            {
                "auth": "none",
                "accounts": [{"name": "a", "key": UPSTREAM_KEY, "auth": "api-key"}],
            },
            {"api-key": UPSTREAM_KEY},
        ),
    ],
)
async def test_the_header_of_the_key(
    format: Format,
    options: dict[str, Any],
    sent: dict[str, str],
    tmp_path: Path,
    upstream: ScriptedUpstream,
) -> None:
    upstream.respond_with(fixture_reply(format.value))
    async with run_gateway(tmp_path, [channel(format, upstream.address, **options)]) as gateway:
        assert (await gateway.post(format)).status == 200
    (request,) = upstream.requests
    assert {name: request.headers[name] for name in CREDENTIALS & {*request.headers}} == sent


async def test_a_query_is_part_of_every_call(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """Also beside the client's own, and of counts."""
    upstream.respond_with(fixture_reply("messages"), fixture_reply("messages"))
    main = channel(Format.MESSAGES, upstream.address, query={"api-version": "2026-10 a&b"})
    async with run_gateway(tmp_path, [main]) as gateway:
        await gateway.post(Format.MESSAGES, path="/v1/messages?beta=true")
        await gateway.post(
            Format.MESSAGES,
            {
                key: value
                for key, value in request_body(Format.MESSAGES).items()
                if key != "max_tokens"
            },
            path="/v1/messages/count_tokens",
        )
    generation, count = (request.target for request in upstream.requests)
    version = "api-version=2026-10+a%26b"
    assert generation == f"/v1/messages?{version}&beta=true"
    assert count == f"/v1/messages/count_tokens?{version}"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("client", Format)
async def test_the_model_in_the_path(
    client: Format, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """As of the raw predictions of a platform: the body has no model, and streams another path."""
    upstream.respond_with(fixture_stream("messages") if streamed else fixture_reply("messages"))
    main = channel(
        Format.MESSAGES,
        upstream.address,
        path="/models/{model}:rawPredict",
        stream_path="/models/{model}:streamRawPredict",
        params={"model": None, "anthropic_version": "vertex-2023-10-16"},
    )
    async with run_gateway(tmp_path, [main]) as gateway:
        assert (await gateway.post(client, stream=streamed)).status == 200
        count = await gateway.post(Format.MESSAGES, path="/v1/messages/count_tokens")
        assert (count.status, count.headers["x-gateway-estimated"]) == (200, "true")
    (request,) = upstream.requests
    kind = "streamRawPredict" if streamed else "rawPredict"
    assert request.target == f"/models/{UPSTREAM_MODEL}:{kind}"
    body = orjson.loads(request.body)
    assert "model" not in body
    assert body["anthropic_version"] == "vertex-2023-10-16"
