"""Why it stopped: each reason of any upstream in the client's own word."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import How, Talk, Tool, Wish
from tests.conformance.neutral_reply import Called, Declined, Said, Stop, say
from tests.conformance.pairs import CROSSINGS, PAIRS, REPAIRED, Pair, only
from tests.conformance.validating_upstream import ValidatingUpstream

pytestmark = pytest.mark.asyncio(loop_scope="session")

ways = pytest.mark.parametrize("how", How, ids=lambda how: how.value)
WORDS = {
    Stop.END: ("stop", "end_turn", "completed"),
    Stop.LIMIT: ("length", "max_tokens", "max_output_tokens"),
    Stop.CALLS: ("tool_calls", "tool_use", "completed"),
    Stop.FILTERED: ("content_filter", "refusal", "content_filter"),
}


def word(stop: Stop, client: Format) -> str:
    chat, messages, responses = WORDS[stop]
    return {Format.CHAT: chat, Format.MESSAGES: messages, Format.RESPONSES: responses}[client]


@ways
@pytest.mark.parametrize(
    "said",
    [
        say("All of it."),
        say("Not all of", stop=Stop.LIMIT),
        say(Called("call_1", "clock", {})),
        say("I was going", stop=Stop.FILTERED),
    ],
    ids=lambda said: said.stop.value,
)
async def test_reasons(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream, said: Said, how: How
) -> None:
    vendor.play(said)
    talk.ask("Go.")
    heard = await talk.hear(how, Wish(tools=(Tool("clock"),)))
    assert (heard.stop, heard.text) == (word(said.stop, pair.client), said.text)


@ways
async def test_a_refusal(talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How) -> None:
    vendor.play(say(Declined("I cannot help with that.")))
    talk.ask("Do something bad.")
    heard = await talk.hear(how)
    assert "I cannot help with that." in (heard.text, heard.refusal)
    expected = {
        Format.CHAT: ("stop", "content_filter"),
        Format.MESSAGES: ("refusal",),
        Format.RESPONSES: ("completed", "content_filter"),
    }
    assert heard.stop in expected[pair.client]


@ways
@only(pair for pair in PAIRS if pair.client is not Format.RESPONSES)
async def test_a_stop_sequence(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How
) -> None:
    """Where the upstream knows none, the gateway watches for it."""
    if pair.upstream is Format.RESPONSES:
        vendor.play(say("One, two, three, END, four, five."))
    else:
        vendor.play(say("One, two, three, ", stop=Stop.SEQUENCE, sequence="END"))
    talk.ask("Count.")
    heard = await talk.hear(how, Wish(stop=("END", "FIN")))
    assert heard.text == "One, two, three, "
    named = pair.client is Format.MESSAGES and pair.upstream is not Format.CHAT
    assert heard.stop == ("stop_sequence" if named else word(Stop.END, pair.client))
    if named:
        assert heard.reply.stop_sequence == "END"
    if pair.upstream is not Format.RESPONSES:
        field = "stop" if pair.upstream is Format.CHAT else "stop_sequences"
        assert vendor.last.body[field] == ["END", "FIN"]


@ways
@only(pair for pair in CROSSINGS if pair.client is Format.MESSAGES)
async def test_a_call_cut_by_the_limit(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How
) -> None:
    """The messages library reads the arguments of every call: half of them must not break it."""
    arguments: dict[str, Any] = {"path": "/tmp/a", "content": "one\ntwo"}
    vendor.play(say("I write.", Called("call_1", "write", arguments, cut=29), stop=Stop.LIMIT))
    talk.ask("Write.")
    heard = await talk.hear(how, Wish(tools=(Tool("write"),)))
    assert (heard.stop, heard.text) == ("max_tokens", "I write.")


@only(REPAIRED)
async def test_a_small_limit(talk: Talk, pair: Pair, vendor: ValidatingUpstream) -> None:
    """Probes ask for a single token."""
    vendor.play(say("H", stop=Stop.LIMIT))
    talk.ask("Hello?")
    heard = await talk.hear(How.CREATE, Wish(max_tokens=1))
    assert heard.stop == word(Stop.LIMIT, pair.client)
