"""Long tool loops of the stock libraries with upstreams that check what proves earlier reasoning."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import CallMode, Conversation, Options, Tool
from tests.conformance.clients.chat import ChatConversation
from tests.conformance.clients.messages import MessagesConversation
from tests.conformance.clients.responses import ResponsesConversation
from tests.support.gateway import ALPHA, BETA, RunningGateway, channel, run_gateway
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
    " tools to work correctly. Additional data, function call `default_api:read_clock` , position 2."
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
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    if not request.json.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return json_response(
            head | {"object": "chat.completion", "choices": [choice], "usage": usage}
        )
    calls = [{"index": index} | call for index, call in enumerate(message["tool_calls"])]
    deltas = [(message | {"tool_calls": calls}, None), ({}, "tool_calls")]
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
    async with run_gateway(tmp_path, [channel(Format.CHAT, upstream.address)]) as gateway:
        async with conversation(gateway, client) as talk:
            await tool_turns(talk, mode)
    assert (gemini.refusals, gemini.placeholders) == (0, 0)
