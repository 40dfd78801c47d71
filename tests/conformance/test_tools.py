"""Tools: calls reach the client as the model meant them, results reach the model in its order."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import How, Picture, Talk, Tool, Wish
from tests.conformance.neutral_reply import Called, Said, say
from tests.conformance.pairs import REPAIRED, Pair, only
from tests.conformance.read_request import choice_of, extends, parallel_of, tools_of
from tests.conformance.validating_upstream import Body, Request, ValidatingUpstream
from tests.simulator.images import PNG

pytestmark = pytest.mark.asyncio(loop_scope="session")

CALLED = {Format.CHAT: "tool_calls", Format.MESSAGES: "tool_use", Format.RESPONSES: "completed"}
IDS = {Format.CHAT: "call_abc123", Format.MESSAGES: "toolu_01Xyz", Format.RESPONSES: "call_R4s-9"}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
WEATHER = Tool("get_weather", "The weather of a city.", CITY)
CLOCK = Tool("clock", "The time.")
MAIL = Tool("send_mail", schema={"type": "object", "properties": {"to": {"type": "string"}}})
TOOLS = Wish(tools=(WEATHER, CLOCK, MAIL))
COLOGNE = {"city": 'Köln "am" Rhein\n', "days": 3}
ways = pytest.mark.parametrize("how", How, ids=lambda how: how.value)
repaired = only(REPAIRED)


@ways
async def test_one_call(talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How) -> None:
    id = IDS[pair.upstream]
    vendor.play(say("I look it up.", Called(id, "get_weather", COLOGNE)), say("It rains."))
    talk.ask("What is the weather like in Cologne?")
    heard = await talk.hear(how, TOOLS)
    assert heard.called == [("get_weather", COLOGNE)]
    assert (heard.text, heard.stop) == ("I look it up.", CALLED[pair.client])
    assert tools_of(vendor.last)["get_weather"] == CITY
    assert list(tools_of(vendor.last)) == ["get_weather", "clock", "send_mail"]
    assert choice_of(vendor.last) in (None, "auto")

    ((called_as, _, _),) = heard.calls
    talk.answer((called_as, ["Rain, 12 °C"]))
    heard = await talk.hear(how, TOOLS)
    assert heard.text == "It rains."
    first, second = vendor.seen
    assert extends(second, first)
    again = str(second.body)
    assert again.count(f"'{id}'") == 2
    assert "I look it up." in again
    assert "Rain, 12 °C" in again


@ways
async def test_parallel_calls(talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How) -> None:
    id = IDS[pair.upstream]
    calls = (
        Called(f"{id}1", "get_weather", COLOGNE),
        Called(f"{id}2", "clock", {}),
        Called(f"{id}3", "get_weather", {"city": "Oslo"}),
    )
    vendor.play(say(*calls), say("Done."))
    talk.ask("Weather in Cologne and Oslo, and the time?")
    heard = await talk.hear(how, TOOLS)
    assert heard.called == [
        ("get_weather", COLOGNE),
        ("clock", {}),
        ("get_weather", {"city": "Oslo"}),
    ]
    assert (heard.text, heard.stop) == ("", CALLED[pair.client])

    first, second, third = (id for id, _, _ in heard.calls)
    # In another order than the calls, as some agents have it.
    talk.answer((third, ["cold"]), (first, ["wet"]), (second, ["noon"]))
    assert (await talk.hear(how, TOOLS)).text == "Done."
    again = str(vendor.last.body)
    assert all(again.count(f"'{call.id}'") == 2 for call in calls)


async def test_results_with_pictures_and_errors(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream
) -> None:
    id = IDS[pair.upstream]
    vendor.play(say(Called(f"{id}1", "clock", {}), Called(f"{id}2", "clock", {})), say("I see."))
    talk.ask("Show me the clock.")
    heard = await talk.hear(How.CREATE, TOOLS)
    first, second = (id for id, _, _ in heard.calls)
    talk.answer(
        (first, ["A picture:", Picture(PNG)]),
        (second, ["the tower is closed"]),
        wrong=frozenset([second]),
    )
    talk.ask("And now?")
    assert (await talk.hear(How.CREATE, TOOLS)).text == "I see."
    again = str(vendor.last.body)
    assert again.index("the tower is closed") < again.index("And now?")
    if pair.client is not Format.CHAT:
        assert again.count(PNG) == 1
    if pair.client is Format.MESSAGES:
        told = "'is_error': True" if pair.upstream is Format.MESSAGES else "Error: the tower"
        assert told in again


@pytest.mark.parametrize("choice", ["auto", "none", "required", "clock"])
async def test_choices(talk: Talk, pair: Pair, vendor: ValidatingUpstream, choice: str) -> None:
    vendor.play(say("Well."))
    talk.ask("Hello?")
    await talk.hear(How.CREATE, Wish(tools=TOOLS.tools, choice=choice))
    assert choice_of(vendor.last) == choice
    assert list(tools_of(vendor.last)) == ["get_weather", "clock", "send_mail"]


@pytest.mark.parametrize("choice", [None, "auto", "required"])
async def test_one_call_at_a_time(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream, choice: str | None
) -> None:
    vendor.play(say("Well."))
    talk.ask("Hello?")
    await talk.hear(How.CREATE, Wish(tools=TOOLS.tools, choice=choice, parallel=False))
    assert not parallel_of(vendor.last)
    assert choice_of(vendor.last) in (choice, "auto")


@ways
@repaired
async def test_long_names_come_back(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How
) -> None:
    """Servers of tools have names with dots, and longer than upstreams take."""
    name = "files.read/" + "x" * 70

    def call(body: Body) -> Said:
        (sent,) = tools_of(Request(pair.upstream, body))
        return say(Called(IDS[pair.upstream], sent, {"city": "Rom"}))

    vendor.play(call, say("Read."))
    talk.ask("Read it.")
    wish = Wish(tools=(Tool(name, schema=CITY),))
    heard = await talk.hear(how, wish)
    assert heard.called == [(name, {"city": "Rom"})]
    talk.answer((heard.calls[0][0], ["content"]))
    assert (await talk.hear(how, wish)).text == "Read."


@repaired
async def test_a_history_from_elsewhere(talk: Talk, pair: Pair, vendor: ValidatingUpstream) -> None:
    """Ids that no vendor has given, of any length, and two that differ at their ends alone."""
    odd = ["call:1|a.b", "x" * 90 + "1", "x" * 90 + "2"]
    vendor.play(say("So it is."))
    talk.ask("Go on.")
    calls: list[tuple[str, str, dict[str, Any]]] = [(id, "clock", {}) for id in odd]
    talk.recall("I look.", *calls)
    talk.answer(*((id, [f"answer {number}"]) for number, id in enumerate(odd)))
    assert (await talk.hear(How.CREATE, TOOLS)).text == "So it is."
    again = str(vendor.last.body)
    assert again.index("answer 0") < again.index("answer 1") < again.index("answer 2")


@repaired
async def test_a_history_that_was_trimmed(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream
) -> None:
    """A call that nobody answered, a result that nobody asked for, words between the two."""
    vendor.play(say("Let us go on."))
    talk.ask("Go on.")
    talk.recall("", ("call_1", "clock", {}), ("call_2", "clock", {}))
    talk.ask("Never mind the second.")
    talk.answer(("call_1", ["noon"]), ("call_0", ["an old answer"]))
    talk.ask("What now?")
    assert (await talk.hear(How.CREATE, TOOLS)).text == "Let us go on."
    again = str(vendor.last.body)
    assert "noon" in again
    assert "an old answer" in again
    assert again.index("noon") < again.index("Never mind the second.") < again.index("What now?")


@repaired
async def test_a_history_with_calls_and_no_tools(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream
) -> None:
    vendor.play(say("In short: noon."))
    talk.ask("The time?")
    talk.recall("", ("call_1", "clock", {}))
    talk.answer(("call_1", ["noon"]))
    talk.ask("Sum up.")
    assert (await talk.hear(How.CREATE)).text == "In short: noon."
    assert choice_of(vendor.last) in (None, "none")
