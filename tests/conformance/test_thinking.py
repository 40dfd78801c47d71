"""Reasoning: it is shown, it comes back to whoever wrote it unchanged, and to nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import How, Talk, Tool, Wish
from tests.conformance.neutral_reply import Called, Thought, say
from tests.conformance.pairs import OLDER, PAIRS, Clients, Pair, model_on, only
from tests.conformance.read_request import effort_of, extends
from tests.conformance.validating_upstream import ValidatingUpstream

pytestmark = pytest.mark.asyncio(loop_scope="session")

SEAL = "EqQBCkYIBxgCKkDq+/9zR0l4==.AbC_-~" * 5
SECOND = "gAAAAABo-second_SEAL+/=" * 9
HARD = Wish(effort="high", tools=(Tool("clock"), Tool("dice")))
ways = pytest.mark.parametrize("how", How, ids=lambda how: how.value)
SIGNED = tuple(pair for pair in PAIRS if pair.upstream is not Format.CHAT)
signed = only(SIGNED)


def seals(vendor: ValidatingUpstream) -> tuple[int, int]:
    """How often the last request carries each, in whatever format it is."""
    body = str(vendor.last.body)
    return body.count(SEAL), body.count(SECOND)


@ways
async def test_it_is_shown_and_carried(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How
) -> None:
    # Between two sides of chat its extension for reasoning is theirs to use.
    extended = pair.client is pair.upstream
    vendor.play(say(Thought("Hm, let me see.", SEAL), "42."), say("Yes."), extended=extended)
    talk.ask("Six times seven?")
    heard = await talk.hear(how, HARD)
    assert (heard.thinking, heard.text) == ("Hm, let me see.", "42.")
    talk.ask("Sure?")
    assert (await talk.hear(how, HARD)).text == "Yes."
    assert seals(vendor) == (int(pair in SIGNED), 0)


@ways
async def test_it_leads_a_tool_loop(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How
) -> None:
    vendor.play(
        say(Thought("I need the time.", SEAL), Called("call_1", "clock", {})),
        say(Thought("And now a die.", SECOND), "One more.", Called("call_2", "dice", {})),
        say("Noon, and a six."),
        extended=pair.client is pair.upstream,
    )
    talk.ask("Time and luck?")
    heard = await talk.hear(how, HARD)
    assert heard.called == [("clock", {})]
    talk.answer((heard.calls[0][0], ["noon"]))
    heard = await talk.hear(how, HARD)
    assert (heard.thinking, heard.text) == ("And now a die.", "One more.")
    assert seals(vendor) == (int(pair in SIGNED), 0)
    talk.answer((heard.calls[0][0], ["six"]))
    assert (await talk.hear(how, HARD)).text == "Noon, and a six."
    first, second, third = vendor.seen
    assert extends(second, first)
    assert extends(third, second)
    assert seals(vendor) == (int(pair in SIGNED), int(pair in SIGNED))


@ways
@signed
async def test_redacted(talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How) -> None:
    vendor.play(say(Thought("", SEAL), "42."), say("Yes."))
    talk.ask("Six times seven?")
    heard = await talk.hear(how, HARD)
    assert (heard.thinking, heard.text) == ("", "42.")
    talk.ask("Sure?")
    assert (await talk.hear(how, HARD)).text == "Yes."
    assert seals(vendor) == (1, 0)


@ways
@signed
async def test_several_thoughts(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How
) -> None:
    """Each keeps its own proof."""
    vendor.play(
        say(Thought("First.", SEAL), Thought("Second.", SECOND), Called("call_1", "clock", {})),
        say("Noon."),
    )
    talk.ask("Time?")
    heard = await talk.hear(how, HARD)
    talk.answer((heard.calls[0][0], ["noon"]))
    assert (await talk.hear(how, HARD)).text == "Noon."
    again = str(vendor.last.body)
    assert again.index(SEAL) < again.index(SECOND)
    assert seals(vendor) == (1, 1)


@only(pair for pair in SIGNED if pair.client is not Format.CHAT)
async def test_it_keeps_its_place(talk: Talk, pair: Pair, vendor: ValidatingUpstream) -> None:
    """Between calls, where a model thinks on before the first has been answered."""
    said = say(
        *(Thought("First.", SEAL), Called("call_1", "clock", {})),
        *(Thought("Second.", SECOND), Called("call_2", "dice", {})),
    )
    vendor.play(said, say("Noon, and a six."))
    talk.ask("Time and luck?")
    heard = await talk.hear(How.HELPER, HARD)
    talk.answer(*((id, ["twelve"]) for id, _, _ in heard.calls))
    assert (await talk.hear(How.HELPER, HARD)).text == "Noon, and a six."
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
async def test_strangers_never_see_it(
    clients: Clients, pair: Pair, vendor: ValidatingUpstream, first: Format
) -> None:
    """The model is switched in the middle of a conversation, and back."""
    vendor.play(
        say(Thought("Only mine.", SEAL), Called("call_1", "clock", {})),
        say(Thought("Mine in turn.", SECOND), "Noon."),
        say("As I said."),
        extended=True,
    )
    talk = clients.talk(pair.client, model_on(first))
    talk.ask("The time?")
    heard = await talk.hear(How.HELPER, HARD)
    talk.answer((heard.calls[0][0], ["noon"]))
    talk.model = pair.model
    assert (await talk.hear(How.HELPER, HARD)).text == "Noon."
    assert seals(vendor) == (0, 0)
    assert "Only mine." not in str(vendor.last.body) or pair.upstream is Format.CHAT
    talk.model = model_on(first)
    talk.ask("Sure?")
    assert (await talk.hear(How.HELPER, HARD)).text == "As I said."
    assert seals(vendor) == (int(first is not Format.CHAT), 0)


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
async def test_effort(talk: Talk, pair: Pair, vendor: ValidatingUpstream, effort: str) -> None:
    vendor.play(say("Well."))
    talk.ask("Think.")
    await talk.hear(How.CREATE, Wish(effort=effort))
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
    vendor.play(say(Thought("The time.", SEAL), Called("call_1", "clock", {})), say("Noon."))
    talk = clients.talk(client, OLDER)
    talk.ask("The time?")
    asked = {"budget": 2000} if client is Format.MESSAGES else {"effort": "high"}
    wish = Wish(**asked, tools=HARD.tools, max_tokens=2500)
    heard = await talk.hear(How.HELPER, replace(wish, choice=choice))
    thinking = vendor.last.body.get("thinking", {"type": "disabled"})
    assert thinking["type"] == ("disabled" if choice else "enabled")
    talk.answer((heard.calls[0][0], ["noon"]))
    assert (await talk.hear(How.HELPER, wish)).text == "Noon."
    assert seals(vendor)[0] == 1


@pytest.mark.parametrize("upstream", [Format.CHAT, Format.RESPONSES])
async def test_a_budget_becomes_an_effort(
    clients: Clients, vendor: ValidatingUpstream, upstream: Format
) -> None:
    vendor.play(say("Well."))
    talk = clients.talk(Format.MESSAGES, model_on(upstream))
    talk.ask("Think.")
    await talk.hear(How.CREATE, Wish(budget=8000, max_tokens=9000))
    assert effort_of(vendor.last) == "medium"
