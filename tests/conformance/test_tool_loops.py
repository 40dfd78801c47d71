"""A whole tool loop of every client with the simulator: an upstream that reads what it is sent with
code of its own and answers what it has understood.
"""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import CallMode, Conversation, Image, Options, Tool
from tests.conformance.pairs import PAIRS, Clients, Pair, only
from tests.simulator.images import PNG

pytestmark = pytest.mark.asyncio(loop_scope="session")

ways = pytest.mark.parametrize("mode", CallMode, ids=lambda mode: mode.value)
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (Tool("get_weather", "The weather.", CITY), Tool("read_clock", "The time."))


SIMULATED = tuple(pair for pair in PAIRS if pair.upstream is Format.CHAT)


@pytest.fixture
def conversation(pair: Pair, simulated_pairs: Clients) -> Conversation:
    return simulated_pairs.conversation(pair.client, pair.model)


@ways
@only(SIMULATED)
async def test_two_turns(conversation: Conversation, pair: Pair, mode: CallMode) -> None:
    options = Options(system="You are a traveller.", tools=TOOLS, effort="low")
    conversation.ask("What is the weather?")
    reply = await conversation.receive(mode, options)
    assert reply.called == [("get_weather", {"city": "Rome"})]
    assert "What is the weather?" in reply.thinking
    conversation.answer((reply.calls[0][0], ["rain all day"]))
    reply = await conversation.receive(mode, options)
    assert reply.calls == ()
    assert "The tool get_weather returned: “rain all day”" in reply.text
    assert "My instructions begin: “You are a traveller.”" in reply.text
    assert reply.model == pair.model


@ways
@only(SIMULATED)
async def test_calls_in_parallel(conversation: Conversation, pair: Pair, mode: CallMode) -> None:
    options = Options(tools=TOOLS)
    conversation.ask("Weather and clock, in parallel please.")
    reply = await conversation.receive(mode, options)
    assert [name for name, _ in reply.called] == ["get_weather", "read_clock"]
    first, second = (id for id, _, _ in reply.calls)
    conversation.answer((second, ["noon"]), (first, ["rain"]))
    reply = await conversation.receive(mode, options)
    assert "The tool get_weather returned: “rain”" in reply.text
    assert "The tool read_clock returned: “noon”" in reply.text


@only(pair for pair in SIMULATED if pair.client is not Format.CHAT)
async def test_a_result_with_an_image(conversation: Conversation, pair: Pair) -> None:
    options = Options(tools=TOOLS)
    conversation.ask("Read the clock.")
    reply = await conversation.receive(CallMode.CREATE, options)
    conversation.answer((reply.calls[0][0], ["See:", Image(PNG)]))
    reply = await conversation.receive(CallMode.CREATE, options)
    assert "PNG image of 69 bytes" in reply.text
