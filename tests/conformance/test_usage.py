"""What it cost: the same figures whichever way, in the library's object and in the ledger."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import CallMode, Conversation
from tests.conformance.neutral_reply import Cost, NeutralReply, make_reply
from tests.conformance.pairs import Clients, Pair
from tests.conformance.validating_upstream import ValidatingUpstream
from tests.support.formats.reply import UsageCounts

pytestmark = pytest.mark.asyncio(loop_scope="session")

COSTS = {
    "plain": Cost(input=1200, output=77),
    "cached": Cost(input=1200, cached=1000, output=77),
    "everything": Cost(input=1200, cached=1000, kept=150, output=77, thinking=33),
    "all cached": Cost(input=1200, cached=1200, output=1),
}


def figures(cost: Cost) -> tuple[int, ...]:
    return cost.input, cost.cached, cost.kept, cost.output, cost.thinking


@pytest.mark.parametrize("mode", CallMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
async def test_usage_counts(
    conversation: Conversation, vendor: ValidatingUpstream, cost: Cost, mode: CallMode
) -> None:
    vendor.play(make_reply("Cheap.", cost=cost))
    conversation.ask("How much?")
    assert (await conversation.receive(mode)).usage == UsageCounts(*figures(cost))


@pytest.mark.parametrize("mode", [CallMode.CREATE, CallMode.STREAM], ids=lambda mode: mode.value)
async def test_recorded_usage(
    conversation: Conversation, vendor: ValidatingUpstream, clients: Clients, mode: CallMode
) -> None:
    vendor.play(*(make_reply("Cheap.", cost=cost) for cost in COSTS.values()))
    for _ in COSTS:
        conversation.ask("How much?")
        await conversation.receive(mode)
    kept = [
        (
            row.input_tokens,
            row.cache_read_tokens,
            row.cache_write_tokens,
            row.output_tokens,
            row.reasoning_tokens,
        )
        for row in await clients.newest_rows(len(COSTS))
    ]
    assert kept == [*map(figures, COSTS.values())]


@pytest.mark.parametrize("upstream", Format)
async def test_no_usage_without_a_request_for_it(
    clients: Clients, vendor: ValidatingUpstream, upstream: Format
) -> None:
    """Many chat programs cannot read the chunk without choices."""
    pair = Pair(Format.CHAT, upstream)
    reply: NeutralReply = make_reply("Cheap.")
    vendor.play(reply)
    chunks = await clients.openai.chat.completions.create(
        model=pair.model, messages=[{"role": "user", "content": "Hello"}], stream=True
    )
    seen = [chunk async for chunk in chunks]
    assert all(chunk.choices and "usage" not in chunk.model_fields_set for chunk in seen)
