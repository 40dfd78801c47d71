"""Tools: calls reach the client as the model meant them, results reach the model in its order."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import CallMode, Conversation, Image, Options, Tool
from tests.conformance.neutral_reply import NeutralReply, ToolCall, make_reply
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
TOOLS = Options(tools=(WEATHER, CLOCK, MAIL))
COLOGNE = {"city": 'Köln "am" Rhein\n', "days": 3}
ways = pytest.mark.parametrize("mode", CallMode, ids=lambda mode: mode.value)
repaired = only(REPAIRED)


@ways
async def test_one_call(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    id = IDS[pair.upstream]
    vendor.play(
        make_reply("I look it up.", ToolCall(id, "get_weather", COLOGNE)), make_reply("It rains.")
    )
    conversation.ask("What is the weather like in Cologne?")
    reply = await conversation.receive(mode, TOOLS)
    assert reply.called == [("get_weather", COLOGNE)]
    assert (reply.text, reply.stop) == ("I look it up.", CALLED[pair.client])
    assert tools_of(vendor.last)["get_weather"] == CITY
    assert list(tools_of(vendor.last)) == ["get_weather", "clock", "send_mail"]
    assert choice_of(vendor.last) in (None, "auto")

    ((called_as, _, _),) = reply.calls
    conversation.answer((called_as, ["Rain, 12 °C"]))
    reply = await conversation.receive(mode, TOOLS)
    assert reply.text == "It rains."
    first, second = vendor.received
    assert extends(second, first)
    again = str(second.body)
    assert again.count(f"'{id}'") == 2
    assert "I look it up." in again
    assert "Rain, 12 °C" in again


@ways
async def test_parallel_calls(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    id = IDS[pair.upstream]
    calls = (
        ToolCall(f"{id}1", "get_weather", COLOGNE),
        ToolCall(f"{id}2", "clock", {}),
        ToolCall(f"{id}3", "get_weather", {"city": "Oslo"}),
    )
    vendor.play(make_reply(*calls), make_reply("Done."))
    conversation.ask("Weather in Cologne and Oslo, and the time?")
    reply = await conversation.receive(mode, TOOLS)
    assert reply.called == [
        ("get_weather", COLOGNE),
        ("clock", {}),
        ("get_weather", {"city": "Oslo"}),
    ]
    assert (reply.text, reply.stop) == ("", CALLED[pair.client])

    first, second, third = (id for id, _, _ in reply.calls)
    # In another order than the calls, as some agents have it.
    conversation.answer((third, ["cold"]), (first, ["wet"]), (second, ["noon"]))
    assert (await conversation.receive(mode, TOOLS)).text == "Done."
    again = str(vendor.last.body)
    assert all(again.count(f"'{call.id}'") == 2 for call in calls)


async def test_results_with_images_and_errors(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream
) -> None:
    id = IDS[pair.upstream]
    vendor.play(
        make_reply(ToolCall(f"{id}1", "clock", {}), ToolCall(f"{id}2", "clock", {})),
        make_reply("I see."),
    )
    conversation.ask("Show me the clock.")
    reply = await conversation.receive(CallMode.CREATE, TOOLS)
    first, second = (id for id, _, _ in reply.calls)
    conversation.answer(
        (first, ["A picture:", Image(PNG)]),
        (second, ["the tower is closed"]),
        wrong=frozenset([second]),
    )
    conversation.ask("And now?")
    assert (await conversation.receive(CallMode.CREATE, TOOLS)).text == "I see."
    again = str(vendor.last.body)
    assert again.index("the tower is closed") < again.index("And now?")
    if pair.client is not Format.CHAT:
        assert again.count(PNG) == 1
    if pair.client is Format.MESSAGES:
        text = "'is_error': True" if pair.upstream is Format.MESSAGES else "Error: the tower"
        assert text in again


@pytest.mark.parametrize("choice", ["auto", "none", "required", "clock"])
async def test_choices(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, choice: str
) -> None:
    vendor.play(make_reply("Well."))
    conversation.ask("Hello?")
    await conversation.receive(CallMode.CREATE, Options(tools=TOOLS.tools, choice=choice))
    assert choice_of(vendor.last) == choice
    assert list(tools_of(vendor.last)) == ["get_weather", "clock", "send_mail"]


@pytest.mark.parametrize("choice", [None, "auto", "required"])
async def test_one_call_at_a_time(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, choice: str | None
) -> None:
    vendor.play(make_reply("Well."))
    conversation.ask("Hello?")
    await conversation.receive(
        CallMode.CREATE, Options(tools=TOOLS.tools, choice=choice, parallel=False)
    )
    assert not parallel_of(vendor.last)
    assert choice_of(vendor.last) in (choice, "auto")


@ways
@repaired
async def test_long_names_are_restored(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    """Servers of tools have names with dots, and longer than upstreams take."""
    name = "files.read/" + "x" * 70

    def call(body: Body) -> NeutralReply:
        (sent,) = tools_of(Request(pair.upstream, body))
        return make_reply(ToolCall(IDS[pair.upstream], sent, {"city": "Rom"}))

    vendor.play(call, make_reply("Read."))
    conversation.ask("Read it.")
    options = Options(tools=(Tool(name, schema=CITY),))
    reply = await conversation.receive(mode, options)
    assert reply.called == [(name, {"city": "Rom"})]
    conversation.answer((reply.calls[0][0], ["content"]))
    assert (await conversation.receive(mode, options)).text == "Read."


@repaired
async def test_a_history_with_foreign_ids(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream
) -> None:
    """Ids that no vendor has given, of any length, and two that differ at their ends alone."""
    odd = ["call:1|a.b", "x" * 90 + "1", "x" * 90 + "2"]
    vendor.play(make_reply("So it is."))
    conversation.ask("Go on.")
    calls: list[tuple[str, str, dict[str, Any]]] = [(id, "clock", {}) for id in odd]
    conversation.recall("I look.", *calls)
    conversation.answer(*((id, [f"answer {number}"]) for number, id in enumerate(odd)))
    assert (await conversation.receive(CallMode.CREATE, TOOLS)).text == "So it is."
    again = str(vendor.last.body)
    assert again.index("answer 0") < again.index("answer 1") < again.index("answer 2")


@repaired
async def test_a_trimmed_history(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream
) -> None:
    """A call that nobody answered, a result that nobody asked for, words between the two."""
    vendor.play(make_reply("Let us go on."))
    conversation.ask("Go on.")
    conversation.recall("", ("call_1", "clock", {}), ("call_2", "clock", {}))
    conversation.ask("Never mind the second.")
    conversation.answer(("call_1", ["noon"]), ("call_0", ["an old answer"]))
    conversation.ask("What now?")
    assert (await conversation.receive(CallMode.CREATE, TOOLS)).text == "Let us go on."
    again = str(vendor.last.body)
    assert "noon" in again
    assert "an old answer" in again
    assert again.index("noon") < again.index("Never mind the second.") < again.index("What now?")


@repaired
async def test_a_history_with_calls_and_no_tools(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream
) -> None:
    vendor.play(make_reply("In short: noon."))
    conversation.ask("The time?")
    conversation.recall("", ("call_1", "clock", {}))
    conversation.answer(("call_1", ["noon"]))
    conversation.ask("Sum up.")
    assert (await conversation.receive(CallMode.CREATE)).text == "In short: noon."
    assert choice_of(vendor.last) in (None, "none")
