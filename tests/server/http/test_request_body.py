"""Request bodies: limits, kinds and the many ways in which JSON can be none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.wire.json.limits import (
    MAX_ESCAPES,
    MAX_NAMES,
    MAX_NON_ASCII,
    MAX_UNQUOTED,
    MAX_VALUES,
)
from tests.resilience.bodies.shapes import agent_session
from tests.support.gateway import (
    ALPHA,
    PATHS,
    RunningGateway,
    channel,
    channels,
    request_body,
    run_gateway,
)
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = pytest.mark.shared_gateway

CHAT = orjson.dumps(request_body(Format.CHAT))
DEEP = 100_000


def _with(value: bytes) -> bytes:
    return CHAT[:-1] + b',"extra":' + value + b"}"


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"", "line 1 column 1"),
        (b"{", "(line 1"),
        (b'{"model":\n  "beta-5.4",\n}', "(line 2 column 13)"),
        (b'{"a":1}{"b":2}', "not valid JSON"),
        (b"\xff\xfe{\x00}\x00", "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (_with(b"NaN"), "not valid JSON"),
        (_with(b"Infinity"), "not valid JSON"),
        (_with(b'"\x00"'), "not valid JSON"),
        (_with(b"[" * DEEP + b"]" * DEEP), "not valid JSON"),
        (_with(b'{"a":' * DEEP + b"1" + b"}" * DEEP), "not valid JSON"),
    ],
    ids=lambda value: repr(value[:30]),
)
async def test_no_json(gateway: RunningGateway, body: bytes, part: str) -> None:
    answer = await gateway.post(Format.CHAT, body)
    assert answer.status == 400
    error = (await answer.json())["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_json")
    assert part in error["message"]
    assert (await gateway.row()).error_code == "invalid_json"


@pytest.mark.parametrize("format", Format)
async def test_json_but_no_object(gateway: RunningGateway, format: Format) -> None:
    for body in (b"[]", b"null", b"1", b'"model"', b"true", b'[{"model":"x"}]'):
        answer = await gateway.post(format, body)
        assert answer.status == 400
        error = (await answer.json())["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"] == "body: Input should be a JSON object"


async def test_of_a_key_that_stands_twice_the_last_value_counts(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    assert (await gateway.post(Format.CHAT, _with(b'1,"model":"nobody"'))).status == 503
    assert (await gateway.post(Format.CHAT, _with(b'1,"extra":2'))).status == 200
    assert upstream.last_request.json["extra"] == 2


@pytest.mark.parametrize("number", [b"1180591620717411303424", b"-1e400", b"1e400", b"9" * 400])
async def test_huge_numbers_break_nothing(
    gateway: RunningGateway, upstream: ScriptedUpstream, number: bytes
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    answer = await gateway.post(Format.CHAT, _with(number))
    assert answer.status in (200, 400)
    limited = await gateway.post(Format.CHAT, CHAT[:-1] + b',"max_tokens":' + number + b"}")
    assert limited.status == 400


@pytest.mark.parametrize("format", Format)
async def test_nesting_that_parses_but_cannot_be_written_is_rejected(
    gateway: RunningGateway, format: Format
) -> None:
    """orjson reads deeper than it writes. A body has to be written where its key for the model
    stands twice."""
    twice = b',"model":' + orjson.dumps(request_body(format)["model"])
    answer = await gateway.post(format, _nested(format)[:-1] + twice + b"}")
    assert answer.status == 400
    assert (await answer.json())["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("format", Format)
async def test_nesting_that_need_not_be_written_passes(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_reply(format))
    answer = await gateway.post(format, _nested(format))
    assert answer.status == 200
    assert upstream.last_request.body.endswith(b"[" * 600 + b"]" * 600 + b"}")


def _nested(format: Format) -> bytes:
    return orjson.dumps(request_body(format))[:-1] + b',"extra":' + b"[" * 600 + b"]" * 600 + b"}"


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON; charset=utf-8", "application/json;charset=UTF-8"],
)
async def test_accepted_kinds(
    gateway: RunningGateway, upstream: ScriptedUpstream, kind: str
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    assert (await gateway.post(Format.CHAT, headers={"content-type": kind})).status == 200
    assert upstream.last_request.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/jsonlines"},
        {"content-type": ""},
        {"content-encoding": "compress"},
        {"content-encoding": "gzip, gzip"},
        {"content-encoding": ""},
    ],
    ids=repr,
)
async def test_other_kinds(gateway: RunningGateway, headers: dict[str, str]) -> None:
    for format in Format:
        answer = await gateway.post(format, CHAT, headers=headers)
        assert answer.status == 415
        assert answer.headers["accept-encoding"] == "gzip, deflate, br, zstd"
        assert (await answer.json())["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("format", Format)
async def test_too_large(upstream: ScriptedUpstream, tmp_path: Path, format: Format) -> None:
    upstream.respond_with(fixture_reply(format))
    async with run_gateway(
        tmp_path, channels(upstream.address), server={"max_body": 4096}
    ) as gateway:
        fits = request_body(format, metadata={"pad": "x" * 3000})
        assert (await gateway.post(format, fits)).status == 200
        large = orjson.dumps(request_body(format, metadata={"pad": "x" * 9000}))

        async def in_chunks() -> Any:
            for start in range(0, len(large), 1000):
                yield large[start : start + 1000]

        headers = {"authorization": f"Bearer {gateway.key}", "content-type": "application/json"}
        headers["anthropic-version"] = "2023-06-01"
        for data in (large, in_chunks()):
            async with gateway.http.post(PATHS[format], data=data, headers=headers) as answer:
                assert answer.status == 413
                error = (await answer.json())["error"]
                assert error["message"] == "Request entity too large"
                assert answer.headers["x-should-retry"] == "false"
                if format is Format.MESSAGES:
                    assert error["type"] == "request_too_large"
                else:
                    assert error["code"] == "request_too_large"
    assert len(upstream.requests) == 1


async def test_more_than_the_framework_would_take_by_default(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    body = request_body(Format.CHAT)
    body["messages"][0]["content"] = "x" * (3 * 2**20)
    written = orjson.dumps(body)
    assert (await gateway.post(Format.CHAT, written)).status == 200
    assert (await gateway.row()).bytes_in == len(written)
    assert upstream.last_request.json["messages"] == body["messages"]


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (lambda: b"[" + b"[]," * MAX_VALUES + b"[]]", "200,000 values"),
        (lambda: b'{"%b":1}' % (b"n" * MAX_NAMES + b"n"), "4,194,304 bytes in the names"),
        (lambda: b'"\xc3\xa9%b"' % (b"a" * MAX_NON_ASCII), "16,777,216 bytes in strings"),
        (lambda: b'"%b"' % (b"\\n" * (MAX_ESCAPES + 1)), "4,000,000 escaped characters"),
        (lambda: b" " * (MAX_UNQUOTED + 1) + b"1", "8,388,608 bytes outside of strings"),
    ],
    ids=["lists", "names", "wide", "escapes", "spaces"],
)
async def test_bodies_that_would_stall_the_parser(
    gateway: RunningGateway, value: Callable[[], bytes], limit: str
) -> None:
    answer = await gateway.post(Format.CHAT, _with(value()))
    assert answer.status == 400
    error = (await answer.json())["error"]
    assert error["message"].startswith(f"body: it has more than {limit}")
    assert error["param"] == "body"


@pytest.mark.slow("sends bodies of many megabytes")
@pytest.mark.large
@pytest.mark.parametrize("format", Format)
async def test_the_largest_requests_of_agents_pass(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_reply(format))
    session = agent_session(format, turns=2000, tools=500, image_bytes=30 * 2**20)
    session["messages" if "messages" in session else "input"][0]["content"] = "1,2,\u00e9\n" * 2**20
    assert (await gateway.post(format, session)).status == 200
    assert upstream.last_request.json["tools"] == session["tools"]


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("upstream_format", Format)
async def test_halves_of_emoji_are_replaced_and_named(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, upstream_format: Format
) -> None:
    """In a history they would reject every further request. Both lanes; escaped and encoded."""
    upstream.respond_with(fixture_reply(upstream_format))
    body = orjson.dumps(request_body(format, model=ALPHA))
    async with run_gateway(tmp_path, [channel(upstream_format, upstream.address)]) as gateway:
        for half in (b"\\ud83d", b"\xed\xa0\xbd"):
            text = b"a\\\\ud83d \\ud83d\\ude00 %b" % half
            answer = await gateway.post(format, body.replace(b"Hello", text))
            assert answer.status == 200, await answer.text()
            assert answer.headers["x-gateway-dropped"] == "lone_surrogate"
            sent = str(upstream.last_request.json)
            assert "a\\\\ud83d \U0001f600 \ufffd" in sent
            strict = await gateway.post(
                format, body.replace(b"Hello", half), headers={"x-gateway-strict": "1"}
            )
            assert strict.status == 400
        rows = await gateway.rows(4)
        assert {row.dropped for row in rows if row.status == 200} == {"lone_surrogate"}
