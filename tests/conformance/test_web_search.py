"""Web searches that the gateway runs, as the stock client libraries see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gateway.core.formats import Format
from tests.support.gateway import RunningGateway, request_body
from tests.support.searches import model_reply, search, search_tool, searching_gateway
from tests.support.upstream import json_response

ANSWER = "Oslo has 717,710 people (https://example.org/oslo)."


@asynccontextmanager
async def anthropic_client(gateway: RunningGateway) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(
        base_url=gateway.address, api_key=gateway.key, max_retries=0
    ) as client:
        yield client


@asynccontextmanager
async def openai_client(gateway: RunningGateway) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(
        base_url=f"{gateway.address}/v1", api_key=gateway.key, max_retries=0
    ) as client:
        yield client


async def ask_anthropic(gateway: RunningGateway, *, stream: bool, **fields: Any) -> Any:
    body = request_body(Format.MESSAGES) | search_tool(Format.MESSAGES) | fields
    async with anthropic_client(gateway) as client:
        if not stream:
            return await client.messages.create(**body)
        async with client.messages.stream(**body) as helper:
            return await helper.get_final_message()


async def ask_openai(gateway: RunningGateway, *, stream: bool, **fields: Any) -> Any:
    body = request_body(Format.RESPONSES) | search_tool(Format.RESPONSES) | fields
    async with openai_client(gateway) as client:
        if not stream:
            return await client.responses.create(**body)
        async with client.responses.stream(**body) as helper:
            async for _ in helper:
                pass
            return await helper.get_final_response()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("upstream_format", list(Format))
async def test_server_tool_blocks(tmp_path: Path, upstream_format: Format, stream: bool) -> None:
    async with searching_gateway(tmp_path, upstream_format) as searching:
        searching.upstream.respond_with(
            model_reply(upstream_format, "Let me look.", search()),
            model_reply(upstream_format, ANSWER),
        )
        message = await ask_anthropic(searching.gateway, stream=stream)
        kinds = [block.type for block in message.content]
        assert kinds == ["text", "server_tool_use", "web_search_tool_result", "text"]
        _, call, result, answer = message.content
        assert call.id.startswith("srvtoolu_") and result.tool_use_id == call.id
        assert (call.name, call.input) == ("web_search", {"query": "population of Oslo"})
        urls = [page.url for page in result.content]
        assert urls == ["https://example.org/oslo", "https://docs.example.net/norway"]
        assert [page.page_age for page in result.content] == [None, "2026-01-02"]
        assert all(page.encrypted_content for page in result.content)
        assert answer.text == ANSWER
        (citation,) = answer.citations
        assert (citation.type, citation.url) == ("web_search_result_location", urls[0])
        assert message.stop_reason == "end_turn"
        usage = message.usage
        assert (usage.input_tokens, usage.output_tokens) == (200, 20)
        assert usage.server_tool_use.web_search_requests == 1
        row = await searching.gateway.row()
        assert (row.input_tokens, row.output_tokens, row.web_searches) == (200, 20, 1)
        assert row.usage_source == "upstream"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("upstream_format", list(Format))
async def test_search_items(tmp_path: Path, upstream_format: Format, stream: bool) -> None:
    async with searching_gateway(tmp_path, upstream_format) as searching:
        searching.upstream.respond_with(
            model_reply(upstream_format, "Let me look.", search()),
            model_reply(upstream_format, ANSWER),
        )
        response = await ask_openai(searching.gateway, stream=stream)
        assert [item.type for item in response.output] == [
            "message",
            "web_search_call",
            "message",
        ]
        item = response.output[1]
        assert (item.status, item.action.query) == ("completed", "population of Oslo")
        urls = [source.url for source in item.action.sources]
        assert urls == ["https://example.org/oslo", "https://docs.example.net/norway"]
        (content,) = response.output[2].content
        (annotation,) = content.annotations
        assert (annotation.type, annotation.url) == ("url_citation", urls[0])
        assert content.text[annotation.start_index : annotation.end_index] == urls[0]
        assert response.status == "completed"
        assert (response.usage.input_tokens, response.usage.output_tokens) == (200, 20)
        assert response.tool_usage.web_search.num_requests == 1
        assert response.tools[0].type == "web_search"


async def test_a_conversation_goes_on_with_the_blocks(tmp_path: Path) -> None:
    async with searching_gateway(tmp_path, Format.CHAT) as searching:
        searching.upstream.respond_with(
            model_reply(Format.CHAT, search()),
            model_reply(Format.CHAT, ANSWER),
            model_reply(Format.CHAT, "Yes."),
        )
        message = await ask_anthropic(searching.gateway, stream=True)
        turns = [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": "Sure?"},
        ]
        final = await ask_anthropic(searching.gateway, stream=False, messages=turns)
        assert final.content[0].text == "Yes."
        sent = searching.bodies[2]["messages"]
        roles = [turn["role"] for turn in sent]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]
        assert "717,710" in sent[2]["content"]


async def test_citations_do_not_return_to_messages_upstreams(tmp_path: Path) -> None:
    """They have no encrypted index of the upstream, without which it refuses them."""
    async with searching_gateway(tmp_path, Format.MESSAGES) as searching:
        searching.upstream.respond_with(
            model_reply(Format.MESSAGES, search()),
            model_reply(Format.MESSAGES, ANSWER),
            model_reply(Format.MESSAGES, "Yes."),
        )
        message = await ask_anthropic(searching.gateway, stream=True)
        assert message.content[-1].citations
        turns = [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": "Sure?"},
        ]
        await ask_anthropic(searching.gateway, stream=False, messages=turns)
        sent = str(searching.bodies[2]["messages"])
        assert ANSWER in sent and "citations" not in sent


async def test_a_conversation_goes_on_with_the_items(tmp_path: Path) -> None:
    async with searching_gateway(tmp_path, Format.MESSAGES) as searching:
        searching.upstream.respond_with(
            model_reply(Format.MESSAGES, search()),
            model_reply(Format.MESSAGES, ANSWER),
            model_reply(Format.MESSAGES, "Yes."),
        )
        response = await ask_openai(searching.gateway, stream=True)
        items = [
            {"role": "user", "content": "Hello"},
            *response.output,
            {"role": "user", "content": "Sure?"},
        ]
        final = await ask_openai(searching.gateway, stream=False, input=items)
        assert final.output_text == "Yes."
        _, assistant, result, *_ = searching.bodies[2]["messages"]
        assert assistant["content"][0]["type"] == "tool_use"
        assert "717,710" in str(result["content"])


async def test_a_search_that_fails(tmp_path: Path) -> None:
    async with searching_gateway(tmp_path, Format.CHAT) as searching:
        searching.endpoint.respond_with(json_response({}, 500))
        searching.upstream.respond_with(
            model_reply(Format.CHAT, search()), model_reply(Format.CHAT, "I do not know.")
        )
        message = await ask_anthropic(searching.gateway, stream=True)
        assert message.content[1].content.error_code == "unavailable"
        assert message.usage.server_tool_use is None
        searching.upstream.respond_with(
            model_reply(Format.CHAT, search()), model_reply(Format.CHAT, "I do not know.")
        )
        response = await ask_openai(searching.gateway, stream=True)
        assert (response.output[0].status, response.status) == ("failed", "completed")


async def test_a_background_response_searches(tmp_path: Path) -> None:
    async with searching_gateway(tmp_path, Format.CHAT) as searching:
        searching.upstream.respond_with(
            model_reply(Format.CHAT, search()), model_reply(Format.CHAT, ANSWER)
        )
        body = request_body(Format.RESPONSES) | search_tool(Format.RESPONSES)
        async with openai_client(searching.gateway) as client, asyncio.timeout(10):
            response = await client.responses.create(**body, background=True)
            while response.status in ("queued", "in_progress"):
                await asyncio.sleep(0.05)
                response = await client.responses.retrieve(response.id)
        assert response.status == "completed"
        assert [item.type for item in response.output] == ["web_search_call", "message"]
        assert response.output_text == ANSWER


async def test_a_chain_of_responses_with_searches(tmp_path: Path) -> None:
    async with searching_gateway(tmp_path, Format.MESSAGES) as searching:
        searching.upstream.respond_with(
            model_reply(Format.MESSAGES, search()),
            model_reply(Format.MESSAGES, ANSWER),
            model_reply(Format.MESSAGES, search("and Bergen?")),
            model_reply(Format.MESSAGES, "Fewer."),
        )
        first = await ask_openai(searching.gateway, stream=True)
        second = await ask_openai(
            searching.gateway, stream=False, input="And Bergen?", previous_response_id=first.id
        )
        assert second.output_text == "Fewer."
        turns = searching.bodies[-1]["messages"]
        assert [turn["role"] for turn in turns] == ["user", "assistant"] * 3 + ["user"]
        assert sum("717,710" in str(turn["content"]) for turn in turns) == 3
