"""Response objects of upstreams as clients see them: their own id, `store` and predecessor."""

from __future__ import annotations

from time import thread_time
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.value import replace
from gateway.wire.responses.edits import ResponseEditor
from tests.wire.stream_cases import prompt

STORED = replace(
    prompt(Format.RESPONSES, "shown"), reply_id="resp_ours", previous_response_id="resp_before"
)
UPSTREAM: dict[str, Any] = {
    "id": "resp_up",
    "model": "up",
    "output": [{"id": "msg_1", "text": '"store":false "id":"resp_up"'}],
    "previous_response_id": None,
    "store": False,
}
CLIENT = UPSTREAM | {
    "id": "resp_ours",
    "model": "shown",
    "previous_response_id": "resp_before",
    "store": True,
}
TOOLS = {
    "tools": [{"parameters": {"store": {"id": "resp_up"}, "previous_response_id": None}}],
    "metadata": {"id": "resp_up", "store": False},
}


def edited(response: dict[str, Any], prompt: Prompt, *, indent: bool = False) -> bytes:
    """As a body and in an event; the rest of the event is checked here."""
    option = orjson.OPT_INDENT_2 if indent else 0
    body = orjson.dumps(response, option=option)
    whole = ResponseEditor(prompt, in_event=False).edit(body, response)
    event = {"type": "response.completed", "sequence_number": 7, "response": response}
    frame = orjson.dumps(event, option=option)
    in_event = ResponseEditor(prompt, in_event=True).edit(frame, response)
    after = event | {"response": orjson.loads(whole)}
    assert orjson.loads(in_event) == after
    return whole


@pytest.mark.parametrize("more", [{}, TOOLS], ids=["plain", "the same names elsewhere"])
@pytest.mark.parametrize("indent", [False, True])
def test_stored_responses_have_the_gateways_id(more: dict[str, Any], indent: bool) -> None:
    option = orjson.OPT_INDENT_2 if indent else 0
    whole = edited(UPSTREAM | more, STORED, indent=indent)
    assert whole == orjson.dumps(CLIENT | more, option=option)


def test_fields_that_the_upstream_does_not_know_are_added() -> None:
    sent = {"id": "resp_up", "model": "up"}
    whole = orjson.loads(edited(sent, STORED))
    assert whole == {key: CLIENT[key] for key in ("id", "model", "previous_response_id", "store")}
    assert orjson.loads(edited({}, STORED)) == {
        "previous_response_id": "resp_before",
        "store": True,
        "id": "resp_ours",
    }


def test_responses_that_are_not_stored_keep_their_id() -> None:
    asked = replace(prompt(Format.RESPONSES, "up"), store=False)
    assert edited(UPSTREAM, asked) == orjson.dumps(UPSTREAM)
    stored_upstream = UPSTREAM | {"store": True, "previous_response_id": "resp_theirs"}
    assert edited(stored_upstream, asked) == orjson.dumps(UPSTREAM)


@pytest.mark.parametrize("odd", [None, 7, ["x"], {"a": 1}, 'é\\"', ""])
def test_odd_values_are_replaced(odd: Any) -> None:
    sent = UPSTREAM | {"id": odd, "store": odd, "previous_response_id": odd}
    assert edited(sent, STORED) == orjson.dumps(CLIENT)


@pytest.mark.large
@pytest.mark.parametrize("count", [1, 200_000])
def test_large_responses_take_little_time(count: int) -> None:
    """A client chooses the tools that a response repeats, and so the names in it."""
    tools = [{"store": False, "id": "resp_up", "previous_response_id": None, "instructions": None}]
    sent = UPSTREAM | {"instructions": "theirs", "tools": tools * count}
    event = {"type": "response.created", "sequence_number": 0, "response": sent}
    payload = orjson.dumps(event)
    started = thread_time()
    edited = ResponseEditor(STORED, in_event=True).edit(payload, sent)
    assert thread_time() - started < 1
    expected = CLIENT | {"instructions": None, "tools": tools * count}
    assert orjson.loads(edited) == event | {"response": expected}


def test_the_parsed_object_is_edited_alike() -> None:
    for in_event in (False, True):
        editor = ResponseEditor(STORED, in_event=in_event)
        assert editor.edited(UPSTREAM) == CLIENT
