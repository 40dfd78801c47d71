"""Pictures, by address and as data, and papers: between words, in the order they were shown in."""

from __future__ import annotations

import pytest

from tests.conformance.clients.base import How, Paper, Picture, Talk, Wish
from tests.conformance.neutral_reply import say
from tests.conformance.pairs import Pair
from tests.conformance.read_request import last_user_parts
from tests.conformance.validating_upstream import ValidatingUpstream
from tests.simulator.images import PNG

pytestmark = pytest.mark.asyncio(loop_scope="session")

ADDRESS = "https://example.com/cat.png?size=2&x=%20"


@pytest.mark.parametrize("source", [PNG, ADDRESS], ids=["data", "address"])
@pytest.mark.parametrize("how", [How.CREATE, How.HELPER], ids=lambda how: how.value)
async def test_a_picture(
    talk: Talk, pair: Pair, vendor: ValidatingUpstream, how: How, source: str
) -> None:
    vendor.play(say("A cat."), say("Still a cat."))
    picture = Picture(source)
    talk.ask("What is this?", picture)
    assert (await talk.hear(how, Wish(system="Look."))).text == "A cat."
    assert last_user_parts(vendor.last) == ["What is this?", picture.url]
    talk.ask("Sure?")
    assert (await talk.hear(how, Wish(system="Look."))).text == "Still a cat."
    assert source in str(vendor.last.body)


async def test_several_pictures(talk: Talk, pair: Pair, vendor: ValidatingUpstream) -> None:
    vendor.play(say("Two cats."))
    shown = [Picture(PNG), "and", Picture(ADDRESS), "compared."]
    talk.ask(*shown)
    assert (await talk.hear(How.STREAM)).text == "Two cats."
    expected = [piece if isinstance(piece, str) else piece.url for piece in shown]
    assert last_user_parts(vendor.last) == expected


async def test_a_paper(talk: Talk, pair: Pair, vendor: ValidatingUpstream) -> None:
    vendor.play(say("A contract."))
    paper = Paper("JVBERi0xLjQKJcOkw7zDtsOfCg==", "contract.pdf")
    talk.ask(paper, "What is this?")
    assert (await talk.hear(How.CREATE)).text == "A contract."
    body = str(vendor.last.body)
    assert body.index(paper.data) < body.index("What is this?")
    assert "contract.pdf" in body
