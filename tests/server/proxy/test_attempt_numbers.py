"""Integers beyond 64 bits keep their digits, in requests and replies, in all nine pairs."""

from __future__ import annotations

import orjson
import pytest

from gateway.core.formats import Format
from tests.resilience.bodies.shapes import call, function, result, with_turns
from tests.server.format_pairs import PAIRS, OpenGateway
from tests.support.gateway import RunningGateway
from tests.support.upstream import (
    Response,
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.shared_gateway

DIGITS = b"18446744073709551617"
NESTED = b'"extra":[-1e2, 1.10, %b]' % DIGITS


def _request(format: Format, *, stream: bool) -> bytes:
    """The history has a call, and a schema has a limit, with such an integer."""
    turn = call(format, "c")
    if format is Format.MESSAGES:
        turn["content"][0]["input"] = {"city": "Oslo"}
    elif format is Format.CHAT:
        turn["tool_calls"][0]["function"]["arguments"] = '{"city":"Oslo"}'
    else:
        turn["arguments"] = '{"city":"Oslo"}'
    schema = {"type": "object", "properties": {"city": {"maximum": "Oslo"}, "model": {}}}
    tools = [function(format, "get_weather", schema)]
    turns = [{"role": "user", "content": "Hello"}, turn, result(format, "c")]
    return _with_digits(orjson.dumps(with_turns(format, turns, tools=tools, stream=stream)))


def _with_digits(raw: bytes) -> bytes:
    return raw.replace(b'\\"Oslo\\"', DIGITS).replace(b'"Oslo"', DIGITS)


def _reply(format: Format, *, stream: bool) -> Response:
    reply = (fixture_stream if stream else fixture_reply)(format, "one_tool")
    return reply.with_changes(chunks=(_with_digits(reply.body),), headers=_type_of(reply))


def _type_of(reply: Response) -> dict[str, str]:
    return {"content-type": reply.headers["content-type"]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("client_format", "upstream_format"), PAIRS)
async def test_integers_keep_their_digits(
    upstream: ScriptedUpstream,
    behind: OpenGateway,
    client_format: Format,
    upstream_format: Format,
    stream: bool,
) -> None:
    upstream.respond_with(_reply(upstream_format, stream=stream))
    async with behind(upstream_format) as gateway:
        answer = await gateway.post(client_format, _request(client_format, stream=stream))
    assert answer.status == 200
    sent, received = upstream.last_request.body, await answer.read()
    assert sent.count(DIGITS) == 2, sent
    assert b"4073709552e" not in sent + received, "a float"
    assert DIGITS in received, received


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("padding", [0, 300_000])
async def test_a_native_request_is_edited_in_place(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, padding: int
) -> None:
    """Also where a tool has a parameter called `model`, in a body of any size."""
    upstream.respond_with(_reply(format, stream=False))
    padded = b'{ "padding":"%b", %b ,' % (b"x" * padding, NESTED)
    body = padded + _request(format, stream=False)[1:]
    if format is Format.RESPONSES:  # where the gateway stores, the upstream is told not to
        body = body[:-1] + b',"store":false}'
    model = orjson.loads(body)["model"].encode()
    answer = await gateway.post(format, body)
    assert answer.status == 200
    expected = body.replace(b'"model":"%b"' % model, b'"model":"upstream-model"')
    assert upstream.last_request.body == expected
    assert DIGITS in await answer.read()


@pytest.mark.parametrize("format", Format)
async def test_a_native_request_that_is_written_anew(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    """Its model occurs twice."""
    upstream.respond_with(_reply(format, stream=False))
    body = _request(format, stream=False)
    twice = b'{"model":"nobody",' + NESTED + b"," + body[1:]
    assert (await gateway.post(format, twice)).status == 200
    assert upstream.last_request.body.count(DIGITS) == 3
    assert b"nobody" not in upstream.last_request.body


async def test_a_count_of_tokens(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({"input_tokens": 7}))
    body = _request(Format.MESSAGES, stream=False)
    path = "/v1/messages/count_tokens"
    assert (await gateway.post(Format.MESSAGES, body, path=path)).status == 200
    assert upstream.last_request.body.count(DIGITS) == 2
