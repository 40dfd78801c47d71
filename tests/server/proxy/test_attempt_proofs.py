"""Long tool loops of stock libraries with upstreams that check what proves earlier reasoning."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.config.load import parse_config
from gateway.core.formats import Format
from tests.conformance.clients.base import CallMode, Conversation, Options, Tool
from tests.conformance.clients.chat import ChatConversation
from tests.conformance.clients.messages import MessagesConversation
from tests.conformance.clients.responses import ResponsesConversation
from tests.support.gateway import ALPHA, BETA, RunningGateway, channel, gateway_config, run_gateway
from tests.support.paths import STREAMS
from tests.support.stock_clients import open_anthropic, open_openai
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    event_stream,
    json_response,
)

TURNS = 30
OPTIONS = Options(tools=(Tool("read_clock"),))
PLACEHOLDER = "skip_thought_signature_validator"
MISSING = (
    "Function call is missing a thought_signature in functionCall parts. This is required for"
    " tools to work correctly. Additional data, function call `default_api:read_clock`, position 2."
)

each_client = pytest.mark.parametrize("client", list(Format))
each_mode = pytest.mark.parametrize("mode", [CallMode.CREATE, CallMode.STREAM])


@asynccontextmanager
async def conversation(gateway: RunningGateway, client: Format) -> AsyncIterator[Conversation]:
    if client is Format.MESSAGES:
        async with open_anthropic(gateway) as anthropic:
            yield MessagesConversation(anthropic, ALPHA)
        return
    async with open_openai(gateway) as openai:
        kind = ChatConversation if client is Format.CHAT else ResponsesConversation
        yield kind(openai, BETA)


async def tool_turns(talk: Conversation, mode: CallMode, count: int = TURNS) -> None:
    """Each reply is a call; the next request has its result."""
    if mode is CallMode.STREAM and isinstance(talk, ChatConversation):
        mode = CallMode.HELPER  # the frames are the upstream's own, which begin calls in its way
    talk.ask("What time is it?")
    for turn in range(count):
        reply = await talk.receive(mode, OPTIONS)
        assert [name for name, _ in reply.called] == ["read_clock"]
        talk.answer((reply.calls[0][0], [f"{turn} o'clock"]))


class Gemini:
    """A chat upstream that wants with each call the signature that it came with, or the documented
    placeholder for calls of others."""

    def __init__(self) -> None:
        self.refusals = 0
        self.placeholders = 0

    async def __call__(self, request: ReceivedRequest) -> Response:
        steps = [each for each in request.json["messages"] if each.get("tool_calls")]
        for number, message in enumerate(steps):
            extra = message["tool_calls"][0].get("extra_content", {})
            signature = extra.get("google", {}).get("thought_signature")
            self.placeholders += signature == PLACEHOLDER
            if signature not in (f"signature {number}", PLACEHOLDER):
                self.refusals += 1
                error = {"code": 400, "message": MISSING, "status": "INVALID_ARGUMENT"}
                return json_response([{"error": error}], 400)
        call = {
            "id": f"function-call-{len(steps)}",
            "type": "function",
            "extra_content": {"google": {"thought_signature": f"signature {len(steps)}"}},
            "function": {"name": "read_clock", "arguments": "{}"},
        }
        return chat_reply(request, {"tool_calls": [call]})


def chat_reply(request: ReceivedRequest, message: dict[str, Any]) -> Response:
    message = {"role": "assistant", "content": None} | message
    head = {"id": "chatcmpl-1", "created": 1, "model": "m"}
    usage: dict[str, Any] = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    usage |= {"prompt_tokens_details": {"cached_tokens": 0}}
    usage |= {"completion_tokens_details": {"reasoning_tokens": 0}}
    if not request.json.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return json_response(
            head | {"object": "chat.completion", "choices": [choice], "usage": usage}
        )
    calls = [{"index": index} | call for index, call in enumerate(message["tool_calls"])]
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        ({"tool_calls": calls}, None),
        ({}, "tool_calls"),
    ]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}]}
        for delta, reason in deltas
    ]
    chunks.append({"choices": [], "usage": usage})
    head["object"] = "chat.completion.chunk"
    frames = [b"data: %b\n\n" % orjson.dumps(head | chunk) for chunk in chunks]
    return event_stream(b"".join(frames) + b"data: [DONE]\n\n")


@each_mode
@each_client
async def test_thought_signatures_return_with_their_calls(
    upstream: ScriptedUpstream, tmp_path: Path, client: Format, mode: CallMode
) -> None:
    gemini = Gemini()
    upstream.respond_with(gemini)
    lines = [channel(Format.CHAT, upstream.address)]
    async with run_gateway(tmp_path, lines) as gateway, conversation(gateway, client) as talk:
        await tool_turns(talk, mode)
    assert (gemini.refusals, gemini.placeholders) == (0, 0)


@each_mode
@each_client
async def test_calls_without_a_thought_signature_get_the_placeholder(
    upstream: ScriptedUpstream, tmp_path: Path, client: Format, mode: CallMode
) -> None:
    gemini = Gemini()
    upstream.respond_with(gemini)
    lines = [channel(Format.CHAT, upstream.address)]
    async with run_gateway(tmp_path, lines) as gateway, conversation(gateway, client) as talk:
        talk.ask("What time is it?")
        talk.recall("", ("call_elsewhere", "read_clock", {}))
        talk.answer(("call_elsewhere", ["noon"]))
        await tool_turns(talk, mode, 3)
        rows = await gateway.rows(3)
    assert gemini.refusals == 1
    assert [row.attempts for row in rows] == [2, 1, 1]
    assert [row.dropped for row in rows] == ["thinking.refused"] * 3


CLAIMS = {
    "code": {"code": "invalid_encrypted_content", "message": "The encrypted content is wrong."},
    "null": {"code": None, "message": "The encrypted content gAAA...x could not be verified."},
    "zero": {"code": 0, "message": "Encrypted content could not be decrypted or parsed."},
    "none": {"message": "encrypted content organization_id did not match the target organization"},
    "bound": {"message": "messages.1: this thinking block is bound to a different conversation"},
    "signature": {"message": "messages.1.content.0: Invalid `signature` in `thinking` block"},
}


class Binding:
    """An upstream of thinking that is bound to what comes before it and to the account: another
    account gets an error with the `claim`."""

    def __init__(self, claim: dict[str, Any]) -> None:
        self.claim = claim
        self.refusals = self.kept = 0

    async def __call__(self, request: ReceivedRequest) -> Response:
        body = request.json
        history = body.get("messages") or body["input"]
        is_messages = "messages" in body
        base = [body.get("system"), body.get("instructions"), body.get("tools")]
        self.kept = 0
        for place, proof in _proofs(history, is_messages=is_messages):
            self.kept += 1
            if proof != _seal(request.key, base, history, place, is_messages=is_messages):
                self.refusals += 1
                return json_response({"error": {"type": "invalid_request_error"} | self.claim}, 400)
        seal = _seal(request.key, base, history, len(history), is_messages=is_messages)
        return (messages_reply if is_messages else responses_reply)(len(history), seal)


def _proofs(history: list[Any], *, is_messages: bool) -> Iterator[tuple[int, str]]:
    for place, item in enumerate(history):
        for block in item["content"] if is_messages else [item]:
            if isinstance(block, dict) and block.get("type") in ("thinking", "reasoning"):
                yield place, block.get("signature") or block["encrypted_content"]


def _seal(key: str, base: list[Any], history: list[Any], place: int, *, is_messages: bool) -> str:
    before = [_bare(each) for each in (base, history[:place])]
    if not is_messages:  # ids are no part of a conversation that is not stored
        before[1] = [
            {k: v for k, v in each.items() if k not in ("id", "status")} for each in before[1]
        ]
    return sha256(orjson.dumps([key, before])).hexdigest()


def _bare(value: Any) -> Any:
    """Without cache breakpoints, which bind nothing; a text is a list of one block."""
    if isinstance(value, list):
        return [_bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    bare = {name: _bare(each) for name, each in value.items() if name != "cache_control"}
    if isinstance(content := bare.get("content"), str):
        bare["content"] = [{"type": "text", "text": content}]
    return bare


def messages_reply(number: int, seal: str) -> Response:
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": seal},
        {"type": "tool_use", "id": f"toolu_{number}", "name": "read_clock", "input": {}},
    ]
    usage = {"input_tokens": 9, "output_tokens": 5}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    end = {"stop_reason": "tool_use", "stop_sequence": None, "usage": usage}
    return json_response(head | {"content": content} | end)


def responses_reply(number: int, seal: str) -> Response:
    output = [
        {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": seal},
        {
            "id": f"fc_{number}",
            "type": "function_call",
            "status": "completed",
            "call_id": f"call_{number}",
            "name": "read_clock",
            "arguments": "{}",
        },
    ]
    reply = orjson.loads((STREAMS / "text" / "responses.json").read_bytes())
    return json_response(reply | {"output": output})


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize("upstream_format", [Format.MESSAGES, Format.RESPONSES])
@each_client
async def test_a_refused_proof_costs_one_try(
    upstream: ScriptedUpstream,
    tmp_path: Path,
    client: Format,
    upstream_format: Format,
    claim: dict[str, Any],
) -> None:
    binding = Binding(claim)
    upstream.respond_with(binding)
    lines = [channel(upstream_format, upstream.address)]
    async with run_gateway(tmp_path, lines) as gateway, conversation(gateway, client) as talk:
        await tool_turns(talk, CallMode.CREATE, 3)
        assert (binding.refusals, binding.kept) == (0, 2)
        # The credential is another one now: nothing in the gateway's names has changed.
        lines[0]["accounts"][0]["key"] = "another-account-4471"
        config = gateway_config(tmp_path, lines)
        gateway.daemon.runtime.replace_config(parse_config(orjson.dumps(config).decode()))
        await tool_turns(talk, CallMode.CREATE, 4)
        rows = await gateway.rows(7)
    assert binding.refusals == 1, [row.upstream_error for row in rows]
    assert binding.kept == 3  # the new account's own
    assert [row.attempts for row in rows] == [1, 1, 1, 2, 1, 1, 1]
    assert all((row.dropped or "").startswith("thinking.") for row in rows[3:])
    assert not any((row.dropped or "").startswith("thinking.") for row in rows[:3])
