"""Images at addresses, for channels whose upstreams take none: the gateway downloads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, BadRequestError

from gateway.core.formats import Format
from gateway.server.images import adapter
from tests.support import image_files as files
from tests.support.gateway import ALPHA, BETA, RunningGateway, channel, run_gateway
from tests.support.image_files import REFUSED, data_uri
from tests.support.image_requests import image_part, image_request, sent_images
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    run_upstream,
)

FILES = {
    "/png": files.PNG,
    "/jpeg.png": files.JPEG,
    "/animated": files.ANIMATED,
    "/tiff": REFUSED["tiff"][0],
    "/page": b"<!doctype html><html>a secret</html>",
    "/6mb": files.png(padding=6_000_000),
    "/heic": files.HEIC,
}


class ImageHost(ScriptedUpstream):
    """A web server with `FILES`."""

    def url(self, path: str) -> str:
        return f"{self.address}{path}"

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def open_gateway(
        self, state: Path, upstream: ScriptedUpstream, format: Format, **channel_fields: Any
    ) -> AbstractAsyncContextManager[RunningGateway]:
        """With a channel that wants downloads, from this server alone."""
        fields = {"images": {"urls": "fetch"}} | channel_fields
        allowed = {"allowed_networks": ["127.0.0.1/32"], "allowed_ports": [self.port]}
        return run_gateway(state, [channel(format, upstream.address, **fields)], images=allowed)


async def serve_file(request: ReceivedRequest) -> Response:
    if request.path == "/silent":
        await asyncio.sleep(30)
    file = FILES.get(request.path)
    return Response(
        status=404 if file is None else 200,
        headers={"content-type": "text/plain"},
        chunks=(file or b"a secret",),
    )


@pytest.fixture
async def image_host() -> AsyncIterator[ImageHost]:
    async with run_upstream(ImageHost(serve_file)) as host:
        yield host


@pytest.mark.parametrize("in_result", [False, True], ids=["message", "result"])
@pytest.mark.parametrize("upstream_format", Format)
@pytest.mark.parametrize("format", Format)
async def test_images_are_downloaded_once_in_a_conversation(
    upstream: ScriptedUpstream,
    tmp_path: Path,
    image_host: ImageHost,
    format: Format,
    upstream_format: Format,
    in_result: bool,
) -> None:
    """Typed by their bytes, twice in a request and again in the next."""
    upstream.respond_with(fixture_reply(upstream_format))
    paths = ("/png", "/jpeg.png", "/png")
    parts = [image_part(format, image_host.url(path)) for path in paths]
    body = image_request(format, *parts, in_result=in_result)
    async with image_host.open_gateway(tmp_path, upstream, upstream_format) as gateway:
        for _ in range(2):
            answer = await gateway.post(format, body)
            assert answer.status == 200, await answer.text()
            sent = sent_images(upstream.last_request.json)
            png = data_uri(files.PNG)
            assert sent == [png, data_uri(files.JPEG, "image/jpeg"), png]
    assert sorted(image_host.paths) == ["/jpeg.png", "/png"]


async def test_streams(upstream: ScriptedUpstream, tmp_path: Path, image_host: ImageHost) -> None:
    upstream.respond_with(fixture_stream(Format.MESSAGES))
    part = image_part(Format.CHAT, image_host.url("/png"))
    body = image_request(Format.CHAT, part, model=ALPHA, stream=True)
    async with image_host.open_gateway(tmp_path, upstream, Format.MESSAGES) as gateway:
        answer = await gateway.post(Format.CHAT, body)
        assert answer.status == 200
        assert (await answer.text()).rstrip().endswith("[DONE]")
    assert sent_images(upstream.last_request.json) == [data_uri(files.PNG)]


@pytest.mark.parametrize("format", Format)
async def test_failures_name_the_host_and_nothing_else(
    upstream: ScriptedUpstream, tmp_path: Path, image_host: ImageHost, format: Format
) -> None:
    """Whatever happened: not there, no image, not allowed, nobody listens."""
    paths = ["/missing", "/page", "/tiff", "/heic"]
    urls = [image_host.url(path) for path in paths]
    urls += ["http://127.0.0.1:1/", f"http://127.0.0.2:{image_host.port}/png"]
    async with image_host.open_gateway(tmp_path, upstream, format) as gateway:
        messages = []
        for url in urls:
            body = image_request(format, image_part(format, url))
            answer = await gateway.post(format, body)
            assert answer.status == 400
            error = (await answer.json())["error"]
            assert error["type"] == "invalid_request_error"
            if format is not Format.MESSAGES:
                assert error["code"] == "failed_to_download_image" or "HEIC" in error["message"]
            messages.append(error["message"].replace("127.0.0.2", "127.0.0.1"))
        rows = await gateway.rows(len(urls))
    assert {message for message in messages if "HEIC" not in message} == {messages[0]}
    assert messages[0].startswith("Failed to download image from 127.0.0.1 (")
    assert "not public" in (rows[-1].error_message or "")
    assert upstream.requests == []


async def test_limits_of_the_upstream_hold_for_downloads(
    upstream: ScriptedUpstream, tmp_path: Path, image_host: ImageHost
) -> None:
    async with image_host.open_gateway(tmp_path, upstream, Format.MESSAGES) as gateway:
        for path, text in (
            ("/6mb", "messages.0.content.0.source.url: image exceeds 5 MB maximum"),
            ("/animated", "Failed to download image from 127.0.0.1"),
        ):
            part = image_part(Format.MESSAGES, image_host.url(path))
            answer = await gateway.post(Format.MESSAGES, image_request(Format.MESSAGES, part))
            assert answer.status == 400
            assert (await answer.json())["error"]["message"].startswith(text)


async def test_all_images_of_a_request_have_one_deadline(
    upstream: ScriptedUpstream,
    tmp_path: Path,
    image_host: ImageHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapter, "DOWNLOAD_TIME", 0.3)
    part = image_part(Format.CHAT, image_host.url("/silent"))
    async with image_host.open_gateway(tmp_path, upstream, Format.CHAT) as gateway:
        answer = await gateway.post(Format.CHAT, image_request(Format.CHAT, part))
        assert (await answer.json())["error"]["code"] == "failed_to_download_image"


async def test_a_channel_that_takes_no_addresses(
    upstream: ScriptedUpstream, tmp_path: Path, image_host: ImageHost
) -> None:
    """The next one is asked; without another it is an error."""
    upstream.respond_with(fixture_reply(Format.CHAT))
    refusing = {"name": "first", "priority": 1, "images": {"urls": "refuse"}}
    first = channel(Format.CHAT, upstream.address) | refusing
    body = image_request(Format.CHAT, image_part(Format.CHAT, image_host.url("/png")))
    for count, status in ((1, 400), (2, 200)):
        (state := tmp_path / str(count)).mkdir()
        lines = [first, channel(Format.CHAT, upstream.address)][:count]
        async with run_gateway(state, lines) as gateway:
            answer = await gateway.post(Format.CHAT, body)
            assert answer.status == status
            if status == 400:
                assert (await answer.json())["error"]["code"] == "invalid_image_url"
    assert sent_images(upstream.last_request.json) == [image_host.url("/png")]
    assert image_host.paths == []


async def test_requests_with_other_images_download_nothing(
    upstream: ScriptedUpstream, tmp_path: Path, image_host: ImageHost
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    body = image_request(Format.CHAT, image_part(Format.CHAT, files.PNG))
    async with image_host.open_gateway(tmp_path, upstream, Format.CHAT) as gateway:
        assert (await gateway.post(Format.CHAT, body)).status == 200
    assert image_host.paths == []


async def test_stock_clients(
    upstream: ScriptedUpstream, tmp_path: Path, image_host: ImageHost
) -> None:
    upstream.respond_with(fixture_reply(Format.MESSAGES))
    async with image_host.open_gateway(tmp_path, upstream, Format.MESSAGES) as gateway:
        claude = AsyncAnthropic(base_url=gateway.address, api_key=gateway.key, max_retries=0)
        gpt = AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=gateway.key, max_retries=0)
        async with claude, gpt:
            block: Any = image_part(Format.MESSAGES, image_host.url("/png"))
            await claude.messages.create(
                model=ALPHA, max_tokens=9, messages=[{"role": "user", "content": [block]}]
            )
            assert sent_images(upstream.last_request.json) == [data_uri(files.PNG)]
            part: Any = image_part(Format.RESPONSES, image_host.url("/missing"))
            with pytest.raises(BadRequestError) as refused:
                await gpt.responses.create(model=BETA, input=[{"role": "user", "content": [part]}])
            assert refused.value.code == "failed_to_download_image"
            assert refused.value.param == "input.0.content.0.image_url"


async def test_background_responses(
    upstream: ScriptedUpstream, tmp_path: Path, image_host: ImageHost
) -> None:
    """The images are there before the response is, so that a failure is one of the request."""
    upstream.respond_with(fixture_stream(Format.RESPONSES))
    parts = [image_part(Format.RESPONSES, image_host.url(path)) for path in ("/png", "/missing")]
    good, bad = (image_request(Format.RESPONSES, part, background=True) for part in parts)
    async with image_host.open_gateway(tmp_path, upstream, Format.RESPONSES) as gateway:
        response = await (await gateway.post(Format.RESPONSES, good)).json()
        async with asyncio.timeout(10):
            while response["status"] in ("queued", "in_progress"):
                await asyncio.sleep(0.02)
                found = await gateway.get(f"/v1/responses/{response['id']}")
                response = await found.json()
        assert response["status"] == "completed"
        refused = await gateway.post(Format.RESPONSES, bad)
        assert refused.status == 400
        assert (await refused.json())["error"]["code"] == "failed_to_download_image"
    assert sent_images(upstream.last_request.json) == [data_uri(files.PNG)]
