"""Ids of items and calls: unique in a reply, and recognizable when generated here."""

from __future__ import annotations

from gateway.wire.responses.ids import IdGenerator, is_generated


def test_native_id_is_used_once() -> None:
    ids = IdGenerator("a1")
    assert ids.item_id("msg", "msg_1") == "msg_1"
    again = ids.item_id("msg", "msg_1")
    assert again != "msg_1"
    assert is_generated(again)


def test_native_id_with_another_prefix() -> None:
    ids = IdGenerator("a1")
    assert ids.item_id("rs", "msg_1") == "rs_gw_a1_0"
    assert ids.item_id("rs", None) == "rs_gw_a1_1"
    assert ids.item_id("fc", 7) == "fc_gw_a1_2"


def test_call_ids_are_valid_and_unique() -> None:
    ids = IdGenerator("a1")
    assert ids.call_id("toolu_1") == "toolu_1"
    assert is_generated(ids.call_id("toolu_1"))
    assert is_generated(ids.call_id(""))
    unusual = ids.call_id("call|1.a")
    assert unusual.startswith("call_1_a_")
    assert not is_generated(unusual)


def test_generated_ids() -> None:
    assert is_generated("msg_gw_a1_0")
    assert not is_generated("msg_6893")
    assert not is_generated(None)
    assert not is_generated(["_gw_"])
