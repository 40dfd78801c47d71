"""Requests of the native lane: what is removed from the client's body."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.wire.prompt import signatures
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
    body = {"model": "m", "input": "hi", "store": False}
    assert patch_prompt(body, TARGET) == {"model": "up", "input": "hi", "store": False}


ITEMS_WITH_IDS: list[dict[str, Any]] = [
    {"type": "message", "id": "msg_1", "role": "assistant", "content": []},
    {"id": "msg_2", "role": "user", "content": "hi"},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "id": "fco_1", "call_id": "c1", "output": ""},
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "g", "input": ""},
    {"type": "custom_tool_call_output", "id": "cto_1", "call_id": "c2", "output": ""},
]
ITEMS_OF_IDS = [
    SIGNATURE | {"type": "reasoning", "summary": []},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "mcp_approval_request", "id": "mcpr_1"},
]


@pytest.mark.parametrize("store", [{}, {"store": None}, {"store": True}])
def test_upstreams_store_nothing(store: dict[str, Any]) -> None:
    body = {"model": "m", "input": [*ITEMS_WITH_IDS, *ITEMS_OF_IDS]} | store
    sent = patch_prompt(body, TARGET)
    bare = [{k: v for k, v in item.items() if k != "id"} for item in ITEMS_WITH_IDS]
    assert sent["input"] == [*bare, *ITEMS_OF_IDS]
    assert sent["store"] is False
    assert sent["include"] == ["reasoning.encrypted_content"]


def test_items_stay_where_the_client_declines_storage() -> None:
    items = [*ITEMS_WITH_IDS, *ITEMS_OF_IDS]
    body = {"model": "m", "input": items, "store": False}
    assert patch_prompt(body, TARGET) == body | {"model": "up"}


def test_reasoning_is_requested_once_and_of_models_that_reason() -> None:
    body = {"model": "m", "input": "hi", "include": ["a", "reasoning.encrypted_content"]}
    assert patch_prompt(body, TARGET)["include"] is body["include"]
    for efforts in ((), ("none",)):
        sent = patch_prompt({"model": "m", "input": "hi"}, replace(TARGET, efforts=efforts))
        assert sent == {"model": "up", "input": "hi", "store": False}


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
