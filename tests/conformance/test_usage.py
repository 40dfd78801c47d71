"""What it cost: the same figures whichever way, in the library's object and in the ledger."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from tests.conformance.clients.base import Figures, How, Talk
from tests.conformance.neutral_reply import Cost, Said, say
from tests.conformance.pairs import Clients, Pair
from tests.conformance.validating_upstream import ValidatingUpstream

pytestmark = pytest.mark.asyncio(loop_scope="session")

COSTS = {
    "plain": Cost(input=1200, output=77),
    "cached": Cost(input=1200, cached=1000, output=77),
    "everything": Cost(input=1200, cached=1000, kept=150, output=77, thinking=33),
    "all cached": Cost(input=1200, cached=1200, output=1),
}


def figures(cost: Cost) -> tuple[int, ...]:
    return cost.input, cost.cached, cost.kept, cost.output, cost.thinking


@pytest.mark.parametrize("how", How, ids=lambda how: how.value)
@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
async def test_figures(talk: Talk, vendor: ValidatingUpstream, cost: Cost, how: How) -> None:
    vendor.play(say("Cheap.", cost=cost))
    talk.ask("How much?")
    assert (await talk.hear(how)).usage == Figures(*figures(cost))


@pytest.mark.parametrize("how", [How.CREATE, How.STREAM], ids=lambda how: how.value)
async def test_what_the_ledger_keeps(
    talk: Talk, vendor: ValidatingUpstream, clients: Clients, how: How
) -> None:
    vendor.play(*(say("Cheap.", cost=cost) for cost in COSTS.values()))
    for _ in COSTS:
        talk.ask("How much?")
        await talk.hear(how)
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
async def test_who_does_not_ask_is_not_told(
    clients: Clients, vendor: ValidatingUpstream, upstream: Format
) -> None:
    """Many chat programs cannot read the chunk without choices."""
    pair = Pair(Format.CHAT, upstream)
    said: Said = say("Cheap.")
    vendor.play(said)
    chunks = await clients.openai.chat.completions.create(
        model=pair.model, messages=[{"role": "user", "content": "Hello"}], stream=True
    )
    seen = [chunk async for chunk in chunks]
    assert all(chunk.choices and "usage" not in chunk.model_fields_set for chunk in seen)
