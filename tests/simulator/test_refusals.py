"""What vendors refuse, the simulator refuses too, unless it is told not to."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from gateway.simulator import build_simulator

THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "of another model"}
CITED = {"type": "text", "text": "a", "citations": [{"url": "u", "encrypted_index": ""}]}
REASONING = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "of another model",
}
ASK = {"role": "user", "content": "Hi"}


def history(block: dict[str, Any]) -> dict[str, Any]:
    turns = [ASK, {"role": "assistant", "content": [block]}, ASK]
    return {"model": "alpha-sonnet-4-6", "max_tokens": 100, "messages": turns}


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/messages", history(THINKING), "Invalid `signature`"),
        ("/v1/messages", history(CITED), "Invalid `encrypted_index`"),
        ("/v1/responses", {"model": "beta-5.4", "input": [ASK, REASONING]}, "be verified"),
        (
            "/v1/responses",
            {"model": "beta-4.1", "input": "Hi", "include": ["reasoning.encrypted_content"]},
            "Encrypted content is not supported",
        ),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
async def test_refusals(path: str, body: dict[str, Any], message: str, strict: bool) -> None:
    async with TestClient(TestServer(build_simulator(pace=0, strict=strict))) as http:
        answer = await http.post(path, json=body)
        assert answer.status == (400 if strict else 200)
        assert (message in await answer.text()) == strict
