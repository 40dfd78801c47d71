"""What the endpoint accepts and refuses, and the pace of a stream."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.support.simulator import run_simulator

PATH = "/v1/chat/completions"
ASK = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("headers", [{"authorization": "Bearer x"}, {"x-api-key": "x"}])
async def test_any_key(http: ClientSession, headers: dict[str, str]) -> None:
    async with http.post(PATH, json=ASK, headers=headers) as response:
        assert response.status == 200
        assert response.headers["x-request-id"].startswith("req_")
        assert (await response.json())["model"] == "m"


@pytest.mark.parametrize("body", [b"{", b"", b"[1]", b"\xff"])
async def test_bad_json(http: ClientSession, body: bytes) -> None:
    async with http.post(PATH, data=body) as response:
        assert response.status == 400
        error = (await response.json())["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_json")


@pytest.mark.parametrize(
    "odd",
    [
        {"messages": ["x"]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "tool", "tool_call_id": []}]},
        {"tools": "x", "tool_choice": 5, "stop": 5, "stream_options": 5},
        {"tools": [5, {}, {"type": "function", "function": {"name": "f", "parameters": []}}]},
        {"reasoning_effort": 5, "response_format": 5, "metadata": None, "unheard_of": 1},
    ],
)
async def test_unusual_fields_are_accepted(http: ClientSession, odd: dict[str, Any]) -> None:
    for stream in (False, True):
        async with http.post(PATH, json={**ASK, **odd, "stream": stream}) as response:
            assert response.status == 200
            assert await response.read()


async def test_bad_schema(http: ClientSession) -> None:
    schema = {"type": "integer", "minimum": "low"}
    wish = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    async with http.post(PATH, json={**ASK, **wish}) as response:
        assert response.status == 400
        assert "valid JSON Schema" in (await response.json())["error"]["message"]


async def test_unknown_paths(http: ClientSession) -> None:
    for path in (PATH, "/nowhere"):
        async with http.get(path) as response:
            assert response.status == 404
            assert "Invalid URL" in (await response.json())["error"]["message"]


async def test_pace(caplog: pytest.LogCaptureFixture) -> None:
    """A stream is spread over time; one whose client has left ends quietly."""
    body = {**ASK, "stream": True}
    async with run_simulator(pace=0.01) as address, ClientSession(address) as session:
        began = time.monotonic()
        async with session.post(PATH, json=body) as response:
            first = await response.content.readline()
            early = time.monotonic() - began
            await response.read()
        assert b'"role":"assistant"' in first
        assert time.monotonic() - began - early > 0.1
        async with session.post(PATH, json=body) as response:
            await response.content.readline()
            response.close()
        await asyncio.sleep(0.05)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
