"""What goes straight to a handler, and that it is answered as by the framework's way."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from tests.support.gateway import PATHS, RunningGateway, request_body
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

pytestmark = pytest.mark.shared_gateway


@pytest.mark.parametrize("format", Format)
async def test_errors_have_the_headers_of_every_response(
    gateway: RunningGateway, format: Format
) -> None:
    answer = await gateway.post(format, model="nobody-has-it")
    assert answer.status in (404, 503)
    assert answer.headers["x-request-id"] == answer.headers["request-id"]
    assert answer.headers["server"] == "model-gateway"
    assert (await gateway.row()).id == answer.headers["x-request-id"]


@pytest.mark.parametrize("format", Format)
async def test_another_method_is_rejected(gateway: RunningGateway, format: Format) -> None:
    async with gateway.http.put(PATHS[format], data=b"{}") as answer:
        assert answer.status == 405


async def test_another_spelling_of_a_path(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """The framework decides what it means."""
    upstream.respond_with(fixture_reply("chat"))
    for path, status in (("/v1/chat/completions?x=1", 200), ("/v1/chat/completions/", 404)):
        assert (await gateway.post(Format.CHAT, path=path)).status == status


async def test_a_client_that_expects_100_continue(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    answer = await gateway.post(
        Format.CHAT, request_body(Format.CHAT), headers={"expect": "100-continue"}
    )
    assert answer.status == 200


async def test_tokens_are_counted(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({"input_tokens": 12}))
    answer = await gateway.post(Format.MESSAGES, path="/v1/messages/count_tokens")
    assert answer.headers["x-request-id"]
