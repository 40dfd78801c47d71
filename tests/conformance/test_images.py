"""Pictures, by address and as data, and papers: between words, in the order they were shown in."""

from __future__ import annotations

import pytest

from tests.conformance.clients.base import CallMode, Conversation, Document, Image, Options
from tests.conformance.neutral_reply import make_reply
from tests.conformance.pairs import Pair
from tests.conformance.read_request import last_user_parts
from tests.conformance.validating_upstream import ValidatingUpstream
from tests.simulator.images import PNG

pytestmark = pytest.mark.asyncio(loop_scope="session")

ADDRESS = "https://example.com/cat.png?size=2&x=%20"


@pytest.mark.parametrize("source", [PNG, ADDRESS], ids=["data", "address"])
@pytest.mark.parametrize("mode", [CallMode.CREATE, CallMode.HELPER], ids=lambda mode: mode.value)
async def test_an_image(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream, mode: CallMode, source: str
) -> None:
    vendor.play(make_reply("A cat."), make_reply("Still a cat."))
    picture = Image(source)
    conversation.ask("What is this?", picture)
    assert (await conversation.receive(mode, Options(system="Look."))).text == "A cat."
    assert last_user_parts(vendor.last) == ["What is this?", picture.url]
    conversation.ask("Sure?")
    assert (await conversation.receive(mode, Options(system="Look."))).text == "Still a cat."
    assert source in str(vendor.last.body)


async def test_several_images(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream
) -> None:
    vendor.play(make_reply("Two cats."))
    results = [Image(PNG), "and", Image(ADDRESS), "compared."]
    conversation.ask(*results)
    assert (await conversation.receive(CallMode.STREAM)).text == "Two cats."
    expected = [delta if isinstance(delta, str) else delta.url for delta in results]
    assert last_user_parts(vendor.last) == expected


async def test_a_document(
    conversation: Conversation, pair: Pair, vendor: ValidatingUpstream
) -> None:
    vendor.play(make_reply("A contract."))
    paper = Document("JVBERi0xLjQKJcOkw7zDtsOfCg==", "contract.pdf")
    conversation.ask(paper, "What is this?")
    assert (await conversation.receive(CallMode.CREATE)).text == "A contract."
    body = str(vendor.last.body)
    assert body.index(paper.data) < body.index("What is this?")
    assert "contract.pdf" in body
