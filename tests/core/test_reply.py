"""Collecting events to a reply."""

from __future__ import annotations

import pytest

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Failure,
    FailureKind,
    Open,
    Ping,
    StopReason,
    Usage,
)
from gateway.core.parts import Text, ToolCall
from gateway.core.reply import Reply, ReplyFailed, collect_reply

BEGIN = Begin(id="reply_01", model="upstream-model")
END = End(stop=StopReason.END_TURN, usage=Usage(input_tokens=7, output_tokens=3))


def test_pieces_are_joined_in_the_order_of_their_parts() -> None:
    call = ToolCall(id="call_1", name="look", arguments="")
    events: list[Event] = [
        BEGIN,
        Ping(),
        *(Open(0, Text(text="")), Delta(0, "one "), Delta(0, "two"), Close(0)),
        *(Open(1, call), Open(2, call)),
        *(Delta(2, '{"b":'), Delta(1, "{}"), Delta(2, "1}"), Close(1), Close(2)),
        END,
    ]
    reply = collect_reply(events)
    assert isinstance(reply, Reply)
    assert reply.parts[0] == Text(text="one two")
    assert [part.arguments for part in reply.parts[1:] if isinstance(part, ToolCall)] == [
        "{}",
        '{"b":1}',
    ]
    assert (reply.id, reply.model, reply.stop) == ("reply_01", "upstream-model", END.stop)
    assert reply.usage == END.usage


def test_a_failure_raises() -> None:
    failure = Failure(kind=FailureKind.TRUNCATED, message="it broke off")
    with pytest.raises(ReplyFailed) as failed:
        collect_reply([BEGIN, Fail(failure)])
    assert failed.value.failure is failure


@pytest.mark.parametrize("events", [[], [BEGIN], [END]], ids=["nothing", "no end", "no begin"])
def test_incomplete_events_raise(events: list[Event]) -> None:
    with pytest.raises(ValueError, match="incomplete"):
        collect_reply(events)


def test_input_includes_cache_reads_and_writes() -> None:
    usage = Usage(input_tokens=10, cache_read_tokens=6, cache_write_tokens=3, output_tokens=2)
    assert (usage.fresh_input_tokens, usage.total_tokens) == (1, 12)
