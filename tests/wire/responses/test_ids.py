"""Ids of items and calls: unique in a reply, and known again as made here."""

from __future__ import annotations

from gateway.wire.responses.ids import Ids, is_minted


def test_an_upstreams_own_id_is_kept_once() -> None:
    ids = Ids("a1")
    assert ids.item("msg", "msg_1") == "msg_1"
    again = ids.item("msg", "msg_1")
    assert again != "msg_1"
    assert is_minted(again)


def test_ids_of_another_kind_are_not_taken() -> None:
    ids = Ids("a1")
    assert ids.item("rs", "msg_1") == "rs_gw_a1_0"
    assert ids.item("rs", None) == "rs_gw_a1_1"
    assert ids.item("fc", 7) == "fc_gw_a1_2"


def test_calls_have_legal_ids_of_their_own() -> None:
    ids = Ids("a1")
    assert ids.call("toolu_1") == "toolu_1"
    assert is_minted(ids.call("toolu_1"))
    assert is_minted(ids.call(""))
    odd = ids.call("call|1.a")
    assert odd.startswith("call_1_a_")
    assert not is_minted(odd)


def test_what_was_made_here() -> None:
    assert is_minted("msg_gw_a1_0")
    assert not is_minted("msg_6893")
    assert not is_minted(None)
    assert not is_minted(["_gw_"])
