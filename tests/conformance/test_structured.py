"""Answers of a given form, through the libraries' own `parse` helpers."""

from __future__ import annotations

import orjson
import pytest
from openai import pydantic_function_tool
from pydantic import BaseModel, Field

from gateway.core.formats import Format
from tests.conformance.clients.base import CallMode, Conversation, Options
from tests.conformance.neutral_reply import NeutralReply, ToolCall, make_reply
from tests.conformance.pairs import OLDER, PAIRS, Clients, Pair, only
from tests.conformance.read_request import answer_schema_of, tools_of
from tests.conformance.validating_upstream import Body, Request, ValidatingUpstream

pytestmark = pytest.mark.asyncio(loop_scope="session")

both = pytest.mark.parametrize(
    "mode", [CallMode.CREATE, CallMode.HELPER], ids=lambda mode: mode.value
)
openai_clients = only(pair for pair in PAIRS if pair.client is not Format.MESSAGES)


class Stop(BaseModel):
    city: str
    nights: int = Field(ge=1, le=30)
    note: str | None


class Journey(BaseModel):
    """A journey."""

    title: str
    stops: list[Stop]


class Tree(BaseModel):
    name: str
    branches: list[Tree]


JOURNEY = Journey(title="Süden", stops=[Stop(city="Rom", nights=2, note=None)])
TREE = Tree(name="a", branches=[Tree(name="b", branches=[])])


@both
async def test_a_schema(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    vendor.play(make_reply(JOURNEY.model_dump_json()))
    conversation.ask("Plan a journey.")
    _, parsed = await conversation.parse(Journey, mode, Options())
    assert parsed == JOURNEY
    schema = answer_schema_of(vendor.last)
    assert schema is not None
    assert set(schema["properties"]) == {"title", "stops"}
    assert schema["additionalProperties"] is False
    (described,) = schema["$defs"].values()
    assert set(described["properties"]) == {"city", "nights", "note"}
    # What a grammar cannot hold is at least reported.
    assert "30" in str(described["properties"]["nights"])


@both
@openai_clients
async def test_a_recursive_schema(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    """A form that holds itself, for which messages and its library have no words."""

    def answer(body: Body) -> NeutralReply:
        arguments_text = orjson.loads(TREE.model_dump_json())
        if body.get("tool_choice"):
            return make_reply(ToolCall("toolu_1", body["tool_choice"]["name"], arguments_text))
        return make_reply(orjson.dumps(arguments_text).decode())

    vendor.play(answer)
    conversation.ask("Grow a tree.")
    reply, parsed = await conversation.parse(Tree, mode, Options())
    assert parsed == TREE
    assert reply.calls == ()


@both
@pytest.mark.parametrize("client", [Format.CHAT, Format.RESPONSES])
async def test_a_schema_through_a_tool(
    clients: Clients, vendor: ValidatingUpstream, client: Format, mode: CallMode
) -> None:
    """A model without forms calls a tool instead, of which the client sees nothing."""

    def answer(body: Body) -> NeutralReply:
        (name,) = tools_of(Request(Format.MESSAGES, body))
        assert body["tool_choice"]["name"] == name
        return make_reply(ToolCall("toolu_1", name, JOURNEY.model_dump()))

    vendor.play(answer)
    conversation = clients.conversation(client, OLDER)
    conversation.ask("Plan a journey.")
    reply, parsed = await conversation.parse(Journey, mode, Options())
    assert parsed == JOURNEY
    assert reply.stop == ("stop" if client is Format.CHAT else "completed")
    assert reply.calls == ()


@pytest.mark.parametrize("mode", CallMode, ids=lambda mode: mode.value)
@openai_clients
async def test_any_json(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    fenced = pair.upstream is Format.MESSAGES
    vendor.play(make_reply('```json\n{"a": [1, "```"]}\n```' if fenced else '{"a": [1, "```"]}'))
    conversation.ask("Answer in JSON.")
    reply = await conversation.receive(mode, Options(json=True))
    assert orjson.loads(reply.text) == {"a": [1, "```"]}


@both
@openai_clients
async def test_a_strict_tool(
    clients: Clients, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    vendor.play(make_reply(ToolCall("call_1", "Journey", JOURNEY.model_dump())))
    described = pydantic_function_tool(Journey)
    ask = [{"role": "user", "content": "Plan a journey."}]
    if pair.client is Format.CHAT:
        completions = clients.openai.chat.completions
        fields = {"model": pair.model, "messages": ask, "tools": [described]}
        if mode is CallMode.CREATE:
            completion = await completions.parse(**fields)
        else:
            async with completions.stream(**fields) as chat_helper:
                completion = await chat_helper.get_final_completion()
        (call,) = completion.choices[0].message.tool_calls
        parsed = call.function.parsed_arguments
    else:
        responses = clients.openai.responses
        fields = {"model": pair.model, "input": ask, "store": False}
        # The library's other form of the same tool.
        fields["tools"] = [{"type": "function", **described["function"]}]
        if mode is CallMode.CREATE:
            response = await responses.parse(**fields)
        else:
            async with responses.stream(**fields) as helper:
                response = await helper.get_final_response()
        parsed = Journey.model_validate(response.output[0].parsed_arguments)
    assert parsed == JOURNEY
    (schema,) = tools_of(vendor.last).values()
    assert set(schema["properties"]) == {"title", "stops"}
