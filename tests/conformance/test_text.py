"""Words alone: what is asked arrives, what is said comes back, whichever way it is fetched."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import How, Talk, Tool, Wish
from tests.conformance.neutral_reply import Called, Thought, Words, say
from tests.conformance.pairs import CROSSINGS, UPSTREAM_MODEL, Pair, only
from tests.conformance.read_request import extends, system_of
from tests.conformance.validating_upstream import ValidatingUpstream, Whole

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDS = {Format.CHAT: "stop", Format.MESSAGES: "end_turn", Format.RESPONSES: "completed"}
SPEECH = 'Grüße! 世界 "quoted" \\ back\n\ttabbed 👩‍🚀 \u2028 </end>'


@pytest.mark.parametrize("how", How, ids=lambda how: how.value)
async def test_a_conversation(talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How) -> None:
    vendor.play(say(SPEECH), say("Second."))
    talk.ask("First question?")
    heard = await talk.hear(how, Wish(system="Be brief."))
    assert (heard.text, heard.model, heard.stop) == (SPEECH, pair.model, ENDS[pair.client])
    assert (heard.calls, heard.refusal, heard.thinking) == ((), None, "")
    assert vendor.last.format is pair.upstream
    assert vendor.last.body["model"] == UPSTREAM_MODEL
    assert system_of(vendor.last) == "Be brief."

    talk.ask("Second question?")
    heard = await talk.hear(how, Wish(system="Be brief."))
    assert heard.text == "Second."
    first, second = vendor.seen
    assert extends(second, first)
    again = str(second.body)
    assert again.index("First question?") < again.index("世界") < again.index("Second question?")


@pytest.mark.parametrize("how", How, ids=lambda how: how.value)
async def test_nothing_at_all(talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How) -> None:
    vendor.play(say())
    talk.ask("Say nothing.")
    heard = await talk.hear(how)
    assert (heard.text, heard.stop) == ("", ENDS[pair.client])


async def test_sampling_fits_the_upstream(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream
) -> None:
    vendor.play(say("Yes."))
    talk.ask("Be wild.")
    wild = 1.0 if pair.client is Format.MESSAGES else 1.7
    await talk.hear(How.CREATE, Wish(temperature=wild))
    assert 1 <= vendor.last.body["temperature"] <= wild


@pytest.mark.parametrize("how", How, ids=lambda how: how.value)
async def test_sources(talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How) -> None:
    sources = (("https://example.com/a?b=c", "A page"), ("https://example.com/d", "Another"))
    one, other = sources
    vendor.play(say(Words("The sky is blue. ", one), Words("Grass is green.", other)), say("Yes."))
    talk.ask("Colours?")
    heard = await talk.hear(how)
    assert heard.text == "The sky is blue. Grass is green."
    assert heard.sources == sources
    talk.ask("Sure?")
    assert (await talk.hear(how)).text == "Yes."


@only(CROSSINGS)
@pytest.mark.parametrize("how", [How.STREAM, How.HELPER], ids=lambda how: how.value)
async def test_an_upstream_that_does_not_stream(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How
) -> None:
    long = "All of it at once. " * 900
    call = Called("call_1", "clock", {"zone": "UTC"})
    vendor.play(Whole(say(Thought("Hm.", "SEAL"), long, call)))
    talk.ask("Hello?")
    heard = await talk.hear(how, Wish(tools=(Tool("clock"),)))
    assert (heard.thinking, heard.text) == ("Hm.", long)
    assert heard.called == [("clock", {"zone": "UTC"})]
