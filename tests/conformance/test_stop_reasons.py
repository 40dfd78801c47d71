"""Why it stopped: each reason of any upstream in the client's own word."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import CallMode, Conversation, Options, Tool
from tests.conformance.neutral_reply import NeutralReply, Refusal, Stop, ToolCall, make_reply
from tests.conformance.pairs import CROSSINGS, PAIRS, REPAIRED, Pair, only
from tests.conformance.validating_upstream import ValidatingUpstream

pytestmark = pytest.mark.asyncio(loop_scope="session")

ways = pytest.mark.parametrize("mode", CallMode, ids=lambda mode: mode.value)
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
    "text",
    [
        make_reply("All of it."),
        make_reply("Not all of", stop=Stop.LIMIT),
        make_reply(ToolCall("call_1", "clock", {})),
        make_reply("I was going", stop=Stop.FILTERED),
    ],
    ids=lambda reply: reply.stop.value,
)
async def test_reasons(
    conversation: Conversation,
    pair: Pair,
    vendor: ValidatingUpstream,
    text: NeutralReply,
    mode: CallMode,
) -> None:
    vendor.play(text)
    conversation.ask("Go.")
    reply = await conversation.receive(mode, Options(tools=(Tool("clock"),)))
    assert (reply.stop, reply.text) == (word(text.stop, pair.client), text.text)


@ways
async def test_a_refusal(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    vendor.play(make_reply(Refusal("I cannot help with that.")))
    conversation.ask("Do something bad.")
    reply = await conversation.receive(mode)
    assert "I cannot help with that." in (reply.text, reply.refusal)
    expected = {
        Format.CHAT: ("stop", "content_filter"),
        Format.MESSAGES: ("refusal",),
        Format.RESPONSES: ("completed", "content_filter"),
    }
    assert reply.stop in expected[pair.client]


@ways
@only(pair for pair in PAIRS if pair.client is not Format.RESPONSES)
async def test_a_stop_sequence(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    """Where the upstream knows none, the gateway watches for it."""
    if pair.upstream is Format.RESPONSES:
        vendor.play(make_reply("One, two, three, END, four, five."))
    else:
        vendor.play(make_reply("One, two, three, ", stop=Stop.SEQUENCE, sequence="END"))
    conversation.ask("Count.")
    reply = await conversation.receive(mode, Options(stop=("END", "FIN")))
    assert reply.text == "One, two, three, "
    named = pair.client is Format.MESSAGES and pair.upstream is not Format.CHAT
    assert reply.stop == ("stop_sequence" if named else word(Stop.END, pair.client))
    if named:
        assert reply.body["stop_sequence"] == "END"
    if pair.upstream is not Format.RESPONSES:
        field = "stop" if pair.upstream is Format.CHAT else "stop_sequences"
        assert vendor.last.body[field] == ["END", "FIN"]


@ways
@only(pair for pair in CROSSINGS if pair.client is Format.MESSAGES)
async def test_a_call_cut_by_the_limit(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode
) -> None:
    """The messages library reads the arguments of every call: half of them must not break it."""
    arguments: dict[str, Any] = {"path": "/tmp/a", "content": "one\ntwo"}
    vendor.play(
        make_reply("I write.", ToolCall("call_1", "write", arguments, cut=29), stop=Stop.LIMIT)
    )
    conversation.ask("Write.")
    reply = await conversation.receive(mode, Options(tools=(Tool("write"),)))
    assert (reply.stop, reply.text) == ("max_tokens", "I write.")


@only(REPAIRED)
async def test_a_small_limit(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream
) -> None:
    """Probes ask for a single token."""
    vendor.play(make_reply("H", stop=Stop.LIMIT))
    conversation.ask("Hello?")
    reply = await conversation.receive(CallMode.CREATE, Options(max_tokens=1))
    assert reply.stop == word(Stop.LIMIT, pair.client)
