"""Answers of a given form, through the libraries' own `parse` helpers."""

from __future__ import annotations

import orjson
import pytest
from openai import pydantic_function_tool
from pydantic import BaseModel, Field

from gateway.core.formats import Format
from tests.conformance.clients.base import How, Talk, Wish
from tests.conformance.neutral_reply import Called, Said, say
from tests.conformance.pairs import OLDER, PAIRS, Clients, Pair, only
from tests.conformance.read_request import answer_schema_of, tools_of
from tests.conformance.validating_upstream import Body, Request, ValidatingUpstream

pytestmark = pytest.mark.asyncio(loop_scope="session")

both = pytest.mark.parametrize("how", [How.CREATE, How.HELPER], ids=lambda how: how.value)
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
async def test_a_form(talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How) -> None:
    vendor.play(say(JOURNEY.model_dump_json()))
    talk.ask("Plan a journey.")
    heard = await talk.parse(Journey, how, Wish())
    assert heard.parsed == JOURNEY
    schema = answer_schema_of(vendor.last)
    assert schema is not None
    assert set(schema["properties"]) == {"title", "stops"}
    assert schema["additionalProperties"] is False
    (described,) = schema["$defs"].values()
    assert set(described["properties"]) == {"city", "nights", "note"}
    # What a grammar cannot hold is at least said.
    assert "30" in str(described["properties"]["nights"])


@both
@openai_clients
async def test_a_form_without_end(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How
) -> None:
    """A form that holds itself, for which messages and its library have no words."""

    def answer(body: Body) -> Said:
        written = orjson.loads(TREE.model_dump_json())
        if body.get("tool_choice"):
            return say(Called("toolu_1", body["tool_choice"]["name"], written))
        return say(orjson.dumps(written).decode())

    vendor.play(answer)
    talk.ask("Grow a tree.")
    heard = await talk.parse(Tree, how, Wish())
    assert heard.parsed == TREE
    assert heard.calls == ()


@both
@pytest.mark.parametrize("client", [Format.CHAT, Format.RESPONSES])
async def test_a_form_by_a_tool(
    clients: Clients, vendor: ValidatingUpstream, client: Format, how: How
) -> None:
    """A model without forms calls a tool instead, of which the client sees nothing."""

    def answer(body: Body) -> Said:
        (name,) = tools_of(Request(Format.MESSAGES, body))
        assert body["tool_choice"]["name"] == name
        return say(Called("toolu_1", name, JOURNEY.model_dump()))

    vendor.play(answer)
    talk = clients.talk(client, OLDER)
    talk.ask("Plan a journey.")
    heard = await talk.parse(Journey, how, Wish())
    assert heard.parsed == JOURNEY
    assert heard.stop == ("stop" if client is Format.CHAT else "completed")
    assert heard.calls == ()


@pytest.mark.parametrize("how", How, ids=lambda how: how.value)
@openai_clients
async def test_any_json(talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How) -> None:
    fenced = pair.upstream is Format.MESSAGES
    vendor.play(say('```json\n{"a": [1, "```"]}\n```' if fenced else '{"a": [1, "```"]}'))
    talk.ask("Answer in JSON.")
    heard = await talk.hear(how, Wish(json=True))
    assert orjson.loads(heard.text) == {"a": [1, "```"]}


@both
@openai_clients
async def test_a_strict_tool(
    clients: Clients, pair: Pair, vendor: ValidatingUpstream, how: How
) -> None:
    vendor.play(say(Called("call_1", "Journey", JOURNEY.model_dump())))
    described = pydantic_function_tool(Journey)
    ask = [{"role": "user", "content": "Plan a journey."}]
    if pair.client is Format.CHAT:
        completions = clients.openai.chat.completions
        fields = {"model": pair.model, "messages": ask, "tools": [described]}
        if how is How.CREATE:
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
        if how is How.CREATE:
            response = await responses.parse(**fields)
        else:
            async with responses.stream(**fields) as helper:
                response = await helper.get_final_response()
        parsed = Journey.model_validate(response.output[0].parsed_arguments)
    assert parsed == JOURNEY
    (schema,) = tools_of(vendor.last).values()
    assert set(schema["properties"]) == {"title", "stops"}
