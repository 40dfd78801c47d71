"""Items as conversations have them."""

from __future__ import annotations

import pytest

from gateway.errors import InvalidRequest
from gateway.wire.responses.conversation import with_ids
from gateway.wire.responses.ids import is_generated
from gateway.wire.responses.input_items import parse_item

MESSAGE = {"role": "user", "content": "Hello"}


def test_ids_are_unique() -> None:
    given = ["a", "b", "a", None, "", 5, "x" * 2000, "known"]
    items = with_ids([MESSAGE | {"id": id} for id in given], "s", "items", {"known"})
    ids = [item["id"] for item in items]
    assert ids[:2] == ["a", "b"]
    assert all(map(is_generated, ids[2:]))
    assert len(set(ids)) == len(ids)


def test_an_id_that_links_a_call_to_its_output_stays() -> None:
    """Some of these items have no `call_id`."""
    call = {"type": "local_shell_call", "id": "lsh_1", "action": {"command": ["ls"]}}
    output = {"type": "local_shell_call_output", "id": "lsh_1", "output": "a"}
    parts = [parse_item(item, "").parts[0] for item in with_ids([call, output], "s", "items")]
    assert [getattr(parts[0], "id", None), getattr(parts[1], "call_id", None)] == ["lsh_1"] * 2


def test_an_item_with_an_empty_type_is_no_message() -> None:
    """Whatever else it has."""
    (item,) = with_ids([{"type": "", "content": "Hello"}], "s", "items")
    assert (item["type"], item["content"]) == ("", "Hello")


def test_an_item_without_type_and_role_is_a_reference() -> None:
    with pytest.raises(InvalidRequest, match="references") as raised:
        with_ids([MESSAGE, {"id": "msg_1", "content": "Hello"}], "s", "items")
    assert raised.value.param == "items.1"
