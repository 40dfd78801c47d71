"""Bytes that are no sound HTTP: an envelope of ours or a closed connection, and nothing reflected.

Each case is sent over a raw socket. What aiohttp would say by itself (a text page that repeats the
input, a traceback in the log) must never be seen.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterable
from dataclasses import dataclass

import orjson
import pytest

from gateway.core.formats import Format
from gateway.server.record.exchange import Exchange
from tests.support.gateway import RunningGateway, request_body
from tests.support.timing import SLACK
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = pytest.mark.shared_gateway

CANARY = b"canary7"
BODY = orjson.dumps(request_body(Format.CHAT))
POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def request(*fields: bytes, body: bytes = b"", host: bytes | None = b"gateway.test") -> bytes:
    """A POST with a valid key; `KEY` stands for it."""
    lines = [b"host: " + host] if host is not None else []
    lines += [b"authorization: Bearer KEY", b"content-type: application/json", *fields]
    return POST + b"\r\n".join(lines) + b"\r\n\r\n" + body


def sized(size: bytes, *fields: bytes) -> bytes:
    return request(b"content-length: " + size, *fields, body=BODY)


SIZE = str(len(BODY)).encode()
REFUSED = {
    "content-length with chunked": sized(SIZE, b"transfer-encoding: chunked"),
    "two lengths that differ": sized(SIZE, b"content-length: 4"),
    "two lengths alike": sized(SIZE, b"content-length: " + SIZE),
    "a signed length": sized(b"+" + SIZE),
    "a list of lengths": sized(SIZE + b", " + SIZE),
    "a length of letters": sized(b"0x10"),
    "a negative length": sized(b"-1"),
    "a coding of another name": request(b"transfer-encoding: xchunked", body=CHUNKED),
    "chunked twice": request(b"transfer-encoding: chunked, chunked", body=CHUNKED),
    "chunked in two headers": request(
        b"transfer-encoding: chunked", b"transfer-encoding: chunked", body=CHUNKED
    ),
    "identity and chunked": request(b"transfer-encoding: identity, chunked", body=CHUNKED),
    "chunked, then gzip": request(b"transfer-encoding: chunked, gzip", body=CHUNKED),
    "a space before the colon": sized(SIZE, b"x-odd : canary7"),
    "a folded header": sized(SIZE, b"x-odd: a\r\n canary7"),
    "a header without a colon": sized(SIZE, b"canary7"),
    "no host": request(b"content-length: " + SIZE, body=BODY, host=None),
    "two hosts": sized(SIZE, b"host: canary7"),
    "a chunk that is too large to be": request(
        b"transfer-encoding: chunked", body=b"F" * 20 + b"\r\n{}"
    ),
    "a chunk of no size": request(b"transfer-encoding: chunked", body=b"canary7\r\n{}\r\n"),
    "a zero byte in a header": sized(SIZE, b"x-odd: can\x00ary7"),
    "a header of 9,000 bytes": sized(SIZE, b"x-odd: " + b"canary7" * 1286),
    "an address of 9,000 bytes": b"GET /" + b"canary7" * 1286 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    "HTTP/2.0": b"GET /canary7 HTTP/2.0\r\nhost: x\r\n\r\n",
    "HTTP/1.7": b"GET /canary7 HTTP/1.7\r\nhost: x\r\n\r\n",
    "HTTP/0.9": b"GET /canary7\r\n\r\n",
    "the opening of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100a50100009f0303") + CANARY * 22 + b"\r\n\r\n",
    "an unknown method": b"CANARY7 / HTTP/1.1\r\nhost: x\r\n\r\n",
    "garbage before the request": CANARY + b"\x01\x02\r\n" + sized(SIZE),
    "an unknown coding": sized(SIZE, b"content-encoding: canary7"),
}


async def converse(gateway: RunningGateway, data: bytes, *, patience: float = 0.25) -> list[Answer]:
    """All answers to these bytes until the gateway or, `patience` seconds after the last of them,
    we hang up."""
    host, port = gateway.daemon.listener.addresses[0]
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(data.replace(b"KEY", gateway.key.encode()))
        async with asyncio.timeout(SLACK):
            came = await _read_answers(reader, patience)
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    return came


async def _read_answers(reader: asyncio.StreamReader, patience: float = 0.25) -> list[Answer]:
    answers: list[Answer] = []
    while True:
        try:
            async with asyncio.timeout(patience if answers else 2):
                head = await reader.readuntil(b"\r\n\r\n")
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            return answers
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        answers.append(Answer(int(first.split(" ")[1]), headers, body))


def assert_ours(answers: Iterable[Answer], caplog: pytest.LogCaptureFixture) -> None:
    for answer in answers:
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.headers["request-id"] == answer.headers["x-request-id"]
        assert set(orjson.loads(answer.body)) <= {"type", "error", "request_id"}
        text = answer.body + repr(answer.headers).encode()
        assert CANARY not in text.lower()
        assert b"Traceback" not in text
    assert not [record for record in caplog.records if record.exc_info], caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.INFO], caplog.text


@pytest.mark.parametrize("case", REFUSED)
async def test_refused(
    gateway: RunningGateway, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    caplog.set_level(logging.INFO)
    upstream.respond_with(fixture_reply("chat"))
    answers = await converse(gateway, REFUSED[case])
    assert_ours(answers, caplog)
    assert len(answers) <= 1, "the connection is closed after the first answer"
    assert all(answer.status in (400, 415) for answer in answers)
    assert not upstream.requests, "nothing of it reaches an upstream"
    assert CANARY.decode() not in caplog.text.lower()


@pytest.mark.parametrize("case", ["identity and chunked", "HTTP/2.0", "a folded header"])
async def test_the_error_has_the_combined_format(gateway: RunningGateway, case: str) -> None:
    (answer,) = await converse(gateway, REFUSED[case])
    assert answer.status == 400
    body = orjson.loads(answer.body)
    assert body["error"]["message"] == "Malformed HTTP request"
    assert answer.headers["x-should-retry"] == "false"


async def test_smuggled_requests_are_not_served(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """Request smuggling: a second request in the body of one with ambiguous framing."""
    upstream.respond_with(fixture_reply("chat"))
    hidden = sized(SIZE)
    for fields in (
        (b"content-length: 6", b"transfer-encoding: chunked"),
        (b"transfer-encoding: xchunked",),
        (b"transfer-encoding: identity, chunked",),
        (b"content-length: 0", b"content-length: 5"),
    ):
        answers = await converse(gateway, request(*fields, body=b"0\r\n\r\n" + hidden))
        assert all(answer.status == 400 for answer in answers)
        assert len(answers) <= 1
    assert not upstream.requests


async def test_bare_line_feeds(gateway: RunningGateway, caplog: pytest.LogCaptureFixture) -> None:
    answers = await converse(gateway, sized(SIZE).replace(b"\r\n", b"\n"))
    assert_ours(answers, caplog)
    assert all(answer.status == 400 for answer in answers)


async def test_many_headers(gateway: RunningGateway, caplog: pytest.LogCaptureFixture) -> None:
    fields = [b"x-%d: canary7" % number for number in range(200)]
    answers = await converse(gateway, sized(SIZE, *fields).replace(b"KEY", b"sk-no"))
    assert_ours(answers, caplog)
    assert all(answer.status in (400, 401) for answer in answers)


async def test_a_body_that_is_promised_and_waited_for(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    expecting = sized(SIZE, b"expect: 100-continue")
    answers = await converse(gateway, expecting)
    assert [answer.status for answer in answers] == [100, 200]


async def test_an_unknown_expectation(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    answers = await converse(gateway, sized(SIZE, b"expect: canary7"))
    assert_ours(answers, caplog)
    assert all(answer.status in (400, 417) for answer in answers)


async def test_pipelined_requests_are_answered_in_order(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    pipelined = sized(SIZE) + sized(SIZE, b"connection: close")
    answers = await converse(gateway, pipelined, patience=5)
    assert [answer.status for answer in answers] == [200, 200]
    assert len({answer.headers["request-id"] for answer in answers}) == 2


async def test_the_absolute_form(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    """The address in the request line is no destination."""
    upstream.respond_with(fixture_reply("chat"))
    absolute = sized(SIZE).replace(b"POST /v1", b"POST http://evil.test/v1", 1)
    answers = await converse(gateway, absolute)
    assert [answer.status for answer in answers] in ([200], [400], [404])
    assert all(seen.headers["host"] == f"127.0.0.1:{upstream.port}" for seen in upstream.requests)


async def test_an_upgrade_to_cleartext_http2_is_ignored(
    gateway: RunningGateway, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    fields = (b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAMAAABk")
    answers = await converse(gateway, sized(SIZE, *fields))
    assert [answer.status for answer in answers] in ([200], [400])
    assert not [record for record in caplog.records if record.exc_info], caplog.text


async def test_the_connection_survives_an_error(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    wrong = request(b"content-length: 2", body=b"[]")
    answers = await converse(gateway, wrong + sized(SIZE))
    assert [answer.status for answer in answers] == [400, 200]


async def test_a_body_that_is_not_read_does_not_become_a_request(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """The error is sent before the body is read; the body is no request."""
    upstream.respond_with(fixture_reply("chat"))
    smuggled = sized(SIZE).replace(b"KEY", gateway.key.encode())
    stranger = request(b"content-length: %d" % len(smuggled)).replace(b"KEY", b"sk-no")
    answers = await converse(gateway, stranger + smuggled)
    assert [answer.status for answer in answers] == [401]
    assert not upstream.requests


async def test_an_idle_connection_keeps_no_exchange(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """What a request was about is gone once it is answered: clients stay connected for long."""
    upstream.respond_with(fixture_reply("chat"))
    reader, writer = await asyncio.open_connection(*gateway.daemon.listener.addresses[0])
    try:
        writer.write(sized(SIZE, b"user-agent: canary7").replace(b"KEY", gateway.key.encode()))
        (answer,) = await _read_answers(reader)
        assert answer.status == 200
        gc.collect()
        exchanges = (each for each in gc.get_objects() if isinstance(each, Exchange))
        assert not [each.id for each in exchanges if each.user_agent == CANARY.decode()]
    finally:
        writer.close()
        await writer.wait_closed()
