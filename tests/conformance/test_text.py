"""Words alone: what is asked arrives, the reply comes back, whichever way it is fetched."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import CallMode, Conversation, Options, Tool
from tests.conformance.neutral_reply import Text, Thinking, ToolCall, make_reply
from tests.conformance.pairs import CROSSINGS, UPSTREAM_MODEL, Pair, only
from tests.conformance.read_request import extends, system_of
from tests.conformance.validating_upstream import ValidatingUpstream, WholeBody

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDS = {Format.CHAT: "stop", Format.MESSAGES: "end_turn", Format.RESPONSES: "completed"}
SPEECH = 'Grüße! 世界 "quoted" \\ back\n\ttabbed 👩‍🚀 \u2028 </end>'


@pytest.mark.parametrize("mode", CallMode, ids=lambda mode: mode.value)
async def test_a_conversation(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    vendor.play(make_reply(SPEECH), make_reply("Second."))
    conversation.ask("First question?")
    reply = await conversation.receive(mode, Options(system="Be brief."))
    assert (reply.text, reply.model, reply.stop) == (SPEECH, pair.model, ENDS[pair.client])
    assert (reply.calls, reply.refusal, reply.thinking) == ((), None, "")
    assert vendor.last.format is pair.upstream
    assert vendor.last.body["model"] == UPSTREAM_MODEL
    assert system_of(vendor.last) == "Be brief."

    conversation.ask("Second question?")
    reply = await conversation.receive(mode, Options(system="Be brief."))
    assert reply.text == "Second."
    first, second = vendor.received
    assert extends(second, first)
    again = str(second.body)
    assert again.index("First question?") < again.index("世界") < again.index("Second question?")


@pytest.mark.parametrize("mode", CallMode, ids=lambda mode: mode.value)
async def test_an_empty_reply(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    vendor.play(make_reply())
    conversation.ask("Say nothing.")
    reply = await conversation.receive(mode)
    assert (reply.text, reply.stop) == ("", ENDS[pair.client])


async def test_sampling_fits_the_upstream(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream
) -> None:
    vendor.play(make_reply("Yes."))
    conversation.ask("Be wild.")
    wild = 1.0 if pair.client is Format.MESSAGES else 1.7
    await conversation.receive(CallMode.CREATE, Options(temperature=wild))
    assert 1 <= vendor.last.body["temperature"] <= wild


@pytest.mark.parametrize("mode", CallMode, ids=lambda mode: mode.value)
async def test_sources(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    sources = (("https://example.com/a?b=c", "A page"), ("https://example.com/d", "Another"))
    one, other = sources
    vendor.play(
        make_reply(Text("The sky is blue. ", one), Text("Grass is green.", other)),
        make_reply("Yes."),
    )
    conversation.ask("Colours?")
    reply = await conversation.receive(mode)
    assert reply.text == "The sky is blue. Grass is green."
    assert reply.sources == sources
    conversation.ask("Sure?")
    assert (await conversation.receive(mode)).text == "Yes."


@only(CROSSINGS)
@pytest.mark.parametrize("mode", [CallMode.STREAM, CallMode.HELPER], ids=lambda mode: mode.value)
async def test_an_upstream_that_does_not_stream(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    long = "All of it at once. " * 900
    call = ToolCall("call_1", "clock", {"zone": "UTC"})
    vendor.play(WholeBody(make_reply(Thinking("Hm.", "SEAL"), long, call)))
    conversation.ask("Hello?")
    reply = await conversation.receive(mode, Options(tools=(Tool("clock"),)))
    assert (reply.thinking, reply.text) == ("Hm.", long)
    assert reply.called == [("clock", {"zone": "UTC"})]
