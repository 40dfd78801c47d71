"""Requests to platforms are those of the platforms' official clients, byte by byte."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import anthropic
import openai
import pytest

from gateway.config.presets import presets
from gateway.core.formats import Format
from tests.support.gateway import ALPHA, BETA, RunningGateway
from tests.support.shared_gateway import as_new
from tests.support.stock_clients import open_anthropic, open_openai
from tests.support.upstream import (
    ReceivedRequest,
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.shared_gateway

KEY = "platform-key-0123456789"
MODEL = "the-upstreams-model"
PLACE = {"region": "here", "project_id": "mine"}
PATHS = {
    ("azure", "/openai/v1"): Format,
    ("foundry", "/anthropic"): (Format.MESSAGES,),
    ("foundry", "/openai/v1"): (Format.CHAT, Format.RESPONSES),
    ("bedrock", "/anthropic"): (Format.MESSAGES,),
    ("bedrock", "/openai/v1"): (Format.CHAT, Format.RESPONSES),
    ("vertex", "/v1/projects/mine/locations/here/publishers/anthropic"): Format,
    ("vertex-gemini", "/v1/projects/mine/locations/here/endpoints/openapi"): Format,
    ("claude-aws", ""): Format,
    ("claude-google", "/v1/projects/mine/locations/here/workspaces/ours/invoke"): Format,
}
"""Of presets without a base address: its path, by formats."""
OPTIONS = {"claude-aws": {"headers": {"anthropic-workspace-id": "ours"}}}
BY_CLIENT = ("user-agent", "accept", "accept-encoding", "connection", "content-length")
"""Headers that say how a client reads, and how long the body is."""
CREDENTIALS = ("authorization", "x-api-key", "api-key")
VERSION = "anthropic-version"
"""A translation has the version for which it is written, and Vertex has it in the body."""


def base_path(preset: str, format: Format) -> str:
    if (base := presets()[preset]["formats"][format].get("base_url")) is not None:
        return urlsplit(base).path
    return next(path for (name, path), formats in PATHS.items() if name == preset
                and format in formats)  # fmt: skip


def official(preset: str, format: Format, base: str, address: str) -> Any:
    """The official client of a platform for a format."""
    options: dict[str, Any] = {"base_url": base, "max_retries": 0, "api_key": KEY}
    if format is not Format.MESSAGES:
        options["http_client"] = openai.DefaultAsyncHttpxClient(verify=False)
        if preset == "bedrock":
            return openai.AsyncBedrockOpenAI(aws_region="us-east-1", **options)
        return openai.AsyncOpenAI(**options)
    options["http_client"] = anthropic.DefaultAsyncHttpxClient(verify=False)
    if preset == "foundry":
        return anthropic.AsyncAnthropicFoundry(**options)
    if preset == "bedrock":
        return anthropic.AsyncAnthropicBedrockMantle(**options)
    if preset == "claude-aws":
        return anthropic.AsyncAnthropicAWS(workspace_id="ours", **options)
    if preset == "claude-google":
        key = options.pop("api_key")
        return anthropic.AsyncAnthropicGoogleCloud(token_provider=lambda: key, **options)
    if preset == "vertex":
        options |= {"base_url": f"{address}/v1", "access_token": options.pop("api_key")}
        return anthropic.AsyncAnthropicVertex(**PLACE, **options)
    if presets()[preset]["formats"][format].get("auth") == "bearer":
        options |= {"auth_token": options.pop("api_key")}
    return anthropic.AsyncAnthropic(**options)


async def call(client: Any, format: Format, model: str, *, streamed: bool) -> None:
    said = [{"role": "user", "content": "Hellö"}]
    fields: dict[str, Any] = {"model": model}
    match format:
        case Format.CHAT:
            create, fields = client.chat.completions.create, fields | {"messages": said}
            fields |= {"stream_options": {"include_usage": True}} if streamed else {}
        case Format.RESPONSES:
            create, fields = client.responses.create, fields | {"input": "Hellö", "store": False}
        case Format.MESSAGES:
            create, fields = client.messages.create, fields | {"messages": said, "max_tokens": 9}
    reply = await create(**fields, **({"stream": True} if streamed else {}))
    if streamed:
        async for _ in reply:
            pass


def headers_of(request: ReceivedRequest, *without: str) -> dict[str, str]:
    """The headers, and the credentials without the name of their header: platforms that take
    several get one of them from the gateway, and another or all of them from their client."""
    named = {name.lower(): value for name, value in request.headers.items()}
    keys = {named.pop(name).removeprefix("Bearer ") for name in CREDENTIALS if name in named}
    named["credentials"] = " ".join(sorted(keys))
    left_out = {*BY_CLIENT, *without}
    return {
        name: value
        for name, value in named.items()
        if name not in left_out and not name.startswith("x-stainless-")
    }


CASES = [
    pytest.param(name, Format(format), id=f"{name}-{format}")
    for name, preset in presets().items()
    for format in preset["formats"]
]


@pytest.mark.parametrize(("preset", "format"), CASES)
async def test_requests_are_those_of_the_official_client(
    gateway_of_module: RunningGateway, upstream: ScriptedUpstream, preset: str, format: Format
) -> None:
    base = upstream.address + base_path(preset, format)
    is_keyless = presets()[preset]["formats"][format].get("auth") == "none"
    accounts = {} if is_keyless else {"accounts": [{"name": "main", "key": KEY}]}
    model = BETA if format is not Format.MESSAGES else ALPHA
    one = {"preset": preset, "format": format.value, "base_url": base, "models": {model: MODEL}}
    async with (
        as_new(gateway_of_module, [one | accounts | OPTIONS.get(preset, {})]) as gateway,
        official(preset, format, base, upstream.address) as platform,
        open_openai(gateway) as beta,
        open_anthropic(gateway) as alpha,
    ):
        for streamed in (False, True):
            script = fixture_stream(format) if streamed else fixture_reply(format)
            upstream.respond_with(script)
            await call(platform, format, MODEL, streamed=streamed)
            expected = upstream.last_request
            for client in (
                each for each in Format if each is not Format.RESPONSES or model is BETA
            ):
                sender = alpha if client is Format.MESSAGES else beta
                await call(sender, client, model, streamed=streamed)
                sent = upstream.last_request
                assert sent is not expected
                assert sent.target == expected.target
                is_native = client is format and preset != "vertex"
                without = (VERSION,) * (not is_native) + ("credentials",) * is_keyless
                assert headers_of(sent, *without) == headers_of(expected, *without)
                assert headers_of(sent)["credentials"] == ("" if is_keyless else KEY)
                if client is not format:
                    continue
                if preset == "vertex":  # which has other fields than the client of the gateway
                    version = {"anthropic_version": "vertex-2023-10-16"}  # documented, in the body
                    assert sent.json == expected.json | version
                else:
                    assert sent.body == expected.body


async def test_a_classic_deployment_of_azure(
    gateway_of_module: RunningGateway, upstream: ScriptedUpstream
) -> None:
    one = {
        "preset": "azure",
        "format": "chat",
        "base_url": f"{upstream.address}/openai",
        "path": "/deployments/{model}/chat/completions",
        "query": {"api-version": "2024-10-21"},
        "models": {BETA: MODEL},
        "accounts": [{"name": "main", "key": KEY}],
        "endpoints": ["embeddings"],
    }
    http = openai.DefaultAsyncHttpxClient(verify=False)
    platform = openai.AsyncAzureOpenAI(
        azure_endpoint=upstream.address,
        api_version="2024-10-21",
        api_key=KEY,
        max_retries=0,
        http_client=http,
    )
    embeddings = {"data": [], "usage": {"prompt_tokens": 1}}
    async with (
        as_new(gateway_of_module, [one]) as gateway,
        open_openai(gateway) as client,
        platform,
    ):
        sent = []
        for each, model in ((platform, MODEL), (client, BETA)):
            upstream.respond_with(fixture_reply("chat"))
            await call(each, Format.CHAT, model, streamed=False)
            upstream.respond_with(json_response(embeddings))
            await each.embeddings.create(model=model, input="a", encoding_format="float")
            sent += [upstream.requests[-2:]]
    for expected, actual in zip(*sent, strict=True):
        assert (actual.target, actual.body) == (expected.target, expected.body)
        assert actual.headers["api-key"] == expected.headers["api-key"]
        assert headers_of(actual) == headers_of(expected)
