"""The native lane: what is not left of the client's own body."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.target import Target
from gateway.wire import signatures
from gateway.wire.responses.native import patch_prompt

TARGET = Target(model="up", origin="here")
SIGNED = {"id": "rs_1", "encrypted_content": "ZW5j"}
SUMMARY = [{"type": "summary_text", "text": "Hm."}]


def patched(*items: Any) -> Any:
    body = {"model": "m", "input": list(items), "later": 1}
    before = orjson.dumps(body)
    sent = patch_prompt(body, TARGET)
    assert orjson.dumps(body) == before
    assert (sent["model"], sent["later"]) == ("up", 1)
    return sent["input"]


def reasoning(encrypted: str) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": "rs_gw_a_0",
        "summary": SUMMARY,
        "encrypted_content": encrypted,
    }


def test_a_body_without_anything_of_ours_is_the_same() -> None:
    given = [{"role": "user", "content": "hi"}, 7, SIGNED | {"type": "reasoning"}, {"id": None}]
    body = {"model": "m", "input": given}
    assert patch_prompt(body, TARGET)["input"] is given
    assert patch_prompt({"model": "m", "input": "hi"}, TARGET) == {"model": "up", "input": "hi"}


def test_reasoning_that_was_the_upstreams_own() -> None:
    packed = signatures.wrap(ProviderData(Format.RESPONSES, SIGNED), "here")
    assert patched(reasoning(packed)) == [SIGNED | {"type": "reasoning", "summary": SUMMARY}]
    bare = ProviderData(Format.RESPONSES, {"id": None, "encrypted_content": "ZW5j"})
    assert patched(reasoning(signatures.wrap(bare, "here"))) == [
        {"type": "reasoning", "summary": SUMMARY, "encrypted_content": "ZW5j"}
    ]


def test_reasoning_of_others_is_left_out() -> None:
    said = {"role": "assistant", "content": "A"}
    for origin, signature in (
        ("elsewhere", ProviderData(Format.RESPONSES, SIGNED)),
        ("here", ProviderData(Format.MESSAGES, "c2ln")),
        ("here", None),
    ):
        assert patched(reasoning(signatures.wrap(signature, origin)), said) == [said]
    assert patched(reasoning("gw1.???"), said) == [said]


def test_ids_that_were_made_here() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    reference = {"type": "item_reference", "id": "msg_gw_a_0"}
    assert patched(call | {"id": "fc_gw_a_1"}, reference) == [call, reference]
