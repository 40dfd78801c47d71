"""Each check of an answer can fail, and says why."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.doctor.clients import checks
from gateway.doctor.clients.profile import Request
from gateway.doctor.clients.reply import Answer, Call, Fault, Reply

ALL = checks.OF_ANY_ANSWER | checks.OF_BODIES | checks.OF_REPLIES
ERROR = {"type": "error", "error": {"message": "no"}}
NO_RETRY = {"x-should-retry": "false"}
MODEL = {"id": "model-a", "object": "model"}
LONG_TEXT = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12"


def check(
    expect: str,
    body: Any = None,
    status: int = 200,
    headers: dict[str, str] | None = None,
    reply: Reply | None = None,
    *,
    warning: str = "warned",
) -> list[Fault]:
    """The faults that a check finds; a last one says that the step ends."""
    request = Request(
        path="/v1/messages",
        result={},
        cancelled={},
        what="a request",
        expect=expect,
        tool="read",
        words=("marigold",),
        warning=warning,
    )
    reply = reply or Reply()
    answer = Answer(status, headers or {}, orjson.dumps(body), is_complete=True)
    try:
        ALL[expect](request, "model-a", answer, reply)
    except checks.StepEnded:
        reply.fault("ended")
    return reply.faults


@pytest.mark.parametrize(
    ("expect", "body", "status", "headers"),
    [
        ("anything", None, 500, {}),
        ("rejection", ERROR, 400, NO_RETRY),
        ("rejected_key", ERROR, 401, NO_RETRY),
        ("no_upgrade", None, 426, {}),
        ("success", None, 200, {}),
        ("models", {"data": [MODEL]}, 200, {}),
        ("token_count", {"input_tokens": 3}, 200, {}),
        ("stored", {"store": True}, 200, {}),
        ("reply", {}, 200, {}),
    ],
)
def test_answers_that_are_as_expected(
    expect: str, body: Any, status: int, headers: dict[str, str]
) -> None:
    assert check(expect, body, status, headers) == []


@pytest.mark.parametrize(
    ("expect", "body", "status", "headers", "text"),
    [
        ("rejection", {}, 200, {}, "a request was accepted"),
        ("rejection", {"error": {"message": "no"}}, 400, NO_RETRY, "not the envelope"),
        ("rejection", {"type": "error"}, 400, NO_RETRY, "not the envelope"),
        ("rejection", ERROR, 400, {}, "x-should-retry is missing"),
        ("rejected_key", {}, 200, {}, "a request was accepted"),
        ("rejected_key", ERROR, 403, NO_RETRY, "got 403 : no, expected was 401"),
        ("models", {"data": []}, 200, {}, "the list has no model-a"),
        ("models", {"data": [MODEL, {"id": "b"}]}, 200, {}, "no object of type model"),
        ("token_count", {"tokens": 3}, 200, {}, "count_tokens has no input_tokens"),
    ],
)
def test_answers_that_are_not(
    expect: str, body: Any, status: int, headers: dict[str, str], text: str
) -> None:
    (fault,) = check(expect, body, status, headers)
    assert text in fault.text


def test_warnings_of_one_client_are_in_its_file() -> None:
    (fault,) = check("no_upgrade", None, 404, warning="got {status}")
    assert (fault.text, fault.breaks) == ("got 404", False)
    assert [fault.text for fault in check("stored", {"store": False})] == ["warned", "ended"]
    used = {"usage": {"input_tokens": 7}}
    (fault,) = check("memory", used, reply=Reply(text="tulip"), warning="{input_tokens} used")
    assert (fault.text, fault.breaks) == ("7 used", False)
    assert check("memory", reply=Reply(text="Marigold.")) == []


def test_a_reply_has_text() -> None:
    assert check("text", reply=Reply(text="hello")) == []
    for expect in ("text", "pieces"):
        (fault,) = check(expect, reply=Reply(stop="max_tokens"))
        assert "no text (it ended with max_tokens)" in fault.text


def test_a_stream_comes_in_pieces() -> None:
    assert check("pieces", reply=Reply(text=LONG_TEXT, deltas=2)) == []
    assert check("pieces", reply=Reply(text="1, 2", deltas=1)) == []
    (fault,) = check("pieces", reply=Reply(text=LONG_TEXT, deltas=1))
    assert "came in one piece" in fault.text
    assert not fault.breaks


def test_a_model_calls_the_tool() -> None:
    call = Call("1", "read", {})
    assert check("call", reply=Reply(calls=[call])) == []
    faults = check("call", reply=Reply(text="no", calls=[Call("1", "write", {})]))
    assert "did not call the tool read, but write: it said 'no'" in faults[0].text
    assert faults[1].text == "ended"


def test_a_custom_tool_gets_free_text() -> None:
    assert check("custom_call", reply=Reply(calls=[Call("1", "read", text="patch")])) == []
    (fault,) = check("custom_call", reply=Reply(calls=[Call("1", "read", {})]))
    assert "no custom_tool_call with an input" in fault.text


@pytest.mark.parametrize("kinds", [[], ["message"], ["compaction", "message"], ["compaction"] * 2])
def test_a_compaction_is_the_only_item(kinds: list[str]) -> None:
    item = {"type": "compaction"}
    assert check("compaction", reply=Reply(history=[item])) == []
    fault, _ = check("compaction", reply=Reply(history=[{"type": kind} for kind in kinds]))
    assert "instead of one compaction item" in fault.text
    assert "compaction: false" in fault.remedy


def test_a_compaction_loses_nothing() -> None:
    assert check("recall", reply=Reply(text="Marigold.")) == []
    (fault,) = check("recall", reply=Reply(text="You named no word."))
    assert "does not know what was said" in fault.text and fault.breaks


def test_an_error_can_be_tolerated() -> None:
    request = Request(path="/v1/messages", result={}, cancelled={}, tolerated=("thread_x",))
    for code, is_tolerated in (("thread_x", True), ("other", False)):
        body = orjson.dumps({"error": {"details": {"error_code": code}}})
        answer = Answer(400, {}, body, is_complete=True)
        assert checks.is_tolerated(request, answer) is is_tolerated
