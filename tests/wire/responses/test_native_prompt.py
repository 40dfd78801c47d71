"""Requests of the native lane: what is removed from the client's body."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.target import Target
from gateway.wire import signatures
from gateway.wire.responses.native import patch_prompt

TARGET = Target(model="up", origin="here")
SIGNATURE = {"id": "rs_1", "encrypted_content": "ZW5j"}
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


def test_body_without_generated_items() -> None:
    items = [{"role": "user", "content": "hi"}, 7, SIGNATURE | {"type": "reasoning"}, {"id": None}]
    body = {"model": "m", "input": items}
    assert patch_prompt(body, TARGET)["input"] is items
    assert patch_prompt({"model": "m", "input": "hi"}, TARGET) == {"model": "up", "input": "hi"}


def test_own_reasoning_is_restored() -> None:
    packed = signatures.wrap(ProviderData(Format.RESPONSES, SIGNATURE), "here")
    assert patched(reasoning(packed)) == [SIGNATURE | {"type": "reasoning", "summary": SUMMARY}]
    bare = ProviderData(Format.RESPONSES, {"id": None, "encrypted_content": "ZW5j"})
    assert patched(reasoning(signatures.wrap(bare, "here"))) == [
        {"type": "reasoning", "summary": SUMMARY, "encrypted_content": "ZW5j"}
    ]


def test_reasoning_of_others_is_removed() -> None:
    message = {"role": "assistant", "content": "A"}
    for origin, signature in (
        ("elsewhere", ProviderData(Format.RESPONSES, SIGNATURE)),
        ("here", ProviderData(Format.MESSAGES, "c2ln")),
        ("here", None),
    ):
        assert patched(reasoning(signatures.wrap(signature, origin)), message) == [message]
    assert patched(reasoning("gw1.???"), message) == [message]


def test_generated_ids_are_removed() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    reference = {"type": "item_reference", "id": "msg_gw_a_0"}
    assert patched(call | {"id": "fc_gw_a_1"}, reference) == [call, reference]
