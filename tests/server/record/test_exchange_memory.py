"""What a request held is given back at its end, without a garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import orjson
import pytest

from gateway.core.formats import Format
from gateway.server.record.exchange import Exchange
from tests.support.gateway import RunningGateway, request_body
from tests.support.upstream import Ending, Response, ScriptedUpstream, fixture_reply, json_response

pytestmark = pytest.mark.shared_gateway


@pytest.fixture(autouse=True)
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _exchanges() -> int:
    return sum(type(each) is Exchange for each in gc.get_objects())


CHAT = request_body(Format.CHAT)
REPLY = fixture_reply(Format.CHAT)
REPLIES = {
    "text": REPLY,
    "error": json_response({"error": {"message": "no"}}, 500),
    "no connection": REPLY.with_changes(raw=b""),
    "broken off": REPLY.with_changes(ending=Ending.RESET),
}


@pytest.mark.large
@pytest.mark.parametrize(
    "body",
    [
        b'{"model":',
        orjson.dumps(CHAT | {"messages": 1}),
        orjson.dumps(CHAT | {"model": "nobody"}),
        orjson.dumps(CHAT | {"metadata": {"a": [[]] * 200_001}}),
        orjson.dumps(CHAT | {"messages": [[]] * 5_000}),
    ],
    ids=lambda body: repr(body[-40:]),
)
async def test_a_refused_request(gateway: RunningGateway, body: bytes) -> None:
    await gateway.post(Format.CHAT, body)
    await gateway.rows()
    assert _exchanges() == 0


@pytest.mark.large
@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
async def test_a_request(
    gateway: RunningGateway,
    upstream: ScriptedUpstream,
    format: Format,
    reply: Response,
    stream: bool,
) -> None:
    upstream.respond_with(reply)
    await gateway.post(format, stream=stream)
    await gateway.rows()
    assert _exchanges() == 0
