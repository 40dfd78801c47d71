"""Images between clients and upstreams of every format: passed, corrected, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic as anthropic_errors
import openai as openai_errors
import orjson
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.support import image_files as files
from tests.support.gateway import (
    ALPHA,
    BETA,
    RunningGateway,
    channel,
    request_body,
    run_gateway,
)
from tests.support.image_files import ACCEPTED, REFUSED, TRUNCATED, data_uri, encoded
from tests.support.image_requests import image_part, image_request, sent_images
from tests.support.upstream import ScriptedUpstream, event_stream, fixture_reply, json_response

pytestmark = pytest.mark.shared_gateway

FIELDS = {
    Format.CHAT: ("messages.0.content.1.image_url.url", "messages.2.content.1.image_url.url"),
    Format.MESSAGES: (
        "messages.0.content.1.source.data",
        "messages.2.content.0.content.1.source.data",
    ),
    Format.RESPONSES: ("input.0.content.1.image_url", "input.2.output.1.image_url"),
}
"""The paths of an image after a text, in a message and in a tool's result."""
MEGABYTE = 2**20


def text(format: Format) -> dict[str, str]:
    return {"type": "input_text" if format is Format.RESPONSES else "text", "text": "See:"}


def error_of(body: Any) -> dict[str, Any]:
    error: dict[str, Any] = body["error"]
    return error


@pytest.mark.parametrize("in_result", [False, True], ids=["message", "result"])
@pytest.mark.parametrize("format", Format)
async def test_good_images_reach_the_upstream_unchanged(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, in_result: bool
) -> None:
    upstream.respond_with(fixture_reply(format))
    parts = [image_part(format, *good) for good in ACCEPTED.values()]
    parts.append(image_part(format, TRUNCATED["jpeg"], "image/jpeg"))  # upstreams judge damage
    body = image_request(format, *parts, in_result=in_result)
    answer = await gateway.post(format, body)
    assert answer.status == 200, await answer.text()
    assert sent_images(upstream.last_request.json) == sent_images(body)


@pytest.mark.parametrize("in_result", [False, True], ids=["message", "result"])
@pytest.mark.parametrize("format", Format)
async def test_bad_images_are_refused(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, in_result: bool
) -> None:
    bad = [(file, "unsupported_image_media_type") for file, _ in REFUSED.values()]
    for file, code in bad:
        body = image_request(format, text(format), image_part(format, file), in_result=in_result)
        answer = await gateway.post(format, body)
        error = error_of(await answer.json())
        assert answer.status == 400
        assert error["message"].startswith(FIELDS[format][in_result])
        assert error["type"] == "invalid_request_error"
        if format is not Format.MESSAGES:
            assert (error["code"], error["param"]) == (code, FIELDS[format][in_result])
    assert upstream.requests == []
    rows = await gateway.rows()
    assert {row.state for row in rows} == {ExchangeState.REJECTED}


@pytest.mark.parametrize("format", Format)
async def test_bad_images_in_another_spelling_are_refused(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    bad, _ = next(iter(REFUSED.values()))
    body = orjson.dumps(image_request(format, text(format), image_part(format, bad)))
    for name in (b'"image_url"', b'"image"', b'"input_image"'):
        body = body.replace(name, b'"\\u0069' + name[2:])
    assert b"\\u0069mage" in body or b"\\u0069nput_image" in body
    answer = await gateway.post(format, body)
    assert answer.status == 400, await answer.text()
    assert upstream.requests == []


@pytest.mark.parametrize("lane", ["native", "translated"])
@pytest.mark.parametrize("in_result", [False, True], ids=["message", "result"])
@pytest.mark.parametrize("format", Format)
async def test_wrong_labels_and_notations_are_corrected(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, in_result: bool, lane: str
) -> None:
    """In both lanes, and nothing else of the body changes."""
    upstream.respond_with(fixture_reply(format))
    wrong = image_part(format, files.JPEG, "image/png")
    broken = image_part(format, files.WEBP, "image/webp")
    if format is Format.MESSAGES:
        broken["source"]["data"] = encoded(files.WEBP)[:8] + "\n" + encoded(files.WEBP)[8:]
    elif format is Format.CHAT:
        broken["image_url"] = {"url": encoded(files.WEBP), "detail": "low"}
    else:
        broken["image_url"] = encoded(files.WEBP)
    right = image_part(format, files.PNG)
    body = image_request(format, right, wrong, broken, in_result=in_result, temperature=0.5)
    line = channel(format, upstream.address, lane=lane)
    async with run_gateway(tmp_path, [line]) as gateway:
        assert (await gateway.post(format, body)).status == 200
    sent = upstream.last_request.json
    assert sent_images(sent) == [
        data_uri(files.PNG),
        data_uri(files.JPEG, "image/jpeg"),
        data_uri(files.WEBP, "image/webp"),
    ]
    assert sent["temperature"] == 0.5
    if format is Format.CHAT:
        assert "'detail': 'low'" in str(sent)


async def test_other_fields_keep_their_bytes(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """Of a request whose images are corrected."""
    upstream.respond_with(fixture_reply(Format.CHAT))
    body = image_request(Format.CHAT, image_part(Format.CHAT, files.JPEG, "image/png"))
    fields = b'"temperature": 1.50, "future" :{"n":123456789012345678901234567890},'
    raw = orjson.dumps(body).replace(b"{", b"{" + fields, 1)
    assert (await gateway.post(Format.CHAT, raw)).status == 200
    assert fields in upstream.last_request.body
    assert sent_images(upstream.last_request.json) == [data_uri(files.JPEG, "image/jpeg")]


async def test_animated_gifs(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    """Forwarded to chat and responses, an error on messages."""
    for format in (Format.CHAT, Format.RESPONSES):
        upstream.respond_with(fixture_reply(format))
        body = image_request(format, image_part(format, files.ANIMATED, "image/gif"))
        assert (await gateway.post(format, body)).status == 200
        (sent,) = sent_images(upstream.last_request.json)
        assert sent == data_uri(files.ANIMATED, "image/gif")
    body = image_request(Format.MESSAGES, image_part(Format.MESSAGES, files.ANIMATED, "image/gif"))
    answer = await gateway.post(Format.MESSAGES, body)
    assert answer.status == 400
    assert "animated" in error_of(await answer.json())["message"]


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize(
    "url", ["ftp://a.test/b.png", "file:///etc/passwd", "javascript:x", "b.png"]
)
async def test_only_web_addresses(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, url: str
) -> None:
    answer = await gateway.post(format, image_request(format, image_part(format, url)))
    assert answer.status == 400
    assert "http or https" in error_of(await answer.json())["message"]
    assert upstream.requests == []


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("upstream_format", Format)
async def test_addresses_pass_by_default(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, upstream_format: Format
) -> None:
    """Nothing is downloaded: the host does not exist."""
    upstream.respond_with(fixture_reply(upstream_format))
    body = image_request(format, image_part(format, "https://a.invalid/b.png"))
    async with run_gateway(tmp_path, [channel(upstream_format, upstream.address)]) as gateway:
        assert (await gateway.post(format, body)).status == 200
    assert sent_images(upstream.last_request.json) == ["https://a.invalid/b.png"]


@pytest.mark.parametrize(
    ("format", "most"), [(Format.CHAT, 250), (Format.MESSAGES, 100), (Format.RESPONSES, 250)]
)
async def test_counts(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, most: int
) -> None:
    upstream.respond_with(fixture_reply(format))
    parts = [image_part(format, files.PNG)] * most
    assert (await gateway.post(format, image_request(format, *parts))).status == 200
    answer = await gateway.post(format, image_request(format, *parts, parts[0]))
    assert answer.status == 400
    assert f"{most + 1} > {most} maximum" in error_of(await answer.json())["message"]


@pytest.mark.parametrize(
    ("format", "size", "passes"),
    [
        (Format.CHAT, 20_900_000, True),
        (Format.CHAT, 21_000_000, False),
        (Format.RESPONSES, 21_000_000, False),
        (Format.MESSAGES, 5_200_000, True),
        (Format.MESSAGES, 5_300_000, False),
    ],
)
async def test_sizes(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, size: int, passes: bool
) -> None:
    upstream.respond_with(fixture_reply(format))
    body = image_request(format, image_part(format, files.png(padding=size)))
    answer = await gateway.post(format, body)
    assert answer.status == (200 if passes else 400)
    if not passes:
        message = error_of(await answer.json())["message"]
        megabytes = 5 if format is Format.MESSAGES else 20
        assert f"image exceeds {megabytes} MB maximum" in message
        assert f"> {megabytes * MEGABYTE} bytes" in message


async def test_limits_of_the_upstream_skip_its_channel(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """A messages channel is first for this model, but takes no image of 6 MB, nor 101 of them."""
    upstream.respond_with(fixture_reply(Format.CHAT))
    large = image_request(Format.CHAT, image_part(Format.CHAT, files.png(padding=6_000_000)))
    many = image_request(Format.CHAT, *[image_part(Format.CHAT, files.PNG)] * 101)
    messages = channel(Format.MESSAGES, upstream.address)
    async with run_gateway(
        tmp_path, [messages, channel(Format.CHAT, upstream.address, lane="translated")]
    ) as gateway:
        for body in (large, many):
            answer = await gateway.post(Format.CHAT, body | {"model": ALPHA})
            assert answer.status == 200
            assert upstream.last_request.url.path.endswith("/chat/completions")
    (tmp_path / "two").mkdir()
    async with run_gateway(tmp_path / "two", [messages]) as gateway:
        answer = await gateway.post(Format.CHAT, large | {"model": ALPHA})
        error = error_of(await answer.json())
        assert (answer.status, error["code"]) == (400, "image_too_large")
        assert error["param"] == "messages.0.content.0.image_url.url"
        answer = await gateway.post(Format.CHAT, many | {"model": ALPHA})
        assert error_of(await answer.json())["code"] == "too_many_images"


@pytest.mark.parametrize("format", Format)
async def test_heic_only_where_the_channel_takes_it(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    upstream.respond_with(fixture_reply(format))
    body = image_request(format, image_part(format, files.HEIC, "image/heic"))
    for heic, status in ((False, 400), (True, 200)):
        (state := tmp_path / str(heic)).mkdir()
        line = channel(format, upstream.address, images={"heic": heic})
        async with run_gateway(state, [line]) as gateway:
            answer = await gateway.post(format, body)
            assert answer.status == status
            if not heic:
                assert "HEIC" in error_of(await answer.json())["message"]


async def test_texts_that_look_like_images_are_texts(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    content = '{"type": "image_url", "image_url": {"url": "ftp://a"}}'
    turns = [{"role": "user", "content": content}]
    metadata = {"image_url": "ftp://a"}
    body = request_body(Format.CHAT, messages=turns, metadata=metadata)
    assert (await gateway.post(Format.CHAT, body)).status == 200
    assert upstream.last_request.json["messages"] == turns


async def test_streams_get_the_error_before_they_begin(gateway: RunningGateway) -> None:
    for format in Format:
        part = image_part(format, REFUSED["tiff"][0])
        answer = await gateway.post(format, image_request(format, part, stream=True))
        assert answer.status == 400
        assert answer.content_type == "application/json"


async def test_stock_openai(openai: AsyncOpenAI, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    good: Any = image_part(Format.CHAT, files.WEBP)
    await openai.chat.completions.create(model=BETA, messages=[{"role": "user", "content": [good]}])
    assert sent_images(upstream.last_request.json) == [data_uri(files.WEBP, "image/webp")]
    bad: Any = image_part(Format.RESPONSES, REFUSED["svg"][0])
    with pytest.raises(openai_errors.BadRequestError) as refused:
        await openai.responses.create(model=BETA, input=[{"role": "user", "content": [bad]}])
    assert refused.value.code == "unsupported_image_media_type"
    assert refused.value.param == "input.0.content.0.image_url"


async def test_stock_anthropic(anthropic: AsyncAnthropic, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply(Format.MESSAGES))
    good: Any = image_part(Format.MESSAGES, files.WEBP)
    create = anthropic.messages.create
    await create(model=ALPHA, max_tokens=9, messages=[{"role": "user", "content": [good]}])
    assert sent_images(upstream.last_request.json) == [data_uri(files.WEBP, "image/webp")]
    large: Any = image_part(Format.MESSAGES, files.png(padding=5_300_000))
    with pytest.raises(anthropic_errors.BadRequestError) as refused:
        await create(model=ALPHA, max_tokens=9, messages=[{"role": "user", "content": [large]}])
    assert "image exceeds 5 MB maximum" in str(refused.value)


CODES = [
    "failed_to_download_image",
    "request_too_large",
    "content_policy_violation",
    "invalid_image",
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("upstream_format", [Format.CHAT, Format.RESPONSES])
@pytest.mark.parametrize("format", Format)
async def test_codes_of_upstreams_reach_the_client(
    upstream: ScriptedUpstream,
    tmp_path: Path,
    format: Format,
    upstream_format: Format,
    stream: bool,
) -> None:
    """And the account stays available: it is not to blame."""
    body = image_request(format, image_part(format, files.PNG), stream=stream)
    async with run_gateway(tmp_path, [channel(upstream_format, upstream.address)]) as gateway:
        for code in CODES * 4:
            status = 413 if code == "request_too_large" else 400
            fields = {"message": "Not this one.", "type": "invalid_request_error", "code": code}
            upstream.respond_with(json_response({"error": fields}, status))
            answer = await gateway.post(format, body)
            error = error_of(await answer.json())
            assert answer.status == status
            assert "Not this one." in error["message"]
            if format is not Format.MESSAGES:
                assert error["code"] == code
            elif code in ("failed_to_download_image", "content_policy_violation"):
                phrase = "Failed to download image" if "image" in code else code
                assert phrase in error["message"]
        upstream.respond_with(fixture_reply(upstream_format))
        assert (await gateway.post(format, body | {"stream": False})).status == 200


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("code", ["invalid_image", "failed_to_download_image"])
async def test_codes_in_a_stream_reach_the_client(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, code: str
) -> None:
    """Responses upstreams fetch images after the stream has begun."""
    error = {"code": code, "message": "Not this one."}
    response = {"id": "resp_1", "object": "response", "status": "failed", "error": error}
    failed = orjson.dumps({"type": "response.failed", "sequence_number": 1, "response": response})
    body = image_request(format, image_part(format, files.PNG), stream=True)
    async with run_gateway(tmp_path, [channel(Format.RESPONSES, upstream.address)]) as gateway:
        upstream.respond_with(event_stream(b"event: response.failed\ndata: %b\n\n" % failed))
        for _ in range(8):
            answer = await gateway.post(format, body)
            text = await answer.text()
            assert "Not this one." in text
            assert code in text or format is Format.MESSAGES
            assert format is Format.RESPONSES or answer.status == 400
        upstream.respond_with(fixture_reply(Format.RESPONSES))
        assert (await gateway.post(format, body | {"stream": False})).status == 200


@pytest.mark.asyncio(loop_scope="function")
async def test_the_simulator_sees_what_is_right(simulated_gateway: RunningGateway) -> None:
    """It rejects wrong media types, which the gateway has corrected."""
    for format in Format:
        part = image_part(format, files.JPEG, "image/png")
        answer = await simulated_gateway.post(format, image_request(format, part))
        assert answer.status == 200
        assert "a JPEG image" in await answer.text()


async def test_images_of_stored_responses(openai: AsyncOpenAI, upstream: ScriptedUpstream) -> None:
    """A corrected image is corrected again where its response is continued, and still counts."""
    upstream.respond_with(fixture_reply(Format.RESPONSES))
    wrong: Any = image_part(Format.RESPONSES, files.JPEG, "image/png")
    right = data_uri(files.JPEG, "image/jpeg")
    turns: Any = [{"role": "user", "content": [wrong] * 200}]
    first = await openai.responses.create(model=BETA, input=turns)
    assert sent_images(upstream.last_request.json) == [right] * 200
    assert (await openai.responses.retrieve(first.id)).id == first.id
    second = await openai.responses.create(
        model=BETA, input="Which one?", previous_response_id=first.id
    )
    assert second.previous_response_id == first.id
    assert sent_images(upstream.last_request.json) == [right] * 200
    with pytest.raises(openai_errors.BadRequestError) as refused:
        await openai.responses.create(
            model=BETA,
            input=[{"role": "user", "content": [wrong] * 51}],
            previous_response_id=first.id,
        )
    assert refused.value.code == "too_many_images"


@pytest.mark.large
@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("upstream_format", Format)
async def test_large_images_are_corrected_too(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, upstream_format: Format
) -> None:
    """Their data are not in the parsed body (docs/adr/0029)."""
    upstream.respond_with(fixture_reply(upstream_format))
    jpeg, webp = files.jpeg(padding=1_000_000), files.webp(padding=1_000_000)
    wrong = [image_part(format, file, "image/png") for file in (jpeg, webp)]
    bare = image_part(format, jpeg)
    sent = [data_uri(jpeg, "image/jpeg"), data_uri(webp, "image/webp")]
    if format is not Format.MESSAGES:
        field = bare if format is Format.RESPONSES else bare["image_url"]
        field["image_url" if format is Format.RESPONSES else "url"] = encoded(jpeg)
        wrong.append(bare)
        sent.append(sent[0])
    async with run_gateway(tmp_path, [channel(upstream_format, upstream.address)]) as gateway:
        answer = await gateway.post(format, image_request(format, *wrong))
        assert answer.status == 200, await answer.text()
    assert sent_images(upstream.last_request.json) == sent


@pytest.mark.parametrize("format", Format)
async def test_large_images_are_refused_too(gateway: RunningGateway, format: Format) -> None:
    for file in (REFUSED["tiff"][0] + bytes(1_000_000), bytes(1_000_000)):
        answer = await gateway.post(format, image_request(format, image_part(format, file)))
        assert answer.status == 400
    data = encoded(files.png(padding=1_000_000))
    part = image_part(format, files.PNG)
    for bad in (data[:500_000] + "!" + data[500_001:], data[:700_000] + "\u00e9==="):
        if format is Format.MESSAGES:
            part["source"]["data"] = bad
        else:
            url = f"data:image/png;base64,{bad}"
            part["image_url"] = {"url": url} if format is Format.CHAT else url
        answer = await gateway.post(format, image_request(format, part))
        assert answer.status == 400
