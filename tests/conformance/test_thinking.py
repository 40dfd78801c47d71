"""Reasoning: it is shown, it comes back to whoever wrote it unchanged, and to nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import CallMode, Conversation, Options, Tool
from tests.conformance.neutral_reply import Thinking, ToolCall, make_reply
from tests.conformance.pairs import OLDER, PAIRS, PLAIN, Clients, Pair, model_on, only
from tests.conformance.read_request import effort_of, extends
from tests.conformance.validating_upstream import ValidatingUpstream

pytestmark = pytest.mark.asyncio(loop_scope="session")

SEAL = "EqQBCkYIBxgCKkDq+/9zR0l4==.AbC_-~" * 5
SECOND = "gAAAAABo-second_SEAL+/=" * 9
HARD = Options(effort="high", tools=(Tool("clock"), Tool("dice")))
ways = pytest.mark.parametrize("mode", CallMode, ids=lambda mode: mode.value)
SIGNED = tuple(pair for pair in PAIRS if pair.upstream is not Format.CHAT)
signed = only(SIGNED)


def seals(vendor: ValidatingUpstream) -> tuple[int, int]:
    """How often the last request carries each, in whatever format it is."""
    body = str(vendor.last.body)
    return body.count(SEAL), body.count(SECOND)


@ways
async def test_thinking_is_shown_and_returned(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    # Between two sides of chat its extension for reasoning is theirs to use.
    extended = pair.client is pair.upstream
    vendor.play(
        make_reply(Thinking("Hm, let me see.", SEAL), "42."), make_reply("Yes."), extended=extended
    )
    conversation.ask("Six times seven?")
    reply = await conversation.receive(mode, HARD)
    assert (reply.thinking, reply.text) == ("Hm, let me see.", "42.")
    conversation.ask("Sure?")
    assert (await conversation.receive(mode, HARD)).text == "Yes."
    assert seals(vendor) == (int(pair in SIGNED), 0)


@ways
async def test_thinking_in_a_tool_loop(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    vendor.play(
        make_reply(Thinking("I need the time.", SEAL), ToolCall("call_1", "clock", {})),
        make_reply(Thinking("And now a die.", SECOND), "One more.", ToolCall("call_2", "dice", {})),
        make_reply("Noon, and a six."),
        extended=pair.client is pair.upstream,
    )
    conversation.ask("Time and luck?")
    reply = await conversation.receive(mode, HARD)
    assert reply.called == [("clock", {})]
    conversation.answer((reply.calls[0][0], ["noon"]))
    reply = await conversation.receive(mode, HARD)
    assert (reply.thinking, reply.text) == ("And now a die.", "One more.")
    assert seals(vendor) == (int(pair in SIGNED), 0)
    conversation.answer((reply.calls[0][0], ["six"]))
    assert (await conversation.receive(mode, HARD)).text == "Noon, and a six."
    first, second, third = vendor.received
    assert extends(second, first)
    assert extends(third, second)
    assert seals(vendor) == (int(pair in SIGNED), int(pair in SIGNED))


@ways
@signed
async def test_redacted(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    vendor.play(make_reply(Thinking("", SEAL), "42."), make_reply("Yes."))
    conversation.ask("Six times seven?")
    reply = await conversation.receive(mode, HARD)
    assert (reply.thinking, reply.text) == ("", "42.")
    conversation.ask("Sure?")
    assert (await conversation.receive(mode, HARD)).text == "Yes."
    assert seals(vendor) == (1, 0)


@ways
@signed
async def test_several_thinking_blocks(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    """Each keeps its own proof."""
    vendor.play(
        make_reply(
            Thinking("First.", SEAL), Thinking("Second.", SECOND), ToolCall("call_1", "clock", {})
        ),
        make_reply("Noon."),
    )
    conversation.ask("Time?")
    reply = await conversation.receive(mode, HARD)
    conversation.answer((reply.calls[0][0], ["noon"]))
    assert (await conversation.receive(mode, HARD)).text == "Noon."
    again = str(vendor.last.body)
    assert again.index(SEAL) < again.index(SECOND)
    assert seals(vendor) == (1, 1)


@only(pair for pair in SIGNED if pair.client is not Format.CHAT)
async def test_thinking_keeps_its_position(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream
) -> None:
    """Between calls, where a model thinks on before the first has been answered."""
    result = make_reply(
        *(Thinking("First.", SEAL), ToolCall("call_1", "clock", {})),
        *(Thinking("Second.", SECOND), ToolCall("call_2", "dice", {})),
    )
    vendor.play(result, make_reply("Noon, and a six."))
    conversation.ask("Time and luck?")
    reply = await conversation.receive(CallMode.HELPER, HARD)
    conversation.answer(*((id, ["twelve"]) for id, _, _ in reply.calls))
    assert (await conversation.receive(CallMode.HELPER, HARD)).text == "Noon, and a six."
    again = str(vendor.last.body)
    places = [again.index(mark) for mark in (SEAL, "call_1", SECOND, "call_2")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("pair", "first"),
    [
        pytest.param(pair, first, id=f"{first}-then-{pair.id}")
        for pair in PAIRS
        for first in Format
        if not pair.again and first is not pair.upstream
    ],
    indirect=["pair"],
)
async def test_thinking_is_only_sent_to_its_origin(
    clients: Clients, pair: Pair, vendor: ValidatingUpstream, first: Format
) -> None:
    """The model is switched in the middle of a conversation, and back."""
    vendor.play(
        make_reply(Thinking("Only mine.", SEAL), ToolCall("call_1", "clock", {})),
        make_reply(Thinking("Mine in turn.", SECOND), "Noon."),
        make_reply("As I said."),
        extended=True,
    )
    conversation = clients.conversation(pair.client, model_on(first))
    conversation.ask("The time?")
    reply = await conversation.receive(CallMode.HELPER, HARD)
    conversation.answer((reply.calls[0][0], ["noon"]))
    conversation.model = pair.model
    assert (await conversation.receive(CallMode.HELPER, HARD)).text == "Noon."
    assert seals(vendor) == (0, 0)
    assert "Only mine." not in str(vendor.last.body) or pair.upstream is Format.CHAT
    conversation.model = model_on(first)
    conversation.ask("Sure?")
    assert (await conversation.receive(CallMode.HELPER, HARD)).text == "As I said."
    assert seals(vendor) == (int(first is not Format.CHAT), 0)


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
async def test_effort(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, effort: str
) -> None:
    vendor.play(make_reply("Well."))
    conversation.ask("Think.")
    await conversation.receive(CallMode.CREATE, Options(effort=effort))
    assert effort_of(vendor.last) == effort


@pytest.mark.parametrize(
    ("client", "choice"),
    # The vendor itself refuses a forced tool to its own format.
    [(client, None) for client in Format] + [(Format.CHAT, "clock"), (Format.RESPONSES, "clock")],
)
async def test_a_budget(
    clients: Clients, vendor: ValidatingUpstream, client: Format, choice: str | None
) -> None:
    """A model that wants a number of tokens, which must leave some for the answer."""
    vendor.play(
        make_reply(Thinking("The time.", SEAL), ToolCall("call_1", "clock", {})),
        make_reply("Noon."),
    )
    conversation = clients.conversation(client, OLDER)
    conversation.ask("The time?")
    fields = {"budget": 2000} if client is Format.MESSAGES else {"effort": "high"}
    options = Options(**fields, tools=HARD.tools, max_tokens=2500)
    reply = await conversation.receive(CallMode.HELPER, replace(options, choice=choice))
    thinking = vendor.last.body.get("thinking", {"type": "disabled"})
    assert thinking["type"] == ("disabled" if choice else "enabled")
    conversation.answer((reply.calls[0][0], ["noon"]))
    assert (await conversation.receive(CallMode.HELPER, options)).text == "Noon."
    assert seals(vendor)[0] == 1


@pytest.mark.parametrize("upstream", [Format.CHAT, Format.RESPONSES])
async def test_a_budget_becomes_an_effort(
    clients: Clients, vendor: ValidatingUpstream, upstream: Format
) -> None:
    vendor.play(make_reply("Well."))
    conversation = clients.conversation(Format.MESSAGES, model_on(upstream))
    conversation.ask("Think.")
    await conversation.receive(CallMode.CREATE, Options(budget=8000, max_tokens=9000))
    assert effort_of(vendor.last) == "medium"


@pytest.mark.parametrize("client", [Format.CHAT, Format.MESSAGES])
async def test_a_model_without_reasoning(
    clients: Clients, vendor: ValidatingUpstream, client: Format
) -> None:
    """It refuses to encrypt any, and is not asked to."""
    vendor.play(make_reply("Hello."))
    conversation = clients.conversation(client, PLAIN)
    conversation.ask("Hi.")
    assert (await conversation.receive(CallMode.CREATE)).text == "Hello."


async def test_a_stored_reply_of_a_model_without_reasoning(
    clients: Clients, vendor: ValidatingUpstream
) -> None:
    vendor.play(make_reply("Hello."))
    response = await clients.openai.responses.create(model=PLAIN, input="Hi.")
    assert response.output_text == "Hello."
