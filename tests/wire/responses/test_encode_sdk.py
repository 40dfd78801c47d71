"""The official client library accumulates the same reply from an encoded stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.pytest_plugin import AiohttpServer
from openai import AsyncOpenAI

from gateway.core.events import End, Fail
from gateway.core.parts import Refusal, Text, ToolCall
from gateway.core.reply import collect_reply
from gateway.errors import TooManyRequests
from tests.support.fixture_json import from_json
from tests.support.paths import FIXTURES
from tests.wire.responses.encoding import USAGE, new_encoder


def _begins(path: Path) -> bool:
    return not isinstance(from_json(orjson.loads(path.read_bytes()))[0], Fail)


EVENT_FILES = list(filter(_begins, sorted(FIXTURES.glob("streams/*/events.json"))))


@pytest.fixture
async def streams() -> list[bytes]:
    """The streams that the server sends, in order."""
    return []


@pytest.fixture
async def client(streams: list[bytes], aiohttp_server: AiohttpServer) -> AsyncIterator[AsyncOpenAI]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=streams.pop(0), content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/responses", answer)
    server = await aiohttp_server(app)
    async with AsyncOpenAI(
        api_key="k", base_url=str(server.make_url("/v1")), max_retries=0
    ) as library:
        yield library


@pytest.mark.parametrize("path", EVENT_FILES, ids=lambda path: path.parent.name)
async def test_sdk_accumulates_the_same_reply(
    path: Path, streams: list[bytes], client: AsyncOpenAI
) -> None:
    events = from_json(orjson.loads(path.read_bytes()))
    *others, last = events
    encoder = new_encoder()
    raw = b"".join(map(encoder.encode, others))
    if isinstance(last, End):
        raw += encoder.encode(End(last.stop, last.usage or USAGE))
    else:
        raw += encoder.encode_error(TooManyRequests())
    streams.append(raw)
    async with client.responses.stream(model="m", input="hi") as stream:
        kinds = [event.type async for event in stream]
        if kinds[-1] != "response.completed":
            with pytest.raises(RuntimeError):
                await stream.get_final_response()
            assert isinstance(last, Fail) == (kinds[-1] in ("error", "response.failed"))
            return
        final = await stream.get_final_response()
    reply = collect_reply(events)
    assert final.output_text == "".join(p.text for p in reply.parts if isinstance(p, Text))
    calls: list[Any] = [item for item in final.output if item.type.endswith("tool_call")]
    calls += [item for item in final.output if item.type == "function_call"]
    assert len(calls) == len([part for part in reply.parts if isinstance(part, ToolCall)])
    refusals = [
        content.refusal
        for item in final.output
        if item.type == "message"
        for content in item.content
        if content.type == "refusal"
    ]
    assert refusals == [part.text for part in reply.parts if isinstance(part, Refusal)]
    assert final.usage is not None
    usage = reply.usage or USAGE
    assert final.usage.input_tokens_details.cached_tokens == usage.cache_read_tokens
    assert (final.usage.input_tokens, final.usage.output_tokens) == (
        usage.input_tokens,
        usage.output_tokens,
    )
