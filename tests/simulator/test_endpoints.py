"""What all endpoints share: keys, refusals, the model list, and the pace of a stream."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from aiohttp import ClientSession, web
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gateway.simulator import build_simulator

PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
ASK = {
    "model": "m",
    "max_tokens": 99,
    "input": "hi",
    "messages": [{"role": "user", "content": "hi"}],
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("headers", [{"authorization": "Bearer x"}, {"x-api-key": "x"}])
async def test_any_key(http: ClientSession, path: str, headers: dict[str, str]) -> None:
    async with http.post(path, json=ASK, headers=headers) as response:
        assert response.status == 200
        assert response.headers["request-id"] == response.headers["x-request-id"]
        assert (await response.json())["model"] == "m"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", [b"{", b"", b"[1]", b"\xff"])
async def test_bad_json(http: ClientSession, path: str, body: bytes) -> None:
    async with http.post(path, data=body) as response:
        assert response.status == 400
        answer = await response.json()
        assert answer["error"]["type"] == "invalid_request_error"
        assert ("code" in answer["error"]) == (path != "/v1/messages")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "odd",
    [
        {"messages": ["x"], "input": ["x"]},
        {"messages": [{"role": "user", "content": 5}], "input": [{"role": "user", "content": 5}]},
        {
            "messages": [{"role": "tool", "tool_call_id": []}],
            "input": [{"type": "function_call_output"}],
        },
        {"tools": "x", "tool_choice": 5, "stop": 5, "stop_sequences": {}, "stream_options": 5},
        {
            "tools": [
                5,
                {},
                {"type": "function", "name": "f", "function": {"name": "f", "parameters": []}},
            ]
        },
        {
            "thinking": 5,
            "reasoning": 5,
            "reasoning_effort": 5,
            "include": 5,
            "text": 5,
            "system": 5,
        },
        {"response_format": 5, "output_config": 5, "metadata": None, "unheard_of": 1},
    ],
)
async def test_unusual_fields_are_accepted(
    http: ClientSession, path: str, odd: dict[str, Any]
) -> None:
    for stream in (False, True):
        async with http.post(path, json={**ASK, **odd, "stream": stream}) as response:
            assert response.status == 200
            assert await response.read()


@pytest.mark.parametrize("path", PATHS)
async def test_bad_schema(http: ClientSession, path: str) -> None:
    schema = {"type": "integer", "minimum": "low"}
    wish = {
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
        "text": {"format": {"type": "json_schema", "schema": schema}},
    }
    async with http.post(path, json={**ASK, **wish}) as response:
        assert response.status == 400
        assert "valid JSON Schema" in (await response.json())["error"]["message"]


async def test_unknown_paths(http: ClientSession) -> None:
    async with http.get("/v1/messages") as response:
        assert (response.status, (await response.json())["error"]["type"]) == (
            404,
            "not_found_error",
        )
    async with http.get("/nowhere") as response:
        assert response.status == 404
        answer = await response.json()
        assert answer["type"] == "error" and answer["error"]["code"] is None
        assert answer["request_id"] == response.headers["request-id"]


async def test_models(openai: AsyncOpenAI, anthropic: AsyncAnthropic) -> None:
    ids = [model.id async for model in openai.models.list()]
    assert ids == [model.id async for model in anthropic.models.list()]
    assert "beta-5.4" in ids


async def test_pace(caplog: pytest.LogCaptureFixture) -> None:
    """A stream is spread over time; one whose client has left ends quietly."""
    runner = web.AppRunner(build_simulator(pace=0.01))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        async with ClientSession(f"http://{host}:{port}") as session:
            began = time.monotonic()
            async with session.post("/v1/responses", json={**ASK, "stream": True}) as response:
                first = await response.content.readline()
                early = time.monotonic() - began
                await response.read()
            assert first == b"event: response.created\n"
            assert time.monotonic() - began - early > 0.1
            async with session.post("/v1/messages", json={**ASK, "stream": True}) as response:
                await response.content.readline()
                response.close()
            await asyncio.sleep(0.05)
    finally:
        await runner.cleanup()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
