"""The conversations endpoints, with the stock client library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from gateway.admin.retention import delete_unused_conversations
from gateway.core.formats import Format
from tests.support.gateway import BETA, RunningGateway, channel, run_gateway
from tests.support.shared_gateway import as_new, in_the_modules_loop
from tests.support.stock_clients import open_openai
from tests.support.upstream import (
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.shared_gateway

ITEMS: list[Any] = [
    {"role": "user", "content": "Hello"},
    {"type": "message", "role": "assistant", "content": "Hi."},
    {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "4"},
]


async def test_a_conversation_and_its_items(openai: AsyncOpenAI) -> None:
    conversations = openai.conversations
    created = await conversations.create(items=ITEMS[:2], metadata={"topic": "weather"})
    assert created.object == "conversation"
    assert created.id.startswith("conv_")
    assert created.metadata == {"topic": "weather"}
    assert await conversations.retrieve(created.id) == created
    changed = await conversations.update(created.id, metadata={"topic": "else"})
    assert changed.metadata == {"topic": "else"}
    assert await conversations.retrieve(created.id) == changed

    added = await conversations.items.create(created.id, items=ITEMS[2:])
    assert [item.type for item in added.data] == ["function_call", "function_call_output"]
    page = await conversations.items.list(created.id, order="asc", limit=3)
    assert [item.type for item in page.data] == ["message", "message", "function_call"]
    assert page.has_more
    everything = [item async for item in conversations.items.list(created.id, limit=1)]
    assert [item.id for item in everything[::-1]][:3] == [item.id for item in page.data]
    assert len({item.id for item in everything}) == 4
    first: Any = page.data[0]
    assert (first.role, first.status, first.content[0].text) == ("user", "completed", "Hello")
    assert await conversations.items.retrieve(first.id, conversation_id=created.id) == first
    kept = await conversations.items.delete(first.id, conversation_id=created.id)
    assert kept.id == created.id
    assert len((await conversations.items.list(created.id)).data) == 3
    with pytest.raises(NotFound):
        await conversations.items.retrieve(first.id, conversation_id=created.id)

    deleted = await conversations.delete(created.id)
    assert (deleted.id, deleted.deleted) == (created.id, True)
    with pytest.raises(NotFound):
        await conversations.retrieve(created.id)
    with pytest.raises(NotFound):
        await conversations.items.list(created.id)


NotFound = openai.NotFoundError


async def test_no_two_items_have_one_id(client: AsyncOpenAI, upstream: ScriptedUpstream) -> None:
    """Pages begin after an id: with two of them, the client library would read them for ever."""
    upstream.respond_with(fixture_reply(Format.CHAT))
    same: list[Any] = [ITEMS[0] | {"type": "message", "id": "msg_same"}] * 2
    conversation = await client.conversations.create(items=same)
    added = await client.conversations.items.create(conversation.id, items=same)
    assert "msg_same" not in [item.id for item in added.data]
    await reply(client, "whole", conversation.id, same)
    async with asyncio.timeout(5):
        pages = client.conversations.items.list(conversation.id, limit=2, order="asc")
        ids = [item.id async for item in pages]
    assert ids[0] == "msg_same"
    assert len(ids) == len(set(ids)) == 7


async def test_an_update_without_metadata_changes_nothing(
    gateway: RunningGateway, openai: AsyncOpenAI
) -> None:
    created = await openai.conversations.create(metadata={"topic": "weather"})
    headers = {"authorization": f"Bearer {gateway.key}"}
    path = f"/v1/conversations/{created.id}"
    for body, expected in (
        ({}, {"topic": "weather"}),
        ({"metadata": None}, {}),
        ({"metadata": {"a": "b"}}, {"a": "b"}),
        ({"metadata": {}}, {}),
    ):
        answer = await gateway.http.post(path, json=body, headers=headers)
        assert (await answer.json())["metadata"] == expected
        assert (await openai.conversations.retrieve(created.id)).metadata == expected


async def test_errors_have_the_form_of_responses(gateway: RunningGateway) -> None:
    headers = {"authorization": f"Bearer {gateway.key}"}
    missing = await gateway.http.get("/v1/conversations/conv_1", headers=headers)
    unknown_method = await gateway.http.get("/v1/conversations", headers=headers)
    unauthorized = await gateway.http.get("/v1/conversations/conv_1/items")
    statuses = {404: missing, 405: unknown_method, 401: unauthorized}
    for status, answer in statuses.items():
        assert answer.status == status
        body = await answer.json()
        assert body.keys() == {"error"}
        assert body["error"].keys() == {"message", "type", "param", "code"}
    assert (await missing.json())["error"]["type"] == "invalid_request_error"
    assert unknown_method.headers["allow"] == "POST"


async def test_an_empty_conversation(openai: AsyncOpenAI) -> None:
    created = await openai.conversations.create()
    assert created.metadata == {}
    assert (await openai.conversations.items.list(created.id)).data == []


async def test_other_keys_find_nothing(gateway: RunningGateway, openai: AsyncOpenAI) -> None:
    created = await openai.conversations.create(items=ITEMS)
    _, key = await gateway.operations.create_key("other", "default")
    async with openai.with_options(api_key=key) as other:
        for attempt in (
            other.conversations.retrieve(created.id),
            other.conversations.update(created.id, metadata={}),
            other.conversations.delete(created.id),
            other.conversations.items.create(created.id, items=ITEMS),
        ):
            with pytest.raises(NotFound, match=created.id):
                await attempt


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": "x"}, "items"),
        ({"items": [{"role": "robot", "content": "x"}]}, "items.0.role"),
        ({"items": [{"type": "item_reference", "id": "msg_1"}]}, "items.0"),
        ({"items": ITEMS[:1] * 101}, "items"),
        ({"metadata": {"k": 5}}, "metadata"),
        ({"metadata": {"k" * 65: ""}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
    ],
)
async def test_what_is_rejected(openai: AsyncOpenAI, body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        await openai.conversations.create(**body)
    assert caught.value.param == param


BadRequest = openai.BadRequestError


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 101}, {"order": "x"}, {"after": "y"}])
async def test_pages_that_do_not_exist(openai: AsyncOpenAI, query: dict[str, Any]) -> None:
    created = await openai.conversations.create(items=ITEMS)
    with pytest.raises(BadRequest) as caught:
        await openai.conversations.items.list(created.id, **query)
    assert caught.value.param == next(iter(query))


@in_the_modules_loop()
async def client(
    gateway_of_module: RunningGateway, upstream: ScriptedUpstream
) -> AsyncIterator[AsyncOpenAI]:
    lines = [channel(Format.CHAT, upstream.address)]
    async with as_new(gateway_of_module, lines) as gateway, open_openai(gateway) as client:
        yield client


def sent_texts(upstream: ScriptedUpstream) -> list[Any]:
    return [message["content"] for message in upstream.last_request.json["messages"]]


async def reply(client: AsyncOpenAI, kind: str, conversation: Any, text: str, **more: Any) -> Any:
    """A response in a conversation, requested in one of the ways there are."""
    arguments: Any = {"model": BETA, "input": text, "conversation": conversation} | more
    if kind == "whole":
        return await client.responses.create(**arguments)
    if kind == "background":
        response = await client.responses.create(**arguments, background=True)
        while response.status in ("queued", "in_progress"):
            await asyncio.sleep(0.01)
            response = await client.responses.retrieve(response.id)
        return response
    async with await client.responses.create(**arguments, stream=True) as stream:
        return [event async for event in stream][-1].response


@pytest.mark.parametrize("kind", ["whole", "streamed", "background"])
async def test_responses_extend_a_conversation(
    client: AsyncOpenAI, upstream: ScriptedUpstream, kind: str
) -> None:
    script = fixture_reply if kind == "whole" else fixture_stream
    upstream.respond_with(script(Format.CHAT))
    conversation = await client.conversations.create(
        items=[{"role": "developer", "content": "Zero"}]
    )
    first = await reply(client, kind, conversation.id, "One")
    assert first.conversation.id == conversation.id
    second = await reply(client, kind, {"id": conversation.id}, "Two", store=None)
    assert second.status == "completed"
    hello = "Hello, world!"
    assert sent_texts(upstream) == ["Zero", "One", hello, "Two"]
    page = await client.conversations.items.list(conversation.id, order="asc")
    items: list[Any] = page.data
    assert [item.content[0].text for item in items] == ["Zero", "One", hello, "Two", hello]
    assert [item.role for item in items] == ["developer", "user", "assistant", "user", "assistant"]
    # A response of it can be continued without it, and has all of it.
    await client.responses.create(
        model=BETA, input="Three", previous_response_id=second.id, stream=kind != "whole"
    )
    await asyncio.sleep(0.05)
    assert sent_texts(upstream) == ["Zero", "One", hello, "Two", hello, "Three"]


async def test_a_response_that_is_not_stored_extends_it_too(
    client: AsyncOpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    conversation = await client.conversations.create()
    await reply(client, "whole", conversation.id, "One", store=False)
    assert len((await client.conversations.items.list(conversation.id)).data) == 2


async def test_one_request_at_a_time(client: AsyncOpenAI, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT).with_changes(delay=0.3))
    conversation = await client.conversations.create()
    first = asyncio.ensure_future(reply(client, "whole", conversation.id, "One"))
    await upstream.wait_for_request()
    for attempt in (
        reply(client, "whole", conversation.id, "Two"),
        client.conversations.items.create(conversation.id, items=ITEMS),
        client.conversations.delete(conversation.id),
    ):
        with pytest.raises(openai.ConflictError, match=conversation.id):
            await attempt
    await first
    await reply(client, "whole", conversation.id, "Two")
    assert sent_texts(upstream) == ["One", "Hello, world!", "Two"]


async def test_a_rejected_background_response_leaves_its_conversation(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_stream(Format.CHAT).with_changes(delay=20))
    line = channel(Format.CHAT, upstream.address)
    async with run_gateway(tmp_path, [line], limits={"background": 1}) as gateway:
        address = f"{gateway.address}/v1"
        async with AsyncOpenAI(base_url=address, api_key=gateway.key, max_retries=0) as client:
            conversation = await client.conversations.create()
            await client.responses.create(model=BETA, input="x", background=True)
            for error, more in (
                (openai.RateLimitError, {}),
                (openai.BadRequestError, {"store": False}),
            ):
                with pytest.raises(error):
                    await client.responses.create(
                        model=BETA,
                        input="One",
                        conversation=conversation.id,
                        background=True,
                        **more,  # type: ignore[arg-type]  # fields of all kinds
                    )
            await client.conversations.delete(conversation.id)


async def test_a_failed_request_changes_nothing(
    client: AsyncOpenAI, upstream: ScriptedUpstream
) -> None:
    conversation = await client.conversations.create()
    upstream.respond_with(json_response({"error": {"message": "no"}}, 400))
    for kind in ("whole", "streamed"):
        with pytest.raises(BadRequest):
            await reply(client, kind, conversation.id, "One")
    failed = await reply(client, "background", conversation.id, "One")
    assert failed.status == "failed"
    upstream.respond_with(fixture_reply(Format.CHAT))
    await reply(client, "whole", conversation.id, "Two")
    assert sent_texts(upstream) == ["Two"]


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        ({"conversation": "conv_unknown"}, NotFound, "conversation"),
        ({"conversation": 5}, BadRequest, "conversation"),
        ({"conversation": {"id": None}}, BadRequest, "conversation"),
        (
            {"conversation": "conv_x", "previous_response_id": "resp_x"},
            BadRequest,
            "conversation",
        ),
    ],
)
async def test_conversations_that_cannot_be_used(
    client: AsyncOpenAI,
    upstream: ScriptedUpstream,
    fields: dict[str, Any],
    error: type[openai.APIStatusError],
    param: str,
) -> None:
    with pytest.raises(error) as caught:
        await client.responses.create(model=BETA, input="One", **fields)
    assert caught.value.param == param
    assert upstream.requests == []


async def test_a_conversation_that_has_become_too_large(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    line = channel(Format.CHAT, upstream.address)
    async with run_gateway(tmp_path, [line], server={"max_body": 2000}) as gateway:
        address = f"{gateway.address}/v1"
        async with AsyncOpenAI(base_url=address, api_key=gateway.key, max_retries=0) as client:
            conversation = await client.conversations.create()
            await reply(client, "whole", conversation.id, "x" * 1800)
            with pytest.raises(openai.APIStatusError, match="start a new one"):
                await reply(client, "whole", conversation.id, "y")
            with pytest.raises(BadRequest, match="2,000 bytes"):
                await client.conversations.items.create(conversation.id, items=ITEMS)


async def test_large_files_in_a_conversation(
    client: AsyncOpenAI, upstream: ScriptedUpstream
) -> None:
    """They are cut out of a request while it is read; what is kept has them."""
    upstream.respond_with(fixture_reply(Format.CHAT))
    data = "data:application/pdf;base64," + "QUJD" * 100_000

    def message(name: str) -> Any:
        part = {"type": "input_file", "filename": name, "file_data": data}
        return [{"role": "user", "content": [part]}]

    conversation = await client.conversations.create(items=message("a.pdf"))
    added = await client.conversations.items.create(conversation.id, items=message("b.pdf"))
    await client.responses.create(model=BETA, input=message("c.pdf"), conversation=conversation.id)
    page = await client.conversations.items.list(conversation.id, order="asc")
    shown: list[Any] = [*added.data, *page.data[:3]]
    assert [item.content[0].filename for item in shown] == ["b.pdf", "a.pdf", "b.pdf", "c.pdf"]
    assert {item.content[0].file_data for item in shown} == {data}
    await client.responses.create(model=BETA, input="And?", conversation=conversation.id)
    assert upstream.last_request.body.count(data.encode()) == 3


@pytest.mark.own_gateway
async def test_one_that_was_not_used_for_long_expires(
    gateway: RunningGateway, openai: AsyncOpenAI
) -> None:
    created = await openai.conversations.create(items=ITEMS)
    runtime = gateway.daemon.runtime
    later = runtime.now() + int(runtime.config.responses.ttl * 1e6) + 1
    runtime.now = lambda: later
    with pytest.raises(NotFound):
        await openai.conversations.retrieve(created.id)
    assert await delete_unused_conversations(runtime, gateway.operations.database) == 1
