"""Every scenario does on the wire what its name promises, in all three formats."""

from __future__ import annotations

import asyncio
import gzip
import inspect
import time
import zlib
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from tests.resilience.faults import sample_replies
from tests.resilience.faults.chunking import SHAPES
from tests.resilience.faults.error_bodies import STREAM_ONLY
from tests.resilience.faults.requests import ask, ask_on, encode_request
from tests.resilience.faults.sample_replies import Place, frame_data, is_content, stream_frames
from tests.resilience.faults.scenario_registry import SCENARIOS
from tests.resilience.faults.upstream import FaultUpstream
from tests.support.raw_client import BrokenHead, End, raw_client

formats = pytest.mark.parametrize("format", list(Format))
streamed = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])

EVENT_STREAM = "text/event-stream"
OPENERS = {
    Format.CHAT: "chat.completion.chunk",
    Format.MESSAGES: "message_start",
    Format.RESPONSES: "response.created",
}


def fixture(format: Format, stream: bool = True, case: str = "text") -> bytes:
    return sample_replies.reply(format, stream, case).body


def before(format: Format, place: Place, stream: bool = True) -> bytes:
    return b"".join(sample_replies.reply(format, stream).until(place))


def frames(body: bytes) -> list[bytes]:
    return [frame + b"\n\n" for frame in body.split(b"\n\n") if frame]


def kinds(body: bytes) -> list[str]:
    """What the frames are, by their own words."""
    datas = [frame_data(frame) for frame in frames(body)]
    return [data.get("type") or data.get("object") or "error" * ("error" in data) for data in datas]


def texts_of(format: Format, body: bytes) -> list[str]:
    """The pieces of the text of a stream that is as it should be: opened and closed as the fixture,
    numbered without a gap, and its text repeated where the format repeats it."""
    datas = [frame_data(frame) for frame in frames(body)]
    model = kinds(fixture(format))
    begun = sample_replies.reply(format, True).marks[Place.OPENING]
    rest = len(model) - begun - 3
    assert kinds(body)[:begun] == model[:begun]
    assert kinds(body)[-rest:] == model[-rest:]
    events = datas[begun:-rest]
    match format:
        case Format.CHAT:
            return [data["choices"][0]["delta"]["content"] for data in events]
        case Format.MESSAGES:
            return [data["delta"]["text"] for data in events]
        case Format.RESPONSES:
            assert [data["sequence_number"] for data in datas] == list(range(len(datas)))
            text = "".join(data["delta"] for data in events)
            assert datas[-rest]["text"] == text
            assert datas[-1]["response"]["output"][0]["content"][0]["text"] == text
            return [data["delta"] for data in events]


def test_every_scenario_has_a_docstring() -> None:
    assert [name for name, play in SCENARIOS.items() if not inspect.getdoc(play)] == []


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_is_tested_here(name: str) -> None:
    here = inspect.getsource(inspect.getmodule(fixture))  # type: ignore[arg-type]  # it is in a module
    assert f'"{name}' in here


@formats
@streamed
async def test_ok_sends_the_fixture(upstream: FaultUpstream, format: Format, stream: bool) -> None:
    answer = await ask(upstream, "ok", format, stream=stream)
    assert (answer.status, answer.complete, answer.end) == (200, True, End.OPEN)
    assert answer.body == fixture(format, stream)
    assert answer.headers["content-type"] == (EVENT_STREAM if stream else "application/json")
    answer = await ask(upstream, "ok:one_tool", format, stream=stream)
    assert answer.body == fixture(format, stream, "one_tool")


@formats
@pytest.mark.parametrize("shape", sorted(SHAPES))
async def test_ok_in_any_shape(upstream: FaultUpstream, format: Format, shape: str) -> None:
    body = (await ask(upstream, f"ok:text_unicode:{shape}", format)).body
    plain = fixture(format, case="text_unicode")
    match shape:
        case "frame" | "one" | "byte":
            assert body == plain
        case "crlf" | "crlf_byte":
            assert body == plain.replace(b"\n", b"\r\n")
        case "cr":
            assert body == plain.replace(b"\n", b"\r")
        case "bom":
            assert body == b"\xef\xbb\xbf" + plain
        case "comments":
            assert body.replace(b": still here\n\n", b"") == plain != body
        case "no_space":
            assert body == plain.replace(b"data: ", b"data:")
        case "no_events":
            assert b"event:" not in body
            assert body.count(b"data:") == plain.count(b"data:")
        case "no_blank":
            assert body + b"\n" == plain
        case _:
            raise AssertionError("a shape that nobody has looked at")


@streamed
@pytest.mark.parametrize("plan", ["slow:0.1", "ok:delay=0.1", "stall:head:0.1"])
async def test_a_slow_head(upstream: FaultUpstream, plan: str, stream: bool) -> None:
    async with raw_client(upstream.address) as client:
        await client.send(encode_request(upstream, plan, stream=stream))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.receive()
        assert (await client.answer()).body == fixture(Format.MESSAGES, stream)


@formats
@streamed
@pytest.mark.parametrize("place", list(Place))
async def test_stall_is_silence_from_a_place(
    upstream: FaultUpstream, format: Format, stream: bool, place: Place
) -> None:
    async with raw_client(upstream.address) as client:
        await client.send(encode_request(upstream, f"stall:{place.value}", format, stream=stream))
        call = await upstream.wait_for_request()
        if place is not Place.HEAD:
            await client.receive_until(b"\r\n\r\n")
        expected = len(before(format, place, stream))
        async with asyncio.timeout(5):
            while call.answer.sent < expected:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.005)
        assert (call.answer.sent, call.answered_at) == (expected, None)


@formats
@streamed
async def test_stall_may_end(upstream: FaultUpstream, format: Format, stream: bool) -> None:
    answer = await ask(upstream, "stall:text:0.02", format, stream=stream)
    assert answer.body == fixture(format, stream)


@formats
async def test_places_match_their_names(format: Format) -> None:
    reply = sample_replies.reply(format, True)
    assert kinds(reply.body)[0] == OPENERS[format]
    assert reply.until(Place.BEGUN) == reply.chunks[:1]
    assert not any(map(is_content, reply.until(Place.OPENING)))
    assert [is_content(frame) for frame in reply.until(Place.TEXT)][-2:] == [True, True]
    assert any(map(is_content, reply.after(Place.TEXT)))
    assert not any(map(is_content, reply.after(Place.END)))
    ends = {"chat": b'"stop"', "messages": b"message_delta", "responses": b"response.completed"}
    assert ends[format] in reply.after(Place.END)[0]
    assert ends[format] not in b"".join(reply.until(Place.END))


@formats
async def test_tick_sends_at_intervals(upstream: FaultUpstream, format: Format) -> None:
    began = time.monotonic()
    answer = await ask(upstream, "tick:0.02:5:size=20", format)
    assert time.monotonic() - began >= 0.1
    assert texts_of(format, answer.body) == [
        f"word {number} ".ljust(20, "-") for number in range(5)
    ]


async def test_tick_of_a_body_sends_blanks_first(upstream: FaultUpstream) -> None:
    answer = await ask(upstream, "tick:0.001:5", stream=False)
    assert answer.body == b" " * 5 + fixture(Format.MESSAGES, False)


@formats
@streamed
async def test_tick_never_ends(upstream: FaultUpstream, format: Format, stream: bool) -> None:
    async with raw_client(upstream.address) as client:
        await client.send(encode_request(upstream, "tick:0:size=1000", format, stream=stream))
        await client.receive_bytes(100_000)
    assert upstream.requests[0].answer.sent > 90_000


@formats
@streamed
@pytest.mark.parametrize(
    ("framing", "end"),
    [
        ("chunked", End.EOF),
        ("length", End.EOF),
        ("fin", End.EOF),
        ("reset", End.RESET),
        ("reset_length", End.RESET),
        ("reset_close", End.RESET),
    ],
)
async def test_cut_breaks_off(
    upstream: FaultUpstream, format: Format, stream: bool, framing: str, end: End
) -> None:
    answer = await ask(upstream, f"cut:text:{framing}", format, stream=stream)
    assert (answer.status, answer.complete, answer.end) == (200, False, end)
    assert answer.body == before(format, Place.TEXT, stream)
    assert ("content-length" in answer.headers) is ("length" in framing)
    assert ("transfer-encoding" in answer.headers) is (framing in ("chunked", "reset"))


@streamed
async def test_cut_may_garble_the_next_bytes(upstream: FaultUpstream, stream: bool) -> None:
    async with raw_client(upstream.address) as client:
        await client.send(encode_request(upstream, "cut:text:garbled", stream=stream))
        received = await client.receive_all()
    assert received.endswith(b"\r\nzz\r\n")
    assert sample_replies.reply(Format.MESSAGES, stream).until(Place.TEXT)[-1] in received


@pytest.mark.parametrize("place", [place for place in Place if place is not Place.HEAD])
async def test_cut_breaks_off_at_every_place(upstream: FaultUpstream, place: Place) -> None:
    answer = await ask(upstream, f"cut:{place.value}")
    assert answer.body == before(Format.MESSAGES, place)


@pytest.mark.parametrize(
    ("plan", "end", "came"),
    [
        ("hangup", End.EOF, b""),
        ("hangup:reset", End.RESET, b""),
        ("cut:head", End.EOF, b""),
        ("cut:head:reset", End.RESET, b""),
        ("hangup:status", End.EOF, b"HTTP/1"),
        ("hangup:head", End.EOF, b"HTTP/1.1 200 OK\r\nconte"),
    ],
)
async def test_hangup_sends_nothing_complete(
    upstream: FaultUpstream, plan: str, end: End, came: bytes
) -> None:
    with pytest.raises(BrokenHead) as broken:
        await ask(upstream, plan)
    result, rest = broken.value.args
    assert (result, rest) == (end, came)
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(("plan", "seconds"), [("stale", 0.0), ("stale:close:0.1", 0.1)])
@streamed
async def test_stale_closes_a_kept_connection(
    upstream: FaultUpstream, plan: str, seconds: float, stream: bool
) -> None:
    async with raw_client(upstream.address) as client:
        answer = await ask_on(client, upstream, plan, stream=stream)
        answered = time.monotonic()
        assert (answer.complete, answer.headers.get("connection")) == (True, None)
        await client.receive_all()
        assert client.ended is End.EOF
        assert seconds <= time.monotonic() - answered < seconds + 1


async def test_stale_with_a_delay_answers_before(upstream: FaultUpstream) -> None:
    async with raw_client(upstream.address) as client:
        assert (await ask_on(client, upstream, "stale:close:1")).status == 200
        assert (await ask_on(client, upstream, "stale:close:1")).status == 200


@pytest.mark.parametrize(("how", "end"), [("next", End.EOF), ("reset", End.RESET)])
async def test_stale_dies_under_the_next_request(
    upstream: FaultUpstream, how: str, end: End
) -> None:
    async with raw_client(upstream.address) as client:
        assert (await ask_on(client, upstream, f"stale:{how}")).status == 200
        with pytest.raises(BrokenHead) as broken:
            await ask_on(client, upstream, f"stale:{how}")
    assert broken.value.args == (end, b"")
    assert (await ask(upstream, f"stale:{how}")).status == 200


STATUSES = [400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 504, 524, 529]


@formats
async def test_refuse_uses_the_format_of_the_request(
    upstream: FaultUpstream, format: Format
) -> None:
    outer, inner = {"error"}, {"type", "message", "param", "code"}
    if format is Format.MESSAGES:
        outer, inner = {"type", "error", "request_id"}, {"type", "message"}
    for status in STATUSES:
        answer = await ask(upstream, f"refuse:{status}", format)
        assert (answer.status, answer.end) == (status, End.OPEN)
        body = orjson.loads(answer.body)
        assert (set(body), set(body["error"])) == (outer, inner)
        assert not any("retry" in name or "ratelimit" in name for name in answer.headers)


async def test_refuse_with_other_texts(upstream: FaultUpstream) -> None:
    body = orjson.loads((await ask(upstream, "refuse:500:context", Format.CHAT)).body)
    assert body["error"]["code"] == "context_length_exceeded"
    body = orjson.loads((await ask(upstream, "refuse:400:credit")).body)
    assert "credit balance is too low" in body["error"]["message"]
    body = orjson.loads((await ask(upstream, "refuse:400:leak", key="key-of-ours")).body)
    assert "key-of-ours" in body["error"]["message"]


@pytest.mark.parametrize(
    ("dress", "kind", "body"),
    [
        ("plain", "text/plain", b"Overloaded"),
        ("detail", "application/json", b'{"detail":"Overloaded"}'),
        ("message", "application/json", b'{"message":"Overloaded"}'),
        ("string", "application/json", b'{"error":"Overloaded"}'),
        ("empty", "application/json", b""),
    ],
)
async def test_refuse_with_another_body(
    upstream: FaultUpstream, dress: str, kind: str, body: bytes
) -> None:
    answer = await ask(upstream, f"refuse:503:overloaded:{dress}")
    assert (answer.headers["content-type"], answer.body) == (kind, body)


async def test_refuse_with_html_or_another_format(upstream: FaultUpstream) -> None:
    answer = await ask(upstream, "refuse:503:overloaded:html")
    assert answer.headers["content-type"].startswith("text/html")
    assert b"<title>503 Overloaded</title>" in answer.body
    answer = await ask(upstream, "refuse:503:overloaded:chat")
    assert orjson.loads(answer.body)["error"]["code"] == "server_is_overloaded"
    answer = await ask(upstream, "refuse:503:overloaded:messages", Format.CHAT)
    assert orjson.loads(answer.body)["error"]["type"] == "overloaded_error"


@formats
async def test_refuse_with_retry_hints(upstream: FaultUpstream, format: Format) -> None:
    async def hinted(hint: str) -> Any:
        return await ask(upstream, f"refuse:429:{hint}", format)

    now = time.time()
    assert (await hinted("seconds=7")).headers["retry-after"] == "7"
    assert (await hinted("seconds=0.5")).headers["retry-after"] == "0.5"
    assert (await hinted("ms=1500")).headers["retry-after-ms"] == "1500"
    date = (await hinted("date=20")).headers["retry-after"]
    moment = time.mktime(time.strptime(date, "%a, %d %b %Y %H:%M:%S GMT")) - time.timezone
    assert now + 19 <= moment <= now + 22
    error = orjson.loads((await hinted("body=90")).body)["error"]
    assert error["resets_in_seconds"] == 90
    assert abs(error["resets_at"] - now - 90) <= 2
    error = orjson.loads((await hinted("text=20")).body)["error"]
    assert error["message"].endswith("try again in 20s.")
    both = (await hinted("seconds=3:ms=2900")).headers
    assert (both["retry-after"], both["retry-after-ms"]) == ("3", "2900")


async def test_refuse_with_the_vendors_rate_limits(upstream: FaultUpstream) -> None:
    chat = (await ask(upstream, "refuse:429:reset=361", Format.CHAT)).headers
    assert chat["x-ratelimit-reset-tokens"] == "6m1s"
    assert chat["x-ratelimit-remaining-tokens"] == "0"
    assert chat["x-ratelimit-reset-requests"] == "1s"
    assert chat["x-ratelimit-remaining-requests"] == "12"
    chat = (await ask(upstream, "refuse:429:reset=0.25", Format.CHAT)).headers
    assert chat["x-ratelimit-reset-tokens"] == "250ms"
    alpha = (await ask(upstream, "refuse:429:reset=361")).headers
    assert alpha["anthropic-ratelimit-tokens-reset"].endswith("Z")
    assert alpha["anthropic-ratelimit-tokens-remaining"] == "0"
    assert alpha["anthropic-ratelimit-requests-remaining"] == "12"


async def test_refuse_with_a_subscriptions_window(upstream: FaultUpstream) -> None:
    now = time.time()
    alpha = (await ask(upstream, "refuse:429:window=3600")).headers
    assert abs(int(alpha["anthropic-ratelimit-unified-reset"]) - now - 3600) <= 2
    assert alpha["anthropic-ratelimit-unified-status"] == "rejected"
    chat = (await ask(upstream, "refuse:429:window=3600", Format.CHAT)).headers
    assert abs(int(chat["x-ratelimit-reset"]) / 1000 - now - 3600) <= 2
    responses = (await ask(upstream, "refuse:429:window=3600", Format.RESPONSES)).headers
    assert responses["x-codex-primary-reset-after-seconds"] == "3600"


@formats
@pytest.mark.parametrize("place", [Place.START, Place.BEGUN, Place.OPENING, Place.TEXT, Place.END])
async def test_error_within_a_stream(upstream: FaultUpstream, format: Format, place: Place) -> None:
    answer = await ask(upstream, f"error:{place.value}", format)
    assert (answer.status, answer.complete) == (200, True)
    assert answer.body.startswith(before(format, place))
    (last,) = frames(answer.body.removeprefix(before(format, place)))
    data = frame_data(last)
    match format:
        case Format.CHAT:
            assert data["error"]["code"] == "server_is_overloaded"
        case Format.MESSAGES:
            assert last.startswith(b"event: error\n")
            assert data["error"]["type"] == "overloaded_error"
        case Format.RESPONSES if place is Place.START:
            assert data["type"] == "error"
            assert data["code"] == "server_is_overloaded"
        case Format.RESPONSES:
            assert data["type"] == "response.failed"
            assert data["response"]["error"]["code"] == "server_is_overloaded"
            assert data["sequence_number"] == len(frames(answer.body)) - 1


async def test_error_has_other_forms(upstream: FaultUpstream) -> None:
    async def last(plan: str, format: Format) -> Any:
        return frames((await ask(upstream, plan, format)).body)[-1]

    failed = await last("error:start:quota:failed", Format.RESPONSES)
    assert failed.startswith(b"event: response.failed\n")
    nested = await last("error:text:quota:nested", Format.RESPONSES)
    assert frame_data(nested)["error"]["code"] == "insufficient_quota"
    bare = await last("error:text:quota:bare", Format.RESPONSES)
    assert frame_data(bare)["code"] == "insufficient_quota"
    named = await last("error:text:overloaded:named", Format.CHAT)
    assert named.startswith(b"event: error\ndata: ")
    assert await last("error:text:overloaded:done", Format.CHAT) == b"data: [DONE]\n\n"
    hinted = await last("error:start:rate_limit:text=20", Format.CHAT)
    assert b"try again in 20s" in hinted


@formats
async def test_error_without_a_stream_is_a_200(upstream: FaultUpstream, format: Format) -> None:
    answer = await ask(upstream, "error", format, stream=False)
    assert answer.status == 200
    assert "error" in orjson.loads(answer.body)


@formats
@streamed
async def test_empty_has_no_content(upstream: FaultUpstream, format: Format, stream: bool) -> None:
    body = (await ask(upstream, "empty", format, stream=stream)).body
    assert b'usage"' not in body
    if stream:
        assert not any(map(is_content, frames(body)))
        assert kinds(body)[0] == OPENERS[format]
        assert body.endswith(frames(body)[-1])
    counted = (await ask(upstream, "empty:usage", format, stream=stream)).body
    assert counted == fixture(format, stream, "empty")
    heard_nothing = await ask(upstream, "empty:bytes", format, stream=stream)
    assert (heard_nothing.status, heard_nothing.complete, heard_nothing.body) == (200, True, b"")


async def test_empty_may_be_only_the_end(upstream: FaultUpstream) -> None:
    assert (await ask(upstream, "empty:done", Format.CHAT)).body == b"data: [DONE]\n\n"
    assert kinds((await ask(upstream, "empty:done")).body) == ["message_stop"]


@formats
@streamed
async def test_no_usage_counts_nothing(
    upstream: FaultUpstream, format: Format, stream: bool
) -> None:
    body = (await ask(upstream, "no_usage", format, stream=stream)).body
    assert b'usage"' not in body
    if stream:
        assert sum(map(is_content, frames(body))) == 3
        assert frames(body)[-1].split(b"\n")[0] == stream_frames(format)[-1].split(b"\n")[0]
    else:
        whole = orjson.loads(fixture(format, False))
        assert orjson.loads(body) == {k: v for k, v in whole.items() if k != "usage"}


@formats
@pytest.mark.parametrize(("what", "bad"), [("json", b'{"bad'), ("utf8", b"\xff"), ("empty", b"")])
async def test_malformed_has_one_bad_event(
    upstream: FaultUpstream, format: Format, what: str, bad: bytes
) -> None:
    body = (await ask(upstream, f"malformed:text:{what}", format)).body
    begun = before(format, Place.TEXT)
    assert body.startswith(begun + b"data: ")
    bad_frame, *rest = frames(body.removeprefix(begun))
    assert bad in bad_frame
    assert b"".join(rest) == fixture(format).removeprefix(begun)


@formats
async def test_malformed_body_is_no_json(upstream: FaultUpstream, format: Format) -> None:
    answer = await ask(upstream, "malformed", format, stream=False)
    assert answer.complete
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(answer.body)


@pytest.mark.large
@formats
@streamed
async def test_huge_is_valid_but_large(
    upstream: FaultUpstream, format: Format, stream: bool
) -> None:
    body = (await ask(upstream, "huge:2_000_000", format, stream=stream)).body
    if stream:
        assert texts_of(format, body) == ["Hello ", "x" * 2_000_000]
    else:
        assert len(body) > 2_000_000
        assert orjson.loads(body)["id"] == "reply_01"


@pytest.mark.parametrize("status", [200, 403, 502])
async def test_page_is_html(upstream: FaultUpstream, status: int) -> None:
    plan = f"page:{status}" if status != 200 else "page"
    answer = await ask(upstream, plan)
    assert (answer.status, answer.headers["content-type"]) == (
        status,
        "text/html; charset=utf-8",
    )
    assert answer.body.startswith(b"<!doctype html>")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_has_another_location(upstream: FaultUpstream, status: int) -> None:
    answer = await ask(upstream, f"redirect:{status}")
    assert answer.status == status
    assert answer.headers["location"] == f"{upstream.address}/elsewhere"
    answer = await ask(upstream, f"redirect:{status}:port=81")
    assert answer.headers["location"] == "http://127.0.0.1:81/elsewhere"


@formats
@streamed
async def test_encoded_is_compressed(upstream: FaultUpstream, format: Format, stream: bool) -> None:
    async def packed(coding: str) -> bytes:
        answer = await ask(upstream, f"encoded:{coding}", format, stream=stream)
        assert answer.headers["content-encoding"] == coding.replace("bad", "gzip")
        return answer.body

    plain = fixture(format, stream)
    assert gzip.decompress(await packed("gzip")) == plain
    assert zlib.decompress(await packed("deflate")) == plain
    assert await packed("br") == plain
    assert await packed("bad") == plain


@streamed
async def test_bomb_is_small_until_decompressed(upstream: FaultUpstream, stream: bool) -> None:
    answer = await ask(upstream, "bomb:10_000_000", stream=stream)
    assert len(answer.body) < 20_000
    unpacked = gzip.decompress(answer.body)
    assert len(unpacked) > 10_000_000
    assert unpacked.strip(b": \n") == fixture(Format.MESSAGES, stream).strip()


async def test_bomb_is_a_thousandth_of_its_size(upstream: FaultUpstream) -> None:
    answer = await ask(upstream, "bomb:200_000_000", stream=False)
    assert 150_000 < len(answer.body) < 250_000


async def test_headers_are_large_or_many(upstream: FaultUpstream) -> None:
    answer = await ask(upstream, "headers")
    assert len(answer.headers["x-upstream-0"]) == 20_000
    answer = await ask(upstream, "headers:8:300")
    assert len([name for name in answer.headers if name.startswith("x-upstream-")]) == 300


@formats
async def test_stream_only_refuses_other_requests(upstream: FaultUpstream, format: Format) -> None:
    for wording, (status, _) in STREAM_ONLY.items():
        answer = await ask(upstream, f"stream_only:{wording}", format, stream=False)
        assert answer.status == status
        assert b"stream" in answer.body.lower() or wording == "call"
        answer = await ask(upstream, f"stream_only:{wording}", format)
        assert answer.body == fixture(format)


@formats
@streamed
async def test_scenarios_that_ignore_the_request_mode(
    upstream: FaultUpstream, format: Format, stream: bool
) -> None:
    answer = await ask(upstream, "streams_anyway", format, stream=stream)
    assert (answer.headers["content-type"], answer.body) == (EVENT_STREAM, fixture(format))
    answer = await ask(upstream, "whole_anyway", format, stream=stream)
    assert answer.headers["content-type"] == "application/json"
    assert answer.body == fixture(format, False)


@streamed
@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("none", None),
        ("json", "application/json"),
        ("events", EVENT_STREAM),
        ("text", "text/plain"),
        ("octets", "application/octet-stream"),
    ],
)
async def test_mislabelled_has_another_content_type(
    upstream: FaultUpstream, kind: str, named: str | None, stream: bool
) -> None:
    answer = await ask(upstream, f"mislabelled:{kind}", stream=stream)
    assert answer.headers.get("content-type") == named
    assert answer.body == fixture(Format.MESSAGES, stream)


@pytest.mark.parametrize(("plan", "status"), [("early", 103), ("early:102", 102)])
async def test_early_sends_something_before(
    upstream: FaultUpstream, plan: str, status: int
) -> None:
    answer = await ask(upstream, plan)
    assert (answer.interim, answer.status) == ((status,), 200)
    assert answer.body == fixture(Format.MESSAGES)


@formats
@streamed
async def test_comments_and_then_a_reply(
    upstream: FaultUpstream, format: Format, stream: bool
) -> None:
    body = (await ask(upstream, "comments:0.001:3", format, stream=stream)).body
    assert body == (b": keepalive\n\n" if stream else b"\n") * 3 + fixture(format, stream)


@formats
async def test_pings_and_then_a_reply(upstream: FaultUpstream, format: Format) -> None:
    body = (await ask(upstream, "pings:0.001:3", format)).body
    alive = {
        "chat": ["chat.completion.chunk"],
        "messages": ["ping"],
        "responses": ["response.in_progress"],
    }
    begun = before(format, Place.BEGUN)
    assert body.startswith(begun)
    assert kinds(body)[1:4] == alive[format] * 3
    assert not any(map(is_content, frames(body)[:4]))
    assert b"".join(frames(body)[4:]) == fixture(format).removeprefix(begun)


@formats
@streamed
@pytest.mark.parametrize("plan", ["comments:0.005", "pings:0.005"])
async def test_only_comments_or_pings_never_end(
    upstream: FaultUpstream, format: Format, stream: bool, plan: str
) -> None:
    async with raw_client(upstream.address) as client:
        await client.send(encode_request(upstream, plan, format, stream=stream))
        async with asyncio.timeout(5):
            while client.received.count(b"\r\n") < 20:
                assert await client.receive()
        assert b"world" not in client.received


@pytest.mark.parametrize("what", ["status", "header", "chunk", "lengths", "both", "banner"])
async def test_violate_is_invalid_http(upstream: FaultUpstream, what: str) -> None:
    async with raw_client(upstream.address) as client:
        await client.send(encode_request(upstream, f"violate:{what}"))
        received = await client.receive_all()
    telling = {
        "status": b"HTTP/1.1 two hundred\r\n",
        "header": b"\r\nno colon here\r\n",
        "chunk": b"\r\nzz\r\n",
        "lengths": b"content-length: 2\r\ncontent-length: 3\r\n",
        "both": b"content-length: 2\r\ntransfer-encoding: chunked\r\n",
        "banner": b"SSH-2.0-",
    }
    assert telling[what] in received
