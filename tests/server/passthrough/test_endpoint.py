"""Endpoints that pass through, with the stock client: routed, limited, counted and logged."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI, BadRequestError

from gateway.core.formats import Format
from gateway.core.limits import MICRO_PER_UNIT
from gateway.store.records import ExchangeState
from tests.server.key_limits import limit_key
from tests.support.gateway import RunningGateway, channel
from tests.support.shared_gateway import as_new, in_the_modules_loop
from tests.support.stock_clients import open_openai
from tests.support.upstream import (
    Ending,
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    event_stream,
    json_response,
)

pytestmark = pytest.mark.shared_gateway

MODEL = "small"
UPSTREAM_MODEL = "vendor/small-1"
ALL = ["embeddings", "rerank", "moderations", "audio", "images"]
MODELS = [
    {"id": MODEL, "family": "beta", "price": {"input": 2, "output": 8}},
    {"id": "drawing", "family": "beta", "price": {"input": 0, "output": 0, "requests": 40}},
    {"id": "talk", "family": "beta"},
]


def serving(address: str, name: str, **changes: Any) -> dict[str, Any]:
    models = {MODEL: UPSTREAM_MODEL, "drawing": "drawing-1"}
    return channel(
        Format.CHAT, address, name=name, **{"endpoints": ALL, "models": models} | changes
    )


@in_the_modules_loop()
async def passing(
    gateway_of_module: RunningGateway, upstream: ScriptedUpstream
) -> AsyncIterator[RunningGateway]:
    """Two accounts at one upstream, the first of which is tried first."""
    both = [
        {"name": "first", "key": "k-first-0000000000001", "priority": 1},
        {"name": "second", "key": "k-second-000000000002"},
    ]
    channels = [
        serving(upstream.address, "passes", accounts=both),
        channel(Format.CHAT, upstream.address, name="talks", models=["talk"]),
    ]
    async with as_new(gateway_of_module, channels, models=MODELS) as gateway:
        yield gateway


@in_the_modules_loop()
async def client(passing: RunningGateway) -> AsyncIterator[AsyncOpenAI]:
    async with open_openai(passing) as client:
        yield client


def embeddings(embedding: object, tokens: int = 5) -> Response:
    data = [{"object": "embedding", "index": 0, "embedding": embedding}]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_response({"object": "list", "data": data, "model": "x", "usage": usage})


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_embeddings_by_the_stock_client(
    passing: RunningGateway, client: AsyncOpenAI, upstream: ScriptedUpstream, encoding: Any
) -> None:
    packed = base64.b64encode(b"\0\0\x80?" * 3).decode()
    upstream.respond_with(embeddings([1.0, 1.0, 1.0] if encoding == "float" else packed))
    reply = await client.embeddings.create(model=MODEL, input=["Hello"], encoding_format=encoding)
    assert reply.data[0].embedding == ([1.0, 1.0, 1.0] if encoding == "float" else packed)
    sent = upstream.last_request
    assert sent.path == "/v1/embeddings"
    assert sent.json == {"input": ["Hello"], "model": UPSTREAM_MODEL, "encoding_format": encoding}
    row = await passing.row()
    assert (row.endpoint, row.format, row.model) == ("/v1/embeddings", "embeddings", MODEL)
    assert (row.channel, row.account, row.upstream_model) == ("passes", "first", UPSTREAM_MODEL)
    assert (row.state, row.status, row.usage_source) == (ExchangeState.OK, 200, "upstream")
    assert (row.input_tokens, row.output_tokens, row.usd_micro) == (5, 0, 10)


JSON_CASES: dict[str, tuple[str, dict[str, Any], Response, tuple[Any, ...]]] = {
    "rerank": (
        "/v1/rerank",
        {"query": "a", "documents": ["b", {"text": "c"}]},
        json_response({"results": [{"index": 0, "document": {"usage": {"total_tokens": 1}}}],
                       "usage": {"total_tokens": 31}}),
        (31, 0, "upstream"),
    ),
    "moderation": (
        "/v1/moderations",
        {"input": "a"},
        json_response({"id": "m", "results": [{"flagged": False}]}),
        (6, 1, "estimated"),
    ),
    "image": (
        "/v1/images/generations",
        {"prompt": "a cat"},
        json_response({"data": [{"b64_json": "AAAA"}],
                       "usage": {"input_tokens": 9, "output_tokens": 272, "total_tokens": 281}}),
        (9, 272, "upstream"),
    ),
    "speech": (
        "/v1/audio/speech",
        {"input": "a", "voice": "b"},
        Response(headers={"content-type": "audio/mpeg"}, chunks=(b"\xff\xfb" * 40_000, b"end"),
                 pause=0.01),
        (6, 1, "estimated"),
    ),
    "streamed speech": (
        "/v1/audio/speech",
        {"input": "a", "stream_format": "sse"},
        event_stream(b'data: {"type":"speech.audio.delta","audio":"AA"}\n\ndata: {"type":'
                     b'"speech.audio.done","usage":{"input_tokens":4,"output_tokens":44}}\n\n'),
        (4, 44, "upstream"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", JSON_CASES)
async def test_replies_are_those_of_the_upstream(
    passing: RunningGateway, upstream: ScriptedUpstream, case: str
) -> None:
    path, body, script, counted = JSON_CASES[case]
    upstream.respond_with(script)
    answer = await passing.post(Format.CHAT, {"model": MODEL} | body, path=path)
    assert (answer.status, await answer.read()) == (200, script.body)
    assert answer.headers["content-type"] == script.headers["content-type"]
    assert upstream.last_request.path == path
    assert upstream.last_request.json == body | {"model": UPSTREAM_MODEL}
    row = await passing.row()
    assert (row.state, row.endpoint) == (ExchangeState.OK, path)
    assert (row.input_tokens, row.output_tokens, row.usage_source) == counted
    assert row.bytes_out == len(script.body)


async def test_transcription_by_the_stock_client(
    passing: RunningGateway, client: AsyncOpenAI, upstream: ScriptedUpstream
) -> None:
    usage = {"type": "tokens", "input_tokens": 14, "output_tokens": 45, "total_tokens": 59}
    upstream.respond_with(json_response({"text": "Hi", "usage": usage}))
    audio = b"RIFF\r\n--" + bytes(range(256)) * 8000
    reply = await client.audio.transcriptions.create(model=MODEL, file=("a.wav", audio))
    assert reply.text == "Hi"
    sent = upstream.last_request
    assert sent.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert sent.body.count(audio) == 1
    assert f'name="model"\r\n\r\n{UPSTREAM_MODEL}\r\n'.encode() in sent.body
    row = await passing.row()
    assert (row.input_tokens, row.output_tokens, row.usd_micro) == (14, 45, 388)
    assert row.bytes_in > len(audio)


async def test_a_price_per_request(passing: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({"data": [{"url": "x"}]}), json_response({}, 500))
    body, path = {"model": "drawing", "prompt": "a cat"}, "/v1/images/generations"
    limit_key(passing, budget_usd=60_000)
    statuses = [(await passing.post(Format.CHAT, body, path=path)).status for _ in range(2)]
    assert statuses == [200, 429]  # the second does not fit
    row = (await passing.rows(2))[0]
    assert (row.usd_micro, row.usage_source) == (40_000, "estimated")


FAILURES: dict[str, Response] = {
    "status": json_response({"error": {"message": "no"}}, 503),
    "rejected key": json_response({"error": {"message": "no"}}, 401),
    "a page": Response(headers={"content-type": "text/html"}, chunks=(b"<html>",)),
    "no reply": Response(raw=b""),
    "an empty reply": json_response(b""),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_another_account_takes_over_before_the_first_byte(
    passing: RunningGateway, upstream: ScriptedUpstream, failure: str
) -> None:
    upstream.respond_with(FAILURES[failure], embeddings([1.0]))
    body = {"model": MODEL, "input": "Hello"}
    answer = await passing.post(Format.CHAT, body, path="/v1/embeddings")
    assert answer.status == 200
    assert [each.key for each in upstream.requests][-1] == "k-second-000000000002"
    row = await passing.row()
    assert (row.attempts, row.input_tokens, row.error_code) == (len(upstream.requests), 5, None)


async def test_a_form_goes_to_the_next_account_whole(
    passing: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(json_response({}, 500), json_response({"text": "Hi"}))
    body = form(model=MODEL, file="x" * 3_000_000)
    headers = {"content-type": FORM_TYPE}
    path = "/v1/audio/translations"
    assert (await passing.post(Format.CHAT, body, path=path, headers=headers)).status == 200
    first, second = upstream.requests
    assert first.body == second.body and len(first.body) > 3_000_000


async def test_a_reply_that_breaks_off_is_cut(
    passing: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(
        Response(
            headers={"content-type": "audio/mpeg"},
            chunks=(b"a" * 1000, b"b"),
            pause=0.02,
            ending=Ending.TRUNCATED,
        )
    )
    with pytest.raises(Exception, match="payload"):
        await passing.post(Format.CHAT, {"model": MODEL, "input": "a"}, path="/v1/audio/speech")
    row = await passing.row()
    assert (row.state, row.status, row.attempts) == (ExchangeState.UPSTREAM_CUT, 200, 1)


async def test_a_budget_holds_against_200_at_once(
    passing: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(embeddings([1.0], tokens=50))
    limit_key(passing, budget=1000 * MICRO_PER_UNIT)
    body = {"model": MODEL, "input": " ".join(["word"] * 50)}
    sending = [passing.post(Format.CHAT, body, path="/v1/embeddings") for _ in range(200)]
    statuses = [answer.status for answer in await asyncio.gather(*sending)]
    assert set(statuses) == {200, 429}
    assert len(upstream.requests) == statuses.count(200)
    budgets = passing.daemon.runtime.budget_statuses()
    budget = next(each for each in budgets if each.holder.id == passing.token.id)
    assert (budget.spent, budget.reserved) == (statuses.count(200) * 50 * MICRO_PER_UNIT, 0)
    assert budget.spent <= budget.budget.limit


def form(**fields: str) -> bytes:
    parts = (
        f'--b\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    return "".join(parts).encode() + b"--b--\r\n"


FORM_TYPE = "multipart/form-data; boundary=b"
REFUSED: dict[str, tuple[str, bytes, Mapping[str, str], int, str]] = {
    "no model": ("/v1/embeddings", b"{}", {}, 400, "model: Field required"),
    "no JSON": ("/v1/embeddings", b"no", {}, 400, "not valid JSON"),
    "unknown model": ("/v1/embeddings", b'{"model":"other"}', {}, 503, "no channel for model"),
    "no such endpoint": ("/v1/embeddings", b'{"model":"talk"}', {}, 503, "no channel for model"),
    "wrong key": ("/v1/embeddings", b"{}", {"authorization": "Bearer sk-no"}, 401, "oken"),
    "no form": ("/v1/audio/translations", b"", {"content-type": FORM_TYPE}, 400, "no valid form"),
    "no boundary": ("/v1/images/edits", b"", {"content-type": "multipart/form-data"}, 400,
                    "boundary"),
    "form without model": ("/v1/images/edits", form(prompt="a"), {"content-type": FORM_TYPE}, 400,
                           "model: Field required"),
    "two models": ("/v1/images/edits", form(model="small")[:-7] + form(model="talk"),
                   {"content-type": FORM_TYPE}, 400, "more than once"),
    "too large": ("/v1/audio/translations", b"a", {"content-type": FORM_TYPE,
                  "content-length": str(2**30)}, 413, "too large"),
    "batches": ("/v1/messages/batches", b"{}", {}, 404, "send the requests one by one"),
    "files": ("/v1/files", b"{}", {}, 404, "the gateway does not serve /v1/files"),
    "realtime": ("/v1/realtime/sessions", b"{}", {}, 404, "use a streamed reply"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
async def test_refused_requests(
    passing: RunningGateway, upstream: ScriptedUpstream, case: str
) -> None:
    path, body, headers, status, text = REFUSED[case]
    answer = await passing.post(Format.CHAT, body, path=path, headers=headers)
    assert (answer.status, text in (await answer.json())["error"]["message"]) == (status, True)
    assert upstream.requests == []


async def test_the_upstreams_error_reaches_the_client(
    client: AsyncOpenAI, upstream: ScriptedUpstream
) -> None:
    error = {"message": f"{UPSTREAM_MODEL} has no dimensions", "param": "dimensions"}
    upstream.respond_with(json_response({"error": error}, 400))
    with pytest.raises(BadRequestError, match="small has no dimensions"):
        await client.embeddings.create(model=MODEL, input="a", dimensions=3)


async def test_failures_of_chat_do_not_stop_embeddings(
    passing: RunningGateway, upstream: ScriptedUpstream
) -> None:
    async def respond(request: ReceivedRequest) -> Response:
        if request.path.endswith("/embeddings"):
            return embeddings([1.0])
        return json_response({"error": {"message": "no", "code": "model_not_found"}}, 404)

    upstream.respond_with(respond)
    for _ in range(3):
        assert (await passing.post(Format.CHAT, model=MODEL)).status == 503
    answer = await passing.post(Format.CHAT, {"model": MODEL, "input": "a"}, path="/v1/embeddings")
    assert answer.status == 200
    assert orjson.loads(await answer.read())["usage"]["total_tokens"] == 5


@pytest.mark.parametrize(
    ("format", "changes", "target"),
    [
        (Format.RESPONSES, {"query": {"api-version": "1"}}, "/v1/embeddings?api-version=1"),
        (Format.MESSAGES, {}, "/v1/embeddings"),
        (Format.CHAT, {"path": "/deployments/{model}/chat/completions"},
         "/v1/deployments/vendor%2Fsmall-1/embeddings"),
    ],
)  # fmt: skip
async def test_addresses(
    gateway_of_module: RunningGateway,
    upstream: ScriptedUpstream,
    format: Format,
    changes: dict[str, Any],
    target: str,
) -> None:
    base = upstream.address if format is Format.MESSAGES else f"{upstream.address}/v1"
    one = serving(upstream.address, "one", format=format.value, base_url=base, **changes)
    upstream.respond_with(embeddings([1.0]))
    async with as_new(gateway_of_module, [one], models=MODELS) as gateway:
        body = {"model": MODEL, "input": "a"}
        assert (await gateway.post(Format.CHAT, body, path="/v1/embeddings")).status == 200
    assert upstream.last_request.target == target
