"""Every prompt of the fixtures, asked of an upstream of another format: it is one that the vendor
takes, or the client is told at once what cannot be asked.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.conformance.neutral_reply import make_reply
from tests.conformance.pairs import FOREIGN, Clients, Pair
from tests.conformance.validating_upstream import ValidatingUpstream
from tests.support.paths import PROMPTS

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    ("pair", "prompt"),
    [
        pytest.param(pair, prompt, id=f"{pair.id}-{prompt.parent.name}")
        for pair in FOREIGN
        for prompt in sorted(PROMPTS.glob(f"*/{pair.client}.json"))
    ],
    indirect=["pair"],
)
async def test_prompts(
    clients: Clients, pair: Pair, prompt: Path, vendor: ValidatingUpstream
) -> None:
    arguments_text = prompt.read_bytes()
    # No stock library can send audio to responses, while servers of open models take it.
    vendor.play(make_reply("I see."), extended=b"input_audio" in arguments_text)
    body = orjson.loads(arguments_text) | {"model": pair.model, "stream": False}
    body.pop("stream_options", None)
    answer = await clients.gateway.post(pair.client, body)
    text = await answer.text()
    if answer.status == 400:
        assert vendor.received == []
    elif body.get("max_tokens") != 0:
        assert answer.status == 200, text
        assert "I see" in text
