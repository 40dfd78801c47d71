"""Upstreams that refuse a part of a request are asked again without it, and so is the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.routing.refusals import TRIAL
from tests.support.gateway import channel, run_gateway
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
)

BETA = "x-2025-01-01"
TOOLS = [
    {"name": "f", "input_schema": {"type": "object"}, "input_examples": [{}]},
    {"type": "web_search_20260209", "name": "web_search"},
]

Case = tuple[Format, str, dict[str, Any], str]
CASES: list[Case] = [
    (
        Format.MESSAGES,
        f"Unexpected value(s) `{BETA}` for the `anthropic-beta` header.",
        {},
        f"beta:{BETA}",
    ),
    (
        Format.MESSAGES,
        "context_management: Extra inputs are not permitted",
        {"context_management": {"edits": []}},
        "context_management",
    ),
    (
        Format.MESSAGES,
        "tools.0.custom.input_examples: Extra inputs are not permitted",
        {"tools": TOOLS},
        "tools.input_examples",
    ),
    (
        Format.MESSAGES,
        "tools.1: Input tag 'web_search_20260209' found using 'type' does not match any of the"
        " expected tags: 'custom'",
        {"tools": TOOLS},
        "tool:web_search_20260209",
    ),
    (Format.CHAT, "Unknown parameter: 'verbosity'.", {"verbosity": "low"}, "verbosity"),
    (
        Format.CHAT,
        "Unrecognized request argument supplied: verbosity",
        {"verbosity": "low"},
        "verbosity",
    ),
    (
        Format.CHAT,
        "Unsupported value: 'temperature' does not support 0.7 with this model. Only the"
        " default (1) value is supported.",
        {"temperature": 0.7},
        "temperature",
    ),
    (
        Format.RESPONSES,
        "Unsupported parameter: 'reasoning.summary' is not supported with this model.",
        {"reasoning": {"effort": "low", "summary": "auto"}, "store": False},
        "reasoning.summary",
    ),
]


def refusing(message: str, name: str, upstream_format: Format) -> Any:
    """Refuses what the name means, wherever it is."""
    mark = name.rpartition(".")[2].removeprefix("beta:").removeprefix("tool:").encode()

    async def answer(request: ReceivedRequest) -> Response:
        betas = request.headers.get("anthropic-beta", "").encode()
        if b'"%b"' % mark in request.body or mark in betas:
            return json_response({"error": {"message": message, "type": "x"}}, 400)
        if request.json.get("stream"):
            return fixture_stream(upstream_format)
        return fixture_reply(upstream_format)

    return answer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[3])
async def test_one_retry_then_none(
    upstream: ScriptedUpstream, tmp_path: Path, case: Case, stream: bool
) -> None:
    client, message, fields, name = case
    upstream.respond_with(refusing(message, name, client))
    headers = {"anthropic-beta": f"{BETA},kept-2025-01-01"}
    lines = [channel(client, upstream.address)]
    async with run_gateway(tmp_path, lines) as gateway:
        for _ in range(2):
            answer = await gateway.post(client, headers=headers, stream=stream, **fields)
            assert answer.status == 200, await answer.read()
            assert name in answer.headers["x-gateway-dropped"]
        first, second = await gateway.rows(2)
        (state,) = gateway.daemon.console.accounts.states()
    assert (first.attempts, second.attempts) == (2, 1)
    assert name in (first.dropped or "") and first.dropped == second.dropped
    if client is Format.MESSAGES:
        assert "kept-2025-01-01" in upstream.last_request.headers["anthropic-beta"]
    assert state.refuses == (name,)
    assert (state.succeeded, state.failed) == (2, 0)


async def test_the_trait_needs_no_refusal(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    client, message, fields, name = CASES[1]
    upstream.respond_with(refusing(message, name, client))
    lines = [channel(client, upstream.address, traits={"refuses": [name]})]
    async with run_gateway(tmp_path, lines) as gateway:
        answer = await gateway.post(client, **fields)
        assert answer.status == 200
        assert (await gateway.row()).attempts == 1


@pytest.mark.parametrize(("sent", "learned"), [("0", False), ("1", True)])
async def test_a_check_teaches_nothing(
    upstream: ScriptedUpstream, tmp_path: Path, sent: str, learned: bool
) -> None:
    client, message, fields, name = CASES[1]
    upstream.respond_with(refusing(message, name, client))
    async with run_gateway(tmp_path, [channel(client, upstream.address)]) as gateway:
        answer = await gateway.post(client, headers={"x-gateway-learn": sent}, **fields)
        assert answer.status == 200
        runtime = gateway.daemon.runtime
        (state,) = gateway.daemon.console.accounts.states()
        assert state.refuses == ((name,) if learned else ())
        ((model, _),) = runtime.refusals.values.items()
        assert bool(runtime.refusals.values_of(model, runtime.now() + TRIAL)) == learned


async def test_what_is_needed_is_not_left_out(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(
        json_response({"error": {"message": "Unknown parameter: 'messages'."}}, 400)
    )
    async with run_gateway(tmp_path, [channel(Format.CHAT, upstream.address)]) as gateway:
        answer = await gateway.post(Format.CHAT)
        assert answer.status == 400
        assert (await gateway.row()).attempts == 1


async def test_a_refusal_for_another_reason_is_not_remembered(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    error = {"message": "no tool is named 'Unknown parameter: verbosity'"}
    upstream.respond_with(json_response({"error": error}, 400))
    lines = [channel(Format.CHAT, upstream.address)]
    async with run_gateway(tmp_path, lines) as gateway:
        assert (await gateway.post(Format.CHAT, verbosity="low")).status == 400
        runtime = gateway.daemon.runtime
        ((model, known),) = runtime.refusals.values.items()
        assert max(known.values()) <= runtime.now() + TRIAL
        assert runtime.refusals.values_of(model, runtime.now() + TRIAL) == ()


async def test_one_that_refuses_everything(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async def refuse(request: ReceivedRequest) -> Response:
        names = [name for name in request.json if name.startswith("field_")]
        message = f"Unknown parameter: '{names[0]}'." if names else "no"
        return json_response({"error": {"message": message}}, 400)

    upstream.respond_with(refuse)
    fields = {f"field_{letter}": 1 for letter in "abcdefghijklmnop"}
    async with run_gateway(tmp_path, [channel(Format.CHAT, upstream.address)]) as gateway:
        answer = await gateway.post(Format.CHAT, **fields)
        assert answer.status == 400
        assert (await gateway.row()).attempts == 7
