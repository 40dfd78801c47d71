"""The endpoints of stored responses, with the client library."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from gateway.core.formats import Format
from gateway.server.http.request_body import write_object
from tests.support.gateway import ALPHA, BETA, RunningGateway, channel, run_gateway
from tests.support.upstream import (
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.shared_gateway


@pytest.fixture
def reply(upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_retrieved_as_it_was_received(
    upstream: ScriptedUpstream, gateway: RunningGateway, openai: AsyncOpenAI, stream: bool
) -> None:
    play = fixture_stream if stream else fixture_reply
    upstream.respond_with(play(Format.RESPONSES, "text"))
    answer = await gateway.post(Format.RESPONSES, stream=stream)
    received = await answer.read()
    if stream:
        received = orjson.dumps(orjson.loads(received.split(b"data: ")[-1])["response"])
    id = orjson.loads(received)["id"]
    for written in (False, True):
        if written:
            await gateway.daemon.runtime.responses.flush()
        again = await gateway.get(f"/v1/responses/{id}?include[]=message.output_text.logprobs")
        assert again.status == 200
        assert await again.read() == received.strip()
        found = await openai.responses.retrieve(id, include=["reasoning.encrypted_content"])
        assert found.output_text == "Hello, world!"


@pytest.mark.usefixtures("reply")
async def test_the_path_itself_and_its_probes(gateway: RunningGateway) -> None:
    assert (await gateway.get("/v1/responses")).status == 405
    for path in ("/v1/responses/resp_1", "/v1/responses"):
        assert (await gateway.http.head(path)).status == 200
    assert (await gateway.http.get("/v1/responses/resp_1")).status == 401
    answer = await gateway.http.put("/v1/responses/resp_1")
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) >= {"GET", "DELETE"}


@pytest.mark.usefixtures("reply")
async def test_a_key_without_the_endpoint_has_no_responses(gateway: RunningGateway) -> None:
    key = await gateway.key_for_models(ALPHA)
    for path in ("resp_1", "resp_1/input_items"):
        answer = await gateway.get(f"/v1/responses/{path}", key)
        assert answer.status == 404
        assert (await answer.json())["error"]["message"].startswith("Invalid URL (GET /v1/resp")


@pytest.mark.usefixtures("reply")
async def test_a_deleted_response_is_gone_and_what_continues_it_is_not(
    upstream: ScriptedUpstream, openai: AsyncOpenAI
) -> None:
    first = await openai.responses.create(model=BETA, input="one")
    second = await openai.responses.create(model=BETA, input="two", previous_response_id=first.id)
    await openai.responses.delete(first.id)
    with pytest.raises(NotFoundError):
        await openai.responses.retrieve(first.id)
    with pytest.raises(NotFoundError):
        await openai.responses.delete(first.id)
    with pytest.raises(BadRequestError):
        await openai.responses.create(model=BETA, input="x", previous_response_id=first.id)
    listed = [item async for item in openai.responses.input_items.list(second.id, order="asc")]
    assert len(listed) == 3
    await openai.responses.create(model=BETA, input="three", previous_response_id=second.id)
    assert len(upstream.last_request.json["input"]) == 5


@pytest.mark.usefixtures("reply")
async def test_only_background_responses_are_cancelled(openai: AsyncOpenAI) -> None:
    reply = await openai.responses.create(model=BETA, input="one")
    with pytest.raises(BadRequestError) as refused:
        await openai.responses.cancel(reply.id)
    assert "was not created in the background" in refused.value.message
    with pytest.raises(NotFoundError):
        await openai.responses.cancel("resp_unknown")


@pytest.mark.usefixtures("reply")
async def test_input_items_are_paged_and_keep_their_ids(openai: AsyncOpenAI) -> None:
    previous: dict[str, Any] = {}
    for turn in range(6):
        items = [{"role": "user", "content": f"{turn}.{part}"} for part in range(3)]
        reply = await openai.responses.create(model=BETA, input=items, **previous)  # type: ignore[call-overload]  # items as JSON
        previous = {"previous_response_id": reply.id}
    complete = [item async for item in openai.responses.input_items.list(reply.id, limit=100)]
    assert len(complete) == 6 * 3 + 5
    ids = [item.id for item in complete]
    assert len(set(ids)) == len(ids)
    texts = [item.content[0].text for item in complete]  # type: ignore[union-attr]  # all are messages
    assert texts[:4] == ["5.2", "5.1", "5.0", "Hello, world!"]
    for limit in (1, 4, 23):
        for order in ("desc", "asc"):
            found = [
                item.id
                async for item in openai.responses.input_items.list(
                    reply.id,
                    limit=limit,
                    order=order,  # type: ignore[arg-type]  # a name of the two
                )
            ]
            assert found == (ids if order == "desc" else ids[::-1])
    page = await openai.responses.input_items.list(reply.id)
    assert (len(page.data), page.has_more, page.first_id, page.last_id) == (
        *(20, True),
        *(ids[0], ids[19]),
    )
    last = await openai.responses.input_items.list(reply.id, after=ids[19])
    assert [item.id for item in last.data] == ids[20:]
    assert not last.has_more
    empty = await openai.responses.input_items.list(reply.id, after=ids[-1])
    assert (empty.data, empty.has_more) == ([], False)


@pytest.mark.usefixtures("reply")
async def test_items_with_the_same_id_are_paged_once(openai: AsyncOpenAI) -> None:
    """A client may repeat what it continues; a page that ends there must not begin anew."""
    first = await openai.responses.create(model=BETA, input="one")
    echoed: Any = [{"id": "msg_1", "role": "assistant", "content": "A"}] * 5
    second = await openai.responses.create(model=BETA, input=echoed, previous_response_id=first.id)
    found = [item.id async for item in openai.responses.input_items.list(second.id, limit=1)]
    assert len(found) == len(set(found)) == 7


@pytest.mark.usefixtures("reply")
@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("limit=" + "9" * 5000, "limit"),
        ("order=up", "order"),
        ("after=msg_unknown", "after"),
    ],
)
async def test_odd_pages_are_refused(
    gateway: RunningGateway, openai: AsyncOpenAI, query: str, param: str
) -> None:
    reply = await openai.responses.create(model=BETA, input="one")
    answer = await gateway.get(f"/v1/responses/{reply.id}/input_items?{query}")
    assert answer.status == 400
    assert (await answer.json())["error"]["param"] == param


@pytest.mark.parametrize("format", [Format.RESPONSES, Format.CHAT])
async def test_input_tokens_of_a_chain(
    upstream: ScriptedUpstream, tmp_path: Any, format: Format
) -> None:
    upstream.respond_with(fixture_reply(format, "text"))
    async with (
        run_gateway(tmp_path, [channel(format, upstream.address)]) as gateway,
        AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=gateway.key) as client,
    ):
        first = await client.responses.create(model=BETA, input="one")
        if format is Format.RESPONSES:
            counted = {"object": "response.input_tokens", "input_tokens": 42}
            upstream.respond_with(json_response(counted))
        alone = await client.responses.input_tokens.count(model=BETA, input="two")
        chain = await client.responses.input_tokens.count(
            model=BETA, input="two", previous_response_id=first.id
        )
        assert chain.object == "response.input_tokens"
        if format is Format.RESPONSES:
            assert chain.input_tokens == 42
            assert upstream.last_request.url.path == "/v1/responses/input_tokens"
            assert upstream.last_request.json.keys() == {"model", "input"}
            assert len(upstream.last_request.json["input"]) == 3
        else:
            assert chain.input_tokens > alone.input_tokens
        with pytest.raises(BadRequestError):
            await client.responses.input_tokens.count(
                model=BETA, input="two", previous_response_id="resp_unknown"
            )


async def test_images_and_texts_of_odd_messages_are_listed(
    upstream: ScriptedUpstream, gateway: RunningGateway
) -> None:
    """Whatever the client sent: an item without a type, one of an unknown type, and no item."""
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    items = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
        {"type": "of_tomorrow", "value": 7},
    ]
    body = {"model": BETA, "input": items}
    answer = await gateway.post(Format.RESPONSES, write_object(body))
    id = (await answer.json())["id"]
    listed = await gateway.get(f"/v1/responses/{id}/input_items?order=asc")
    data = (await listed.json())["data"]
    assert [item["type"] for item in data] == ["message", "message", "of_tomorrow"]
    assert data[0]["content"] == [{"type": "input_text", "text": "hi"}]
    assert data[1]["content"] == [{"type": "output_text", "text": "ho", "annotations": []}]
