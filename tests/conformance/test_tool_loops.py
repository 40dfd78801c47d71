"""A whole tool loop on every pair with the simulator, whose tongues nobody here has written: an
upstream that reads what it is sent by its own lights and answers what it has understood.
"""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import How, Picture, Talk, Tool, Wish
from tests.conformance.pairs import PAIRS, Clients, Pair, only
from tests.simulator.images import PNG

pytestmark = pytest.mark.asyncio(loop_scope="session")

ways = pytest.mark.parametrize("how", How, ids=lambda how: how.value)
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (Tool("get_weather", "The weather.", CITY), Tool("read_clock", "The time."))


@pytest.fixture
def talk(pair: Pair, simulated_pairs: Clients) -> Talk:
    return simulated_pairs.talk(pair.client, pair.model)


@ways
async def test_two_turns(talk: Talk, pair: Pair, how: How) -> None:
    wish = Wish(system="You are a traveller.", tools=TOOLS, effort="low")
    talk.ask("What is the weather?")
    heard = await talk.hear(how, wish)
    assert heard.called == [("get_weather", {"city": "Rome"})]
    assert "What is the weather?" in heard.thinking
    talk.answer((heard.calls[0][0], ["rain all day"]))
    heard = await talk.hear(how, wish)
    assert heard.calls == ()
    assert "The tool get_weather returned: “rain all day”" in heard.text
    assert f"reached through the {pair.upstream} format" in heard.text
    assert "My instructions begin: “You are a traveller.”" in heard.text
    assert heard.model == pair.model


@ways
async def test_calls_in_parallel(talk: Talk, pair: Pair, how: How) -> None:
    wish = Wish(tools=TOOLS)
    talk.ask("Weather and clock, in parallel please.")
    heard = await talk.hear(how, wish)
    assert [name for name, _ in heard.called] == ["get_weather", "read_clock"]
    first, second = (id for id, _, _ in heard.calls)
    talk.answer((second, ["noon"]), (first, ["rain"]))
    heard = await talk.hear(how, wish)
    assert "The tool get_weather returned: “rain”" in heard.text
    assert "The tool read_clock returned: “noon”" in heard.text


@only(pair for pair in PAIRS if pair.client is not Format.CHAT)
async def test_a_result_with_a_picture(talk: Talk, pair: Pair) -> None:
    wish = Wish(tools=TOOLS)
    talk.ask("Read the clock.")
    heard = await talk.hear(How.CREATE, wish)
    talk.answer((heard.calls[0][0], ["See:", Picture(PNG)]))
    heard = await talk.hear(How.CREATE, wish)
    assert "PNG image of 69 bytes" in heard.text
